"""Moves of accepted nodes' rows: by hand, against one move at a time, and the kernel against the reference."""

import pytest
import torch

from sglang.kernels.draft_tree.kv_compact import RowMover, accepted_slot_moves, gather_accepted, move_rows

from .parity import compare_gather, compare_move_rows


def test_the_moves_of_the_docstring():
    window = torch.tensor([[70, 71, 72, 73, 74]])
    destination, source = accepted_slot_moves(window, torch.tensor([[0, 2, 4, -1]]))
    assert destination.tolist() == [70, 71, 72, 73]
    assert source.tolist() == [70, 72, 74, 73]


def test_rows_are_read_before_any_is_written():
    """Slot 72 is the source of one move and the destination of another."""
    buffer = torch.arange(80.0)[:, None].repeat(1, 3)
    move_rows([buffer], torch.tensor([70, 71, 72]), torch.tensor([70, 72, 74]))
    assert buffer[70:75, 0].tolist() == [70, 72, 74, 73, 74]


def test_a_mover_moves_the_rows_of_all_its_buffers():
    keys, values = torch.arange(10.0)[:, None], torch.arange(10)[:, None].repeat(1, 4)
    RowMover([keys, values]).to_front(torch.tensor([[1, 5, 3]]), torch.tensor([[2, -1]]))
    assert keys[:4, 0].tolist() == [0, 3, 2, 3]
    assert values[:4, 3].tolist() == [0, 3, 2, 3]


def test_rows_with_gaps_inside_are_refused():
    with pytest.raises(ValueError, match="rows of buffer 0 are not contiguous"):
        RowMover([torch.zeros(4, 2, 6)[:, :, ::2]], backend="triton")


def test_hidden_states_of_the_accepted_nodes_come_to_the_front():
    hidden = torch.arange(10.0).view(2, 5, 1)
    node_ids = torch.tensor([[0, 2, 4, -1], [0, -1, -1, -1]])
    assert gather_accepted(hidden, node_ids, 3).squeeze(-1).tolist() == [[0, 2, 4], [5, 5, 5]]
    assert gather_accepted(hidden, node_ids).shape == (2, 4, 1)


@pytest.mark.gpu
@pytest.mark.parametrize("nodes, depth", [(2, 1), (8, 8), (33, 7), (65, 16), (256, 31)])
@pytest.mark.parametrize("bs", [1, 3, 32])
def test_kernel_agrees_with_the_reference(nodes, depth, bs):
    compare_move_rows("cuda", bs, nodes, depth)


@pytest.mark.gpu
@pytest.mark.parametrize("nodes, depth, row", [(2, 1, (1,)), (33, 8, (1728,)), (256, 31, (3, 7168))])
@pytest.mark.parametrize("bs", [1, 3, 32])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_gather_kernel_agrees_with_the_reference(nodes, depth, row, bs, dtype):
    compare_gather("cuda", bs, nodes, depth, row, dtype)
