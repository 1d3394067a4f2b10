"""Texts in a few fixed lengths on the device, and random anchors in them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .texts import Text

LENGTH_STEP = 64
ANCHOR_STRIDE = 4


@dataclass(frozen=True)
class Batch:
    """``tokens`` int64 [rows, length], padded at the right; ``anchors`` int64 [rows, anchors], ascending.

    ``anchor_valid`` bool [rows, anchors] is false where a row has too few positions; ``ends`` int64 [rows] are the
    lengths without padding.
    """

    tokens: Tensor
    anchors: Tensor
    anchor_valid: Tensor
    ends: Tensor

    def labels(self, block_size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Returns positions, tokens (int64) and validity (bool) of depths 1..B-1, each [rows, anchors, B-1]."""
        positions = self.anchors[..., None] + torch.arange(1, block_size, device=self.anchors.device)
        valid = self.anchor_valid[..., None] & (positions < self.ends[:, None, None])
        positions = positions.clamp(max=self.tokens.shape[1] - 1)
        return positions, gather_positions(self.tokens, positions), valid


def gather_positions(values: Tensor, positions: Tensor) -> Tensor:
    """Picks ``values`` [rows, length, ...] at ``positions`` [rows, ...]; returns [rows, *positions, ...]."""
    rows = torch.arange(len(values), device=values.device).reshape(-1, *[1] * (positions.dim() - 1))
    return values[rows, positions]


class Batches:
    """Random batches of about ``tokens_per_batch`` tokens each; batch number n is the same for the same seed."""

    def __init__(self, texts: list[Text], tokens_per_batch: int, longest: int, device: torch.device, seed: int) -> None:
        self.device, self.seed, self.tokens_per_batch = device, seed, tokens_per_batch
        self.buckets = {
            length: _on_device(part, length, device) for length, part in sorted(_by_length(texts, longest).items())
        }
        if not self.buckets:
            raise ValueError("no texts on one side of the split: generate more, or change the share held out")
        sizes = np.array([length * len(ends) for length, (_, _, ends) in self.buckets.items()], dtype=np.float64)
        self.shares = sizes / sizes.sum()

    def batch(self, number: int) -> Batch:
        """Returns batch ``number``: rows of one length and, in their answers, a quarter as many anchors."""
        rng = np.random.default_rng((self.seed, number))
        length = list(self.buckets)[rng.choice(len(self.buckets), p=self.shares)]
        tokens, starts, ends = self.buckets[length]
        rows = torch.from_numpy(rng.integers(len(ends), size=max(1, self.tokens_per_batch // length))).to(self.device)
        generator = torch.Generator(self.device).manual_seed(int(rng.integers(2**62)))
        anchors, valid = random_anchors(starts[rows], ends[rows], length, length // ANCHOR_STRIDE, generator)
        return Batch(tokens[rows].long(), anchors, valid, ends[rows])


def random_anchors(
    starts: Tensor, ends: Tensor, length: int, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Returns ``count`` distinct positions per row in [start, end - 2], ascending, int64, and which of them are real.

    The first answer token is the first anchor of a served request, the last token has nothing after it to propose.
    """
    positions = torch.arange(length, device=starts.device)
    allowed = (positions >= starts[:, None]) & (positions < ends[:, None] - 1)
    keys = torch.rand(allowed.shape, generator=generator, device=starts.device).masked_fill(~allowed, -1.0)
    anchors = keys.topk(count, dim=1).indices.sort(dim=1).values
    return anchors, allowed.gather(1, anchors)


def _by_length(texts: list[Text], longest: int) -> dict[int, list[Text]]:
    buckets: dict[int, list[Text]] = {}
    for text in texts:
        length = min(len(text.tokens), longest)
        if length >= text.prompt_length + 2:
            buckets.setdefault(-(-length // LENGTH_STEP) * LENGTH_STEP, []).append(text)
    return buckets


def _on_device(texts: list[Text], length: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    tokens = np.zeros((len(texts), length), dtype=np.int32)
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text.tokens)] = text.tokens[:length]
    starts = np.array([text.prompt_length for text in texts])
    ends = np.array([min(len(text.tokens), length) for text in texts])
    return tuple(torch.from_numpy(array).to(device) for array in (tokens, starts, ends))
