"""With overlap scheduling, sampling waits for the last result where a custom logit processor may read it."""

from types import SimpleNamespace

import pytest
import torch

from sglang.srt.managers.tp_worker import TpModelWorker
from sglang.srt.model_executor.forward_batch_info import ForwardMode


def run_forward(*, overlap: bool, processor: bool):
    """One plain decode forward of a worker whose model does nothing; the result and the number of draws."""
    draws = []
    output = SimpleNamespace(next_token_logits=torch.zeros(1, 4))
    forward = SimpleNamespace(
        logits_output=output,
        can_run_graph=False,
        expert_distribution_metrics=None,
        routed_experts_output=None,
        indexer_topk_output=None,
    )
    runner = SimpleNamespace(
        forward=lambda *_, **__: forward, sample=lambda *_: draws.append(1) or torch.zeros(1, dtype=torch.int64)
    )
    worker = SimpleNamespace(
        model_runner=runner,
        pp_group=SimpleNamespace(is_last_rank=True),
        is_dllm=lambda: False,
        enable_overlap=overlap,
        enable_spec=False,
        _maybe_finalize_elastic_cuda_graph_scale=lambda: None,
    )
    batch = SimpleNamespace(
        sampling_info=SimpleNamespace(grammars=None, has_custom_logit_processor=processor),
        forward_mode=ForwardMode.DECODE,
        is_prefill_only=False,
        return_logprob=False,
        apply_deprecated_skip_attn_backend_init=lambda _: None,
    )
    return TpModelWorker.forward_batch_generation(worker, None, batch), draws


@pytest.mark.parametrize("overlap, processor", [(True, False), (False, True), (False, False)])
def test_a_step_is_sampled_at_once_where_nothing_is_a_round_behind(overlap, processor):
    result, draws = run_forward(overlap=overlap, processor=processor)
    assert len(draws) == 1 and result.delay_sample_func is None


def test_a_processors_step_is_sampled_when_the_last_result_is_processed_r05():
    result, draws = run_forward(overlap=True, processor=True)
    assert not draws and result.next_token_ids is None
    assert result.delay_sample_func() is result
    assert len(draws) == 1 and result.next_token_ids.tolist() == [0]
