"""Split attention of verifies, kernel against reference; `small_cases` is for Triton's interpreter on a CPU."""

import numpy as np
import torch

from sglang.kernels.draft_tree.verify_attention import Mask, NewRows, Prefix, verify_attention

SPARE_SLOTS = 9


def verify_inputs(
    prefix_lens: list[int],
    row_lens: list[int],
    heads: tuple[int, int],
    dims: tuple[int, int],
    visible: str,
    dtype: torch.dtype = torch.float32,
    pool_dtype: torch.dtype | None = None,
) -> tuple[NewRows, Prefix, Mask]:
    """Random inputs. Values are the first columns of keys where they are narrower, as in latent attention."""
    rng = np.random.default_rng([*prefix_lens, *row_lens, *heads, *dims])
    (count, kv_count), (head_dim, value_dim) = heads, dims
    rows, tokens = sum(row_lens), sum(prefix_lens)

    def draw(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.normal(size=shape).astype(np.float32)).to(dtype)

    def offsets(lens: list[int]) -> torch.Tensor:
        return torch.tensor([0, *np.cumsum(lens)])

    keys, pool_keys = draw(rows, kv_count, head_dim), draw(tokens + SPARE_SLOTS, kv_count, head_dim)
    pool_keys = pool_keys.to(pool_dtype or dtype)
    if value_dim < head_dim:
        values, pool_values = keys[..., :value_dim].contiguous(), pool_keys[..., :value_dim]
    else:
        values, pool_values = draw(rows, kv_count, value_dim), draw(tokens + SPARE_SLOTS, kv_count, value_dim)
        pool_values = pool_values.to(pool_dtype or dtype)
    slots = torch.from_numpy(rng.permutation(tokens + SPARE_SLOTS)[:tokens])
    new = NewRows(draw(rows, count, head_dim), keys, values, offsets(row_lens), max(row_lens))
    prefix = Prefix(pool_keys, pool_values, slots, offsets(prefix_lens).to(torch.int32), 0.75, 1.25)
    if visible != "tree":
        return new, prefix, Mask(visible)
    cells = [row * (before + row) for before, row in zip(prefix_lens, row_lens, strict=True)]
    mask = torch.from_numpy(rng.integers(0, 2, sum(cells) + 5)).to(torch.bool)
    return new, prefix, Mask("tree", mask, offsets(cells))


def compare_verify_attention(device: str, *arguments, logit_cap: float = 0.0, **options) -> None:
    """A row of a random mask may see nothing where there is no prefix."""
    inputs = verify_inputs(*arguments, **options)
    new, prefix, mask = inputs
    scale = new.queries.shape[-1] ** -0.5
    expected = torch.full((*new.queries.shape[:2], new.values.shape[-1]), 77.0, dtype=new.queries.dtype)
    found = expected.to(device, copy=True)
    verify_attention(expected, new, prefix, mask, scale, logit_cap, backend="torch")
    new, prefix, mask = (_on(device, group) for group in inputs)
    verify_attention(found, new, prefix, mask, scale, logit_cap, backend="triton")
    # Products of float32 may round to TF32 on a GPU.
    loose = new.queries.dtype != torch.float32 or device != "cpu"
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=2e-2 if loose else 1e-5)


def small_cases() -> None:
    compare_verify_attention("cpu", [5, 70, 1], [6, 6, 6], (4, 2), (16, 16), "tree")
    compare_verify_attention("cpu", [5, 170, 0], [6, 2, 3], (4, 2), (16, 16), "earlier", logit_cap=5.0)
    compare_verify_attention("cpu", [300, 33], [8, 8], (9, 3), (64, 64), "all")
    compare_verify_attention("cpu", [90, 3], [5, 5], (8, 1), (576, 512), "tree")
    compare_verify_attention("cpu", [0, 40], [3, 3], (4, 4), (24, 24), "tree")
    # So many requests and heads that the prefix is not split.
    compare_verify_attention("cpu", list(range(48)), [2] * 48, (16, 8), (16, 16), "tree")


def _on(device: str, group):
    return type(group)(*(value.to(device) if isinstance(value, torch.Tensor) else value for value in group))
