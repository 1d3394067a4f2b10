"""Draws of the target at every node: plain decoding's distribution, and with a seed plain decoding's tokens."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from sglang.kernels.draft_tree.accept_walk import walk
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.speculative.draft_tree import target_draw
from sglang.srt.speculative.draft_tree.target_draw import draw_target_tokens

from . import batches

VOCAB = 12
DRAWS = 20_000
SIGNIFICANCE = 1e-6
# A target that knows the last token alone: row = last token, logits of the next one.
TABLE = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(5)) * 1.5
FILTERS = {
    "temperature": dict(temperature=0.7),
    "hot": dict(temperature=1.6),
    "top_k": dict(temperature=1.0, top_k=4),
    "top_p": dict(temperature=1.0, top_p=0.6),
    "min_p": dict(temperature=1.0, min_p=0.15),
    "top_k_and_top_p": dict(temperature=1.1, top_k=5, top_p=0.75),
    "all": dict(temperature=0.9, top_k=6, top_p=0.9, min_p=0.1),
}


@pytest.fixture(autouse=True)
def server_arguments():
    with batches.published():
        yield


def filtered(last_token: int, *, temperature=1.0, top_k=VOCAB, top_p=1.0, min_p=0.0) -> np.ndarray:
    """The distribution to draw from after `last_token`, by the definition of each filter, token by token."""
    logits = TABLE[last_token].double().numpy() / temperature
    probs = np.exp(logits - logits.max())
    probs /= probs.sum()
    kept = np.zeros(VOCAB)
    mass = 0.0
    for rank, token in enumerate(sorted(range(VOCAB), key=lambda token: -probs[token])):
        if rank < top_k and mass <= top_p and probs[token] >= min_p * probs.max():
            kept[token] = probs[token]
        mass += probs[token]
    return kept / kept.sum()


def assert_drawn_from(tokens: torch.Tensor, expected: np.ndarray) -> None:
    observed = np.bincount(tokens.numpy(), minlength=VOCAB)
    assert observed[expected == 0].sum() == 0
    support = expected > 0
    p_value = chisquare(observed[support], expected[support] * len(tokens)).pvalue
    assert p_value > SIGNIFICANCE, f"drawn {observed / len(tokens)}, expected {expected}"


def draw(logits, requests, positions, **choices) -> torch.Tensor:
    info = batches.sampling_info(requests, VOCAB, **choices)
    return draw_target_tokens(batches.plain_sampler(), logits, info, positions)


@pytest.mark.parametrize("name", FILTERS)
def test_emitted_tokens_have_the_filtered_distribution(name):
    """A tree root -> (two guesses) -> (one guess each): every emitted token, whatever was accepted before it."""
    sampling = FILTERS[name]
    torch.manual_seed(1)
    root, first, second, below = 3, *TABLE[3].topk(2).indices.tolist(), 7
    tokens = torch.tensor([root, first, second, below, below]).expand(DRAWS, 5)
    parents = torch.tensor([-1, 0, 0, 1, 2]).expand(DRAWS, 5)
    logits = TABLE[tokens].reshape(-1, VOCAB)
    positions = torch.arange(5).expand(DRAWS, 5)
    info = batches.sampling_info([batches.request(**sampling)] * DRAWS, VOCAB)
    path = walk(tokens, parents, draw_target_tokens(batches.plain_sampler(), logits, info, positions))

    assert_drawn_from(path.tokens[:, 0], filtered(root, **sampling))
    for child in (first, second):
        accepted = path.tokens[path.tokens[:, 0] == child]
        assert len(accepted) > 500
        assert_drawn_from(accepted[:, 1], filtered(child, **sampling))
    assert 1.2 < path.length.float().mean() < 3


@pytest.mark.parametrize("sampling", [dict(top_k=1), dict(top_p=1e-4), dict(temperature=1e-6), dict(temperature=0.0)])
def test_degenerate_settings_are_greedy(sampling):
    logits = TABLE.clone()
    positions = torch.arange(VOCAB)[None]
    companion = [batches.request(temperature=1.5)]  # keeps the batch off the greedy path
    draws = draw(torch.cat([logits, logits]), [batches.request(**sampling)] + companion, positions.expand(2, VOCAB))
    assert draws[0].tolist() == logits.argmax(dim=-1).tolist()


def test_greedy_rows_of_a_mixed_batch_are_the_argmax_also_of_equal_logits():
    torch.manual_seed(2)
    logits = torch.zeros(2 * 50, VOCAB)
    logits[:, [4, 9]] = 3.0
    positions = torch.arange(50).expand(2, 50)
    greedy, sampled = draw(logits, [batches.request(temperature=0.0), batches.request(temperature=1.0)], positions)
    assert greedy.tolist() == [4] * 50
    assert len(set(sampled.tolist())) > 3


@pytest.mark.parametrize("sampling", [dict(temperature=1.0), *FILTERS.values()], ids=["plain", *FILTERS])
def test_a_seed_draws_plain_decodings_token_at_every_node(sampling):
    """Plain decoding draws one row at a time, with the position of the token before it."""
    with batches.published(enable_deterministic_inference=True):
        nodes, seeds = 9, (11, 12, -3)
        requests = [batches.request(sampling_seed=seed, **sampling) for seed in seeds]
        tokens = torch.randint(VOCAB, (len(seeds), nodes), generator=torch.Generator().manual_seed(3))
        positions = torch.tensor([[5], [80], [5]]) + torch.tensor([0, 1, 1, 2, 2, 3, 3, 4, 5])
        draws = draw(TABLE[tokens].reshape(-1, VOCAB), requests, positions)
        sampler = batches.plain_sampler()
        for row, req in enumerate(requests):
            for node in range(nodes):
                info = batches.sampling_info([req], VOCAB)
                output = LogitsProcessorOutput(next_token_logits=TABLE[tokens[row, node]][None].clone())
                plain = sampler(output, info, False, [], [], positions[row, node][None])
                assert plain.item() == draws[row, node].item()
        assert len(set(draws.flatten().tolist())) > 2


def test_the_logits_stay_as_they_are():
    logits = TABLE.clone()
    draw(logits, [batches.request(temperature=0.3, top_p=0.5)], torch.arange(VOCAB)[None])
    assert torch.equal(logits, TABLE)


def test_drawing_in_slices_changes_nothing(monkeypatch):
    with batches.published(enable_deterministic_inference=True):
        requests = [batches.request(sampling_seed=seed, temperature=1.0, top_k=seed) for seed in (1, 5, 8)]
        positions = torch.arange(3 * 4).view(3, 4)
        whole = draw(TABLE, requests, positions)
        monkeypatch.setattr(target_draw, "MAX_LOGITS_PER_SLICE", 5 * VOCAB)
        assert torch.equal(draw(TABLE, requests, positions), whole)
