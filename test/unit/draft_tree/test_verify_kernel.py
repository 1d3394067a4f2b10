"""Which verifies run with split attention, and which stay with upstream's kernel."""

from types import SimpleNamespace

import pytest
import torch

from sglang.kernels.draft_tree.verify_attention import Mask, NewRows, Prefix, verify_attention
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.speculative.draft_tree.verify_kernel import VARIABLE, verify_kernel
from sglang.srt.utils.launch_error import LaunchError

QUERIES, KEYS, VALUES = torch.randn(3, 2, 8), torch.randn(3, 1, 8), torch.randn(3, 1, 8)
POOL_KEYS, POOL_VALUES, SLOTS = torch.randn(9, 1, 8), torch.randn(9, 1, 8), torch.tensor([4, 2])
START, PREFIX_START = torch.tensor([0, 3]), torch.tensor([0, 2])
CELLS = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 1]], dtype=torch.uint8).flatten()
CELLS_START = torch.tensor([0, 15])


@pytest.fixture
def backend() -> SimpleNamespace:
    """With an attention that only notes that it was called."""
    found = SimpleNamespace(dllm_attention=None, forward_metadata=SimpleNamespace(mask_indptr=CELLS_START), calls=[])
    found.extend_attention_fwd = lambda *args, **options: found.calls.append((args, options))
    return found


def run(backend, cells=CELLS, causal=True, queries=QUERIES, pool_keys=POOL_KEYS, **options) -> torch.Tensor:
    out = torch.full((3, 2, 8), 77.0)
    TritonAttnBackend._forward_extend_kernel(
        backend, None, queries, KEYS, VALUES, out, pool_keys, POOL_VALUES, START, PREFIX_START, SLOTS, cells, causal,
        CELLS_START, 3, 1.0, 1.0, 0.5,
        **{"logit_cap": 0.0, "sliding_window_size": -1, "sinks": None, "xai_temperature_len": -1, **options},
    )  # fmt: skip
    return out


def expected(mask: Mask, logit_cap: float = 0.0) -> torch.Tensor:
    out = torch.empty(3, 2, 8)
    new, prefix = NewRows(QUERIES, KEYS, VALUES, START, 3), Prefix(POOL_KEYS, POOL_VALUES, SLOTS, PREFIX_START)
    verify_attention(out, new, prefix, mask, 0.5, logit_cap)
    return out


def test_upstreams_kernel_runs_unless_the_other_is_asked_for(backend, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert (run(backend) == 77).all() and len(backend.calls) == 1
    assert backend.calls[0][0][9] is CELLS  # its arguments as they came
    monkeypatch.setenv(VARIABLE, "split")
    assert (run(backend) != 77).all() and len(backend.calls) == 1


@pytest.mark.parametrize(
    ("cells", "causal", "mask"),
    [
        (CELLS, True, Mask("tree", CELLS, CELLS_START)),
        (None, True, Mask("earlier")),  # a chain
        (None, False, Mask("all")),  # a draft's block
    ],
)
def test_trees_chains_and_blocks_see_what_they_should(backend, monkeypatch, cells, causal, mask):
    monkeypatch.setenv(VARIABLE, "split")
    assert torch.equal(run(backend, cells, causal), expected(mask))
    assert torch.equal(run(backend, cells, causal, logit_cap=3.0), expected(mask, 3.0))


@pytest.mark.parametrize(
    "options",
    [
        {"sliding_window_size": 128},
        {"sinks": torch.zeros(2)},
        {"xai_temperature_len": 9},
        {"score_mod": "any"},
        {"pool_keys": torch.randn(3, 3, 1, 8)},  # by page
        {"queries": torch.randn(3, 2, 576)},  # float32 heads that are too wide for its tiles
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_the_split_kernel_has_not_stays_with_upstreams(backend, monkeypatch, options):
    monkeypatch.setenv(VARIABLE, "split")
    run(backend, **options)
    assert len(backend.calls) == 1


def test_a_prefill_stays_with_upstreams(backend, monkeypatch):
    monkeypatch.setenv(VARIABLE, "split")
    backend.forward_metadata.mask_indptr = None
    run(backend)
    assert len(backend.calls) == 1


def test_another_name_is_refused_with_those_that_there_are(monkeypatch):
    monkeypatch.setenv(VARIABLE, "flash")
    with pytest.raises(LaunchError, match=f"{VARIABLE}=flash: a verify on triton runs with extend or split"):
        verify_kernel()
