"""The target distribution of upstream's ratio test, with two filters at once and with min-p."""

from types import SimpleNamespace

import pytest
import torch

from harness.device import DEVICE
from sglang.srt.speculative.dflash_utils import build_speculative_verify_target_probs

from .test_target_draw import FILTERS, TABLE, VOCAB, filtered


def target_probs(sampling: dict, max_top_k) -> torch.Tensor:
    sampling = dict(dict(temperature=1.0, top_k=1 << 30, top_p=1.0, min_p=0.0), **sampling)
    info = SimpleNamespace(
        temperatures=torch.tensor([[sampling["temperature"]]] * 2, device=DEVICE),
        top_ks=torch.tensor([sampling["top_k"]] * 2, device=DEVICE),
        top_ps=torch.tensor([sampling["top_p"]] * 2, device=DEVICE),
        min_ps=torch.tensor([sampling["min_p"]] * 2, device=DEVICE),
        need_top_k_sampling=sampling["top_k"] < VOCAB,
        need_top_p_sampling=sampling["top_p"] < 1,
        need_min_p_sampling=sampling["min_p"] > 0,
    )
    probs = build_speculative_verify_target_probs(
        next_token_logits=TABLE.clone().to(DEVICE),
        sampling_info=info,
        draft_token_num=VOCAB // 2,
        bs=2,
        max_top_k=max_top_k,
    )
    return probs.cpu()


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("bound", ["largest", "none"])
def test_it_is_plain_decodings_distribution_r08(name, bound):
    sampling = FILTERS[name]
    max_top_k = sampling.get("top_k", VOCAB) if bound == "largest" else None
    probs = target_probs(sampling, max_top_k)
    assert probs.shape == (2, VOCAB // 2, VOCAB)
    expected = torch.stack([torch.from_numpy(filtered(token, **sampling)) for token in range(VOCAB)]).float()
    torch.testing.assert_close(probs.view(VOCAB, VOCAB), expected)
