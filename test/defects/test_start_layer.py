"""R25: attention backends size their value heads from a layer that the pipeline stage holds.

A stage that holds layers 4 to 7 has no layer 0: reading it is an index error, or, counted from the end, the buffer of
another layer.
"""

import sys
from types import SimpleNamespace
from unittest.mock import MagicMock
from zipfile import ZipFile

import pytest
import torch

from patches.apply import applicable
from patches.pin import read_pin
from patches.series import load_patch
from patches.syntax import SourceFile
from sglang.srt.layers.attention import aiter_backend, wave_backend
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.mem_cache.value_head import value_head_dim

PATCH = "start-layer-aiter-wave"
FIRST_LAYER = 4
HEAD_DIM, VALUE_HEAD_DIM = 16, 24


class StagePool:
    """Layers 4 to 7 of a model; every layer has another value width, so that a wrong layer shows."""

    start_layer = FIRST_LAYER

    def __init__(self):
        self._values = [torch.zeros(8, 2, VALUE_HEAD_DIM + layer) for layer in range(4)]

    def get_value_buffer(self, layer_id: int) -> torch.Tensor:
        if layer_id < self.start_layer:
            raise IndexError(f"layer {layer_id} is not on this stage")
        return self._values[layer_id - self.start_layer]


def stage_of_a_uniform_model() -> MHATokenToKVPool:
    return MHATokenToKVPool(
        size=16,
        page_size=1,
        dtype=torch.float32,
        head_num=2,
        head_dim=HEAD_DIM,
        v_head_dim=VALUE_HEAD_DIM,
        layer_num=4,
        device="cpu",
        enable_memory_saver=False,
        start_layer=FIRST_LAYER,
        end_layer=7,
    )


@pytest.fixture
def context(monkeypatch):
    """The process-wide settings that the backends read, and stand-ins for the libraries that they import."""
    for module in ("wave_lang", "wave_lang.kernel", "wave_lang.kernel.wave", "wave_lang.kernel.wave.cache"):
        monkeypatch.setitem(sys.modules, module, MagicMock())
    for name in ("decode_attention", "extend_attention"):
        monkeypatch.setitem(sys.modules, f"sglang.srt.layers.attention.wave_ops.{name}", MagicMock())
    settings = {
        "get_parallel": SimpleNamespace(tp_rank=0, attn_tp_size=1, attn_dcp_size=1, dcp_enabled=False),
        "get_spec": SimpleNamespace(
            speculative_num_draft_tokens=4,
            speculative_num_steps=1,
            speculative_eagle_topk=1,
            speculative_algorithm=None,
        ),
        "get_exec": MagicMock(),
        "get_schedule": SimpleNamespace(page_size=1),
    }
    for module in (wave_backend, aiter_backend):
        for name, value in settings.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, lambda value=value: value)
    monkeypatch.setattr(wave_backend, "get_device_core_count", lambda _: 1)


def model_runner(pool) -> MagicMock:
    runner = MagicMock()
    runner.device = "cpu"
    runner.token_to_kv_pool = pool
    runner.req_to_token_pool.size = 4
    runner.model_config = MagicMock(num_attention_heads=4, head_dim=HEAD_DIM, context_len=32, dtype=torch.float32)
    runner.model_config.get_num_kv_heads.return_value = 2
    return runner


@pytest.mark.parametrize("pool", [StagePool, stage_of_a_uniform_model])
def test_wave_on_a_later_stage(pool, context):
    backend = wave_backend.WaveAttnBackend(model_runner(pool()), skip_prefill=True)
    assert backend.v_head_dim == VALUE_HEAD_DIM


@pytest.mark.parametrize("pool", [StagePool, stage_of_a_uniform_model])
def test_aiter_on_a_later_stage(pool, context):
    backend = aiter_backend.AiterAttnBackend.__new__(aiter_backend.AiterAttnBackend)
    # What follows the sizes needs AMD's library; they are settled by then.
    backend._resolve_swa_kv_pool = MagicMock(side_effect=StopIteration)
    with pytest.raises(StopIteration):
        backend.__init__(model_runner(pool()), skip_prefill=True)
    assert backend.v_head_dim == VALUE_HEAD_DIM


def test_a_pool_of_mixed_layers_answers_for_itself():
    pool = SimpleNamespace(get_v_head_dim=lambda: 7, start_layer=0, get_value_buffer=None)
    assert value_head_dim(pool) == 7


@pytest.mark.parametrize("start_layer", [0, 4])
def test_every_stage_gets_the_value_of_a_single_stage(start_layer):
    pool = StagePool()
    pool.start_layer = start_layer
    assert value_head_dim(pool) == VALUE_HEAD_DIM


def test_the_pin_has_the_fix_for_triton_and_the_patch_knows_it(upstream_wheel):
    patch = load_patch("start-layer-triton")
    assert not applicable([patch], read_pin().version)
    with ZipFile(upstream_wheel) as archive:
        sources = {file: SourceFile(file, archive.read(file)) for file in patch.files}
    assert patch.landed and all(sign.holds(sources[sign.file]) for sign in patch.landed)


def test_without_the_patch_both_backends_ask_for_layer_0(trees):
    tests = [f"{__file__}::test_{name}_on_a_later_stage[StagePool]" for name in ("wave", "aiter")]
    failing = trees.failing_without(PATCH, *tests)
    assert len(failing) == 2
    assert all("layer 0 is not on this stage" in reason for reason in failing.values())
