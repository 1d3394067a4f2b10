"""Batches: anchors inside answers, labels that end with the text."""

import numpy as np
import torch

from benchmark.draft_training.batches import Batch, Batches
from benchmark.draft_training.texts import Text


def texts() -> list[Text]:
    rng = np.random.default_rng(0)
    return [Text(n, 0, True, int(rng.integers(4, 20)), rng.integers(4, 90, size=length)) for n, length in
            enumerate(rng.integers(30, 200, size=60))]  # fmt: skip


def test_anchors_are_distinct_and_inside_the_answer():
    known = {tuple(text.tokens): text for text in texts()}
    batches = Batches(texts(), tokens_per_batch=512, longest=192, device=torch.device("cpu"), seed=0)
    for number in range(20):
        batch = batches.batch(number)
        for tokens, anchors, valid, end in zip(
            batch.tokens, batch.anchors, batch.anchor_valid, batch.ends, strict=True
        ):
            (text,) = [t for key, t in known.items() if key[: int(end)] == tuple(tokens[: int(end)].tolist())]
            real = anchors[valid].tolist()
            assert len(set(real)) == len(real) > 0
            assert text.prompt_length <= min(real) and max(real) <= end - 2


def test_a_number_gives_the_same_batch_again():
    first, second = (Batches(texts(), 512, 192, torch.device("cpu"), seed=3).batch(7) for _ in range(2))
    assert torch.equal(first.tokens, second.tokens) and torch.equal(first.anchors, second.anchors)


def test_labels_are_the_tokens_after_the_anchor_as_far_as_the_text_goes():
    batch = Batch(torch.tensor([[10, 11, 12, 13, 14, 0]]), torch.tensor([[1, 3]]), torch.tensor([[True, True]]),
                  torch.tensor([5]))  # fmt: skip
    positions, tokens, valid = batch.labels(block_size=4)
    assert positions.tolist() == [[[2, 3, 4], [4, 5, 5]]]
    assert valid.tolist() == [[[True, True, True], [True, False, False]]]
    assert tokens[valid].tolist() == [12, 13, 14, 14]
