"""The offline evaluator's rounds are the rounds that the server counts, request by request."""

from pathlib import Path

import pytest
import torch

from benchmark.draft_training import checkpoints, evaluate
from benchmark.draft_training.accept import chain_matches, replay_rounds
from benchmark.draft_training.batches import Batch
from benchmark.draft_training.draft import DraftConfig, DraftModel
from benchmark.draft_training.target import Target
from benchmark.draft_training.train import propose
from harness.plain_and_dflash import prompts
from harness.server import launch
from harness.tiny_tokenizer import EOS_ID, MASK_ID

NEW_TOKENS = 48
BLOCK_SIZE = 4
PROMPTS = prompts(6, seed=1)


@pytest.fixture(scope="module")
def target(tiny_pair) -> Target:
    return Target(tiny_pair().target, (0, 2), torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def draft(tiny_pair, target: Target, tmp_path_factory) -> Path:
    """A draft that knows the beginnings of the continuations by heart and the rest badly, so that rounds differ."""
    config = checkpoints.draft_json(tiny_pair().target, layers=2, block_size=BLOCK_SIZE, mask_token=MASK_ID)
    config["dflash_config"]["target_layer_ids"] = [0, 2]
    config["dtype"] = "float32"
    model = DraftModel(DraftConfig.from_json(config))
    model.initialize(0, *target.last_layers(2))
    texts = [prompt + rest for prompt, rest in zip(PROMPTS, continuations(target), strict=True)]
    width = min(len(text) for text in texts)
    tokens = torch.tensor([text[:width] for text in texts])
    starts = torch.tensor([len(prompt) for prompt in PROMPTS])[:, None]
    anchors = (starts + torch.arange(8)).clamp(max=width - BLOCK_SIZE)
    batch = Batch(tokens, anchors, torch.ones_like(anchors, dtype=torch.bool), torch.full((6,), width))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(60):
        hidden, _, labels, _ = propose(model, target, batch)
        loss = torch.nn.functional.cross_entropy((hidden @ target.head.T).flatten(0, 2), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    folder = tmp_path_factory.mktemp("draft")
    checkpoints.write_draft(folder, model.state_dict(), config)
    return folder


def continuations(target: Target) -> list[list[int]]:
    return evaluate.continue_greedily(target, PROMPTS, NEW_TOKENS, EOS_ID, rows=6)


def test_replayed_rounds_are_the_served_ones(tiny_pair, target, draft):
    with launch(tiny_pair().target, draft, dtype="float32", max_running_requests=6) as server:
        answers = server.generate_concurrently(
            [{"input_ids": prompt, "max_new_tokens": NEW_TOKENS} for prompt in PROMPTS]
        )
    model, _ = checkpoints.read_draft(draft)
    replayed = []
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        candidates = evaluate.candidates_everywhere(model, target, prompt, answer["output_ids"])
        replayed.append(
            replay_rounds(answer["output_ids"], lambda i, rest, known=candidates: chain_matches(known[i], rest))[1]
        )
    served = [answer["meta_info"]["spec_verify_ct"] for answer in answers]
    assert replayed == served
    emitted = sum(len(answer["output_ids"]) - 1 for answer in answers)
    assert emitted / sum(served) > 1.15, "too few accepted tokens to tell rounds apart"
    assert [answer["output_ids"] for answer in answers] == continuations(target)
