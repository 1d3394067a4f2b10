"""The KV pool: built without a kernel, moved by indexing."""

import pytest
import torch

from sglang.srt.platforms.cpu_reference.kv_pool import POOLS

LAYERS, SLOTS = 2, 8


@pytest.fixture
def pool():
    """Slot ``s`` of layer ``l`` holds ``100 * l + s`` in its keys and the negative of that in its values."""
    pool = POOLS["mha"](
        size=SLOTS, page_size=1, dtype=torch.float32, head_num=1, head_dim=2, layer_num=LAYERS, device="cpu",
        enable_memory_saver=False, enable_kv_cache_copy=True,
    )  # fmt: skip
    for layer in range(LAYERS):
        rows = (100.0 * layer + torch.arange(SLOTS + 1))[:, None, None].expand(-1, 1, 2)
        pool.get_key_buffer(layer).copy_(rows)
        pool.get_value_buffer(layer).copy_(-rows)
    return pool


def slots(pool, layer: int) -> list[float]:
    assert torch.equal(pool.get_key_buffer(layer), -pool.get_value_buffer(layer))
    assert torch.equal(pool.get_key_buffer(layer)[:, 0, 0], pool.get_key_buffer(layer)[:, 0, 1])
    return pool.get_key_buffer(layer)[:, 0, 0].tolist()


def test_a_move_reads_every_source_before_it_writes(pool):
    """4 is a source and a target: the accepted path of a tree often overlaps the place that it moves to."""
    pool.move_kv_cache(torch.tensor([3, 4]), torch.tensor([4, 6]))
    assert slots(pool, 0) == [0, 1, 2, 4, 6, 5, 6, 7, 8]
    assert slots(pool, 1) == [100, 101, 102, 104, 106, 105, 106, 107, 108]


def test_a_move_of_nothing_changes_nothing(pool):
    nothing = torch.empty(0, dtype=torch.int64)
    pool.move_kv_cache(nothing, nothing)
    assert slots(pool, 0) == list(range(SLOTS + 1))
