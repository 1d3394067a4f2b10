"""Attention over upstream's pool for sliding-window layers, where such a layer keeps its own, smaller set of slots."""

from types import SimpleNamespace

import pytest
import torch

from harness.device import on_the_cpu_platform
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.platforms.cpu_reference.attention import CpuReferenceAttention
from sglang.srt.platforms.cpu_reference.kv_pool import CpuReferenceMHAPool

pytestmark = on_the_cpu_platform

HEADS, DIM, WINDOW, BLOCK = 2, 4, 8, 4
SLOTS, WINDOWED_SLOTS = 128, 40
FULL_LAYER, WINDOWED_LAYER = 0, 1
POISON = 1e4  # of every slot that no test has written: one look at it and the result is far off


@pytest.fixture
def pool():
    pool = SWAKVPool(
        size=SLOTS, size_swa=WINDOWED_SLOTS, page_size=1, dtype=torch.float32, head_num=HEADS, head_dim=DIM,
        swa_attention_layer_ids=[WINDOWED_LAYER], full_attention_layer_ids=[FULL_LAYER], device="cpu",
        token_to_kv_pool_class=CpuReferenceMHAPool,
    )  # fmt: skip
    for layer in (FULL_LAYER, WINDOWED_LAYER):
        pool.get_key_buffer(layer).fill_(POISON)
        pool.get_value_buffer(layer).fill_(POISON)
    return pool


def attend(pool, context: int, layer_id: int, attention: AttentionType) -> tuple[torch.Tensor, torch.Tensor]:
    """A verify-shaped forward of BLOCK rows behind ``context`` cached tokens; returns it and a dense reference.

    The windowed layer has slots for the last WINDOW positions and the block alone, as after upstream freed the rest.
    """
    generator = torch.Generator().manual_seed(context)
    length = context + BLOCK
    slots = torch.randperm(SLOTS - 1, generator=generator)[:length] + 1
    kept = torch.arange(max(0, context - WINDOW), length)
    mapping = torch.zeros(SLOTS + 1, dtype=torch.int64)  # a freed slot maps to the padding slot 0
    mapping[slots[kept]] = torch.randperm(WINDOWED_SLOTS - 1, generator=generator)[: len(kept)] + 1
    pool.register_mapping(mapping)

    keys = torch.randn(length, HEADS, DIM, generator=generator)
    values = torch.randn(length, HEADS, DIM, generator=generator)
    windowed = layer_id == WINDOWED_LAYER
    cached = kept[kept < context] if windowed else torch.arange(context)
    cached_slots = mapping[slots[cached]] if windowed else slots[cached]
    pool.get_key_buffer(layer_id)[cached_slots] = keys[cached]
    pool.get_value_buffer(layer_id)[cached_slots] = values[cached]

    table = slots.to(torch.int32)[None]
    runner = SimpleNamespace(req_to_token_pool=SimpleNamespace(req_to_token=table), token_to_kv_pool=pool)
    layer = SimpleNamespace(
        layer_id=layer_id, tp_q_head_num=HEADS, qk_head_dim=DIM, v_head_dim=DIM, scaling=DIM**-0.5, logit_cap=0.0,
        sliding_window_size=WINDOW if windowed else -1, attn_type=attention, is_cross_attention=False,
    )  # fmt: skip
    batch = SimpleNamespace(
        forward_mode=ForwardMode.TARGET_VERIFY, out_cache_loc=slots[context:], req_pool_indices=torch.tensor([0]),
        positions=torch.arange(context, length), seq_lens=torch.tensor([context]),
        spec_info=SimpleNamespace(num_tokens_per_req=BLOCK),
    )  # fmt: skip
    query = torch.randn(BLOCK, HEADS, DIM, generator=generator)
    backend = CpuReferenceAttention(runner)
    backend.init_forward_metadata(batch)
    out = backend.forward_extend(query.flatten(1), keys[context:], values[context:], layer, batch)

    two_way = attention == AttentionType.ENCODER_ONLY
    expected = torch.empty(BLOCK, HEADS, DIM)
    for row in range(BLOCK):
        position = context + row
        oldest = max(0, position - WINDOW) if windowed else 0
        seen = list(range(oldest, position + 1))
        if two_way:
            seen = [*range(oldest, context), *range(context, length)]
        scores = torch.einsum("khd,hd->hk", keys[seen], query[row]) * DIM**-0.5
        expected[row] = torch.einsum("hk,khd->hd", scores.softmax(dim=1), values[seen])
    return out, expected.flatten(1)


@pytest.mark.parametrize("context", [1, 4, WINDOW - 1, WINDOW, WINDOW + 1, 16, 33, 64])
@pytest.mark.parametrize("layer_id", [FULL_LAYER, WINDOWED_LAYER], ids=["full layer", "windowed layer"])
@pytest.mark.parametrize("attention", [AttentionType.DECODER, AttentionType.ENCODER_ONLY], ids=["chain", "draft block"])
def test_every_layer_type_equals_dense_attention_at_every_length_r13(pool, context, layer_id, attention):
    """The window of a draft block bounds its look at the context; inside the block it is two-way and un-windowed."""
    out, expected = attend(pool, context, layer_id, attention)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)


def test_a_windowed_layer_writes_to_its_own_slots_alone(pool):
    attend(pool, 20, WINDOWED_LAYER, AttentionType.DECODER)
    assert (pool.get_key_buffer(FULL_LAYER) == POISON).all()
    written = (pool.get_key_buffer(WINDOWED_LAYER) != POISON).all(dim=(1, 2))
    assert int(written.sum()) == WINDOW + BLOCK and not written[0]
