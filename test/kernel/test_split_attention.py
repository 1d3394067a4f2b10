"""Split attention of verifies: the reference by hand and against torch's, the kernel against the reference."""

import pytest
import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from sglang.kernels.draft_tree.verify_attention import Mask, NewRows, Prefix, verify_attention

from .split_attention import compare_verify_attention, verify_inputs


def attend(new: NewRows, prefix: Prefix, mask: Mask, scale: float, logit_cap: float = 0.0) -> torch.Tensor:
    out = torch.full((*new.queries.shape[:2], new.values.shape[-1]), 77.0)
    verify_attention(out, new, prefix, mask, scale, logit_cap, backend="torch")
    return out


def test_a_node_sees_the_prefix_and_its_ancestors_by_hand():
    """Queries are 0, so that each row is the mean of the values that it sees: a prefix of 10, and 1, 2 and 4."""
    new = NewRows(
        torch.zeros(3, 1, 2), torch.ones(3, 1, 2), torch.tensor([[[1.0]], [[2.0]], [[4.0]]]), torch.tensor([0, 3]), 3
    )
    prefix = Prefix(torch.ones(4, 1, 2), torch.tensor([[[0.0]], [[0.0]], [[10.0]], [[0.0]]]), torch.tensor([2]),
                    torch.tensor([0, 1]))  # fmt: skip
    # Both children of the root see it and themselves; the columns of the prefix are not read.
    cells = torch.tensor([[0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 0, 1]], dtype=torch.uint8).flatten()
    tree = attend(new, prefix, Mask("tree", cells, torch.tensor([0, 12])), 1.0)
    assert tree.flatten().tolist() == pytest.approx([11 / 2, 13 / 3, 15 / 3])
    assert attend(new, prefix, Mask("earlier"), 1.0).flatten().tolist() == pytest.approx([11 / 2, 13 / 3, 17 / 4])
    assert attend(new, prefix, Mask("all"), 1.0).flatten().tolist() == pytest.approx([17 / 4] * 3)


@pytest.mark.parametrize("visible", ["all", "earlier", "tree"])
def test_the_reference_is_attention_over_prefix_and_new_rows(visible):
    lens, rows = [5, 70, 1], [6, 6, 6]
    new, prefix, mask = verify_inputs(lens, rows, (4, 2), (16, 16), visible)
    found = attend(new, prefix, mask, 0.3)
    before = 0
    for request, length in enumerate(lens):
        slots, span = prefix.slots[before : before + length], slice(6 * request, 6 * request + 6)
        before += length
        keys = torch.cat([prefix.keys[slots] * prefix.key_scale, new.keys[span]]).repeat_interleave(2, 1)
        values = torch.cat([prefix.values[slots] * prefix.value_scale, new.values[span]]).repeat_interleave(2, 1)
        seen = torch.ones(6, 6, dtype=torch.bool)
        if visible == "earlier":
            seen = seen.tril()
        if visible == "tree":
            seen = mask.cells[mask.start[request] : mask.start[request + 1]].view(6, -1)[:, length:]
        expected = scaled_dot_product_attention(
            *(rows.transpose(0, 1) for rows in (new.queries[span], keys, values)),
            attn_mask=pad(seen, (length, 0), value=True),
            scale=0.3,
        )
        torch.testing.assert_close(found[span], expected.transpose(0, 1), rtol=0, atol=1e-5)


def test_logits_are_capped():
    new = NewRows(torch.full((1, 1, 1), 9.0), torch.zeros(1, 1, 1), torch.zeros(1, 1, 1), torch.tensor([0, 1]), 1)
    prefix = Prefix(torch.ones(1, 1, 1), torch.ones(1, 1, 1), torch.tensor([0]), torch.tensor([0, 1]))
    share = 1 / (1 + torch.exp(-2 * torch.tanh(torch.tensor(4.5))))  # of the prefix: logits 2 tanh(9 / 2) and 0
    assert attend(new, prefix, Mask("all"), 1.0, 2.0).item() == pytest.approx(share.item())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("visible", ["all", "earlier", "tree"])
@pytest.mark.parametrize("heads, dims", [((32, 8), (128, 128)), ((9, 3), (64, 64)), ((16, 1), (576, 512)),
                                         ((16, 2), (256, 256)), ((4, 4), (24, 24))])  # fmt: skip
@pytest.mark.parametrize("rows", [1, 8, 33, 256])
def test_kernel_agrees_with_the_reference(heads, dims, visible, dtype, rows):
    if dtype == torch.float32 and dims[0] > 128:
        pytest.skip("such heads stay with upstream's kernel")
    compare_verify_attention("cuda", [0, 1, 700, 129], [rows] * 4, heads, dims, visible, dtype=dtype)


@pytest.mark.gpu
def test_kernel_reads_pools_of_eight_bits():
    for heads, dims in (((32, 8), (128, 128)), ((16, 1), (576, 512))):
        compare_verify_attention(
            "cuda", [0, 700], [33, 33], heads, dims, "tree", dtype=torch.bfloat16, pool_dtype=torch.float8_e4m3fn
        )


@pytest.mark.gpu
def test_kernel_agrees_where_the_prefix_is_not_split():
    compare_verify_attention("cuda", [300] * 64, [8] * 64, (32, 8), (128, 128), "tree", dtype=torch.bfloat16)
