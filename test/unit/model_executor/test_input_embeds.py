"""Input embeddings reach the model in the model's own type: the draft of a float32 pair gets its input this way."""

from types import SimpleNamespace

import pytest
import torch

from sglang.srt.model_executor.model_runner import ModelRunner


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_embeddings_keep_the_type_of_the_model(dtype):
    runner = SimpleNamespace(dtype=dtype, support_pp=False, is_generation=True, _pp_kwargs=lambda _: {})
    embeddings = torch.tensor([[1.0001, 2.0]], dtype=dtype)
    batch = SimpleNamespace(input_embeds=embeddings, replace_embeds=None, replace_positions=None)
    given = ModelRunner._extend_forward_kwargs(runner, batch, None)["input_embeds"]
    assert given.dtype == dtype and torch.equal(given, embeddings)
