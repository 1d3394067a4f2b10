"""The release's Triton attention as it is launched for a GPU that is not here, with CPU tensors."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch

from sglang.kernels.ops.attention import decode_attention, extend_attention

BATCH, WIDTH, SPLITS = 4, 33, 8


@contextmanager
def on_gpu(capability: tuple[int, int]) -> Iterator[None]:
    """The tiles that the release chooses for a GPU of ``capability``."""
    with (
        patch.object(extend_attention, "CUDA_CAPABILITY", capability, create=True),
        patch.object(extend_attention, "_is_cuda", True),
    ):
        yield


def verify(heads: int, kv_heads: int, key: int, value: int) -> None:
    """Attention of a verify over trees: extend with a mask; head sizes ``key`` and ``value``."""
    tokens = BATCH * WIDTH
    rows, indices = torch.zeros(BATCH + 1, dtype=torch.int32), torch.zeros(64, dtype=torch.int64)
    extend_attention.extend_attention_fwd(
        _heads(tokens, heads, key), _heads(tokens, kv_heads, key), _heads(tokens, kv_heads, value),
        _heads(tokens, heads, value), _heads(1024, kv_heads, key), _heads(1024, kv_heads, value), rows, rows, indices,
        torch.zeros(64, dtype=torch.bool), True, indices[: BATCH + 1], WIDTH, 1.0, 1.0,
    )  # fmt: skip


def decode(heads: int, kv_heads: int, key: int, value: int) -> None:
    """Attention of plain decoding over a latent cache, its first stage: the reduction behind it is small."""
    with patch.object(decode_attention, "_decode_softmax_reducev_fwd", lambda *arguments, **keywords: None):
        decode_attention.decode_attention_fwd(
            _heads(BATCH, heads, key), _heads(1024, kv_heads, key), _heads(1024, kv_heads, value),
            _heads(BATCH, heads, value), torch.zeros(BATCH + 1, dtype=torch.int32), torch.zeros(64, dtype=torch.int64),
            torch.zeros(BATCH, heads, SPLITS, value), torch.zeros(BATCH, heads, SPLITS),
            torch.ones(BATCH, dtype=torch.int32), SPLITS, 0.1, 1.0, 1.0, has_mla=True,
        )  # fmt: skip


def _heads(tokens: int, heads: int, size: int) -> torch.Tensor:
    return torch.zeros(tokens, heads, size, dtype=torch.bfloat16)
