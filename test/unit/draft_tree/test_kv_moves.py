"""Rows of the accepted path move to the front of a pool exactly as the pool would move them itself."""

import pytest
import torch

from harness.device import DEVICE
from sglang.kernels.draft_tree.kv_compact import accepted_slot_moves
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.speculative.draft_tree.kv_moves import KVMoves, plain_rows

SIZE, LAYERS = 64, 3
NODE_IDS = torch.tensor([[0, 2, 4, -1], [0, 1, 2, 3], [0, -1, -1, -1]])
# Rows that fill a graph have no slots of their own, and a path of whatever their trees are.
FILLED = torch.tensor([[0, 3, 1, -1]])


def keys_and_values(kind=MHATokenToKVPool):
    return kind(
        SIZE, 1, torch.bfloat16, head_num=2, head_dim=8, layer_num=LAYERS, device=DEVICE.type,
        enable_memory_saver=False, enable_kv_cache_copy=DEVICE.type == "cuda",
    )  # fmt: skip


def latent(kind=MLATokenToKVPool):
    return kind(
        SIZE, 1, torch.bfloat16, kv_lora_rank=16, qk_rope_head_dim=8, layer_num=LAYERS, device=DEVICE.type,
        enable_memory_saver=False,
    )  # fmt: skip


def buffers(pool):
    return [*pool.k_buffer, *pool.v_buffer] if isinstance(pool, MHATokenToKVPool) else pool.kv_buffer


def filled(make):
    pool = make()
    torch.manual_seed(0)
    for buffer in buffers(pool):
        buffer.copy_(torch.randn_like(buffer))
    return pool


@pytest.mark.parametrize("make", [keys_and_values, latent])
def test_rows_move_as_the_pool_moves_them(make):
    ours, theirs = filled(make), filled(make)
    if DEVICE.type == "cpu" and make is keys_and_values:
        ours.use_native_move_kv_cache = theirs.use_native_move_kv_cache = True
    torch.manual_seed(1)
    slots = torch.cat((1 + torch.randperm(SIZE - 1)[:15].view(3, 5), torch.zeros(1, 5, dtype=torch.int64)))
    slots, node_ids = slots.to(DEVICE), torch.cat((NODE_IDS, FILLED)).to(DEVICE)
    KVMoves(ours).to_front(slots, node_ids)
    theirs.move_kv_cache(*accepted_slot_moves(slots, node_ids))
    assert all(map(torch.equal, buffers(ours), buffers(theirs)))
    assert not any(map(torch.equal, buffers(ours), buffers(filled(make))))


@pytest.mark.gpu
@pytest.mark.parametrize("make", [keys_and_values, latent])
def test_pools_of_plain_rows_move_them_in_one_launch(make):
    pool = make()
    assert [rows.data_ptr() for rows in plain_rows(pool)] == [rows.data_ptr() for rows in buffers(pool)]


@pytest.mark.parametrize("make, kind", [(keys_and_values, MHATokenToKVPool), (latent, MLATokenToKVPool)])
def test_a_pool_that_may_keep_more_moves_its_rows_itself(make, kind):
    class Other(kind):
        pass

    assert plain_rows(make(Other)) == []
