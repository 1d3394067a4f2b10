"""Heads that a draft can borrow from its target, and those that stop the start with their type (R10)."""

from types import SimpleNamespace

import pytest
import torch

from sglang.srt.speculative import borrowed_head
from sglang.srt.speculative.borrowed_head import head_problem
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
from sglang.srt.utils.launch_error import LaunchError


class PackedMethod:
    """Computes the right logits from weights of half the columns."""

    def apply(self, layer, hidden, bias=None):
        return hidden @ layer.dense.T


class UnquantizedEmbeddingMethod(PackedMethod):
    pass


class Head(torch.nn.Module):
    def __init__(self, dtype, method=None):
        super().__init__()
        self.dense = torch.ones(128, 64)
        self.weight = torch.nn.Parameter(torch.zeros(128, 32 if dtype == torch.uint8 else 64, dtype=dtype), False)
        self.quant_method = method


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("tp_size", [1, 8])
def test_a_dense_head_is_fine(dtype, tp_size):
    assert head_problem(Head(dtype), True, tp_size) is None


def test_a_packed_head_goes_through_its_method_on_one_gpu_r10():
    packed = Head(torch.uint8, PackedMethod())
    assert head_problem(packed, False, 1) is None
    assert "Head with PackedMethod, which drafts can use on one GPU alone (--tp-size is 2)" in head_problem(
        packed, False, 2
    )


@pytest.mark.parametrize(
    "head, found",
    [
        (None, "no lm_head"),
        (Head(torch.uint8), "Head with no quantization method, which has neither"),
        (Head(torch.float8_e4m3fn, UnquantizedEmbeddingMethod()), "weights of type torch.float8_e4m3fn"),
    ],
)
def test_a_head_that_cannot_be_read_is_named_r10(head, found):
    assert found in head_problem(head, False, 1)


def test_the_worker_asks_before_it_allocates_anything_r10(monkeypatch):
    monkeypatch.setattr(borrowed_head, "get_parallel", lambda: SimpleNamespace(tp_group=SimpleNamespace(world_size=1)))
    target = SimpleNamespace(model_runner=SimpleNamespace(model=SimpleNamespace(lm_head=Head(torch.uint8))))
    worker = SimpleNamespace(target_worker=target, selector=None, lilicorr=None)
    with pytest.raises(LaunchError, match="SimpleNamespace is a Head with no quantization method"):
        DFlashWorkerV2.alloc_memory_pool(worker)
