"""A custom logit processor sees its request at every node as plain decoding would show it."""

from array import array

import pytest
import torch

from sglang.kernels.draft_tree.tree_layout import chain_parents
from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor
from sglang.srt.speculative.draft_tree.custom_processors import apply_custom_processors, missing_output
from sglang.srt.speculative.draft_tree.emitted_tokens import EmittedHistory

from . import batches

VOCAB = 32


@pytest.fixture(autouse=True)
def server_arguments():
    with batches.published(enable_custom_logit_processor=True):
        yield


class ForbidEverythingSoFar(CustomLogitProcessor):
    """Forbids each token that the request has, prompt included, and says how many those are."""

    def __call__(self, logits, custom_param_list):
        for row, params in zip(logits, custom_param_list, strict=True):
            seen = [*params["__req__"].origin_input_ids, *params["__req__"].output_ids]
            row[seen] = float("-inf")
            row[0] = len(seen)
        return logits


class OnlyToken(CustomLogitProcessor):
    """Allows one token, named by the request's parameters."""

    def __call__(self, logits, custom_param_list):
        for row, params in zip(logits, custom_param_list, strict=True):
            keep = row[params["token"]].clone()
            row.fill_(float("-inf"))
            row[params["token"]] = keep
        return logits


def request_with(processor, **fields):
    req = batches.request(custom_logit_processor=processor and processor.to_str(), **fields)
    if processor is not None:
        req.sampling_params.custom_params = {**(req.sampling_params.custom_params or {}), "__req__": req}
    return req


def adjusted(requests, tokens, parents, prefix_lens, last, lengths) -> torch.Tensor:
    info = batches.sampling_info(requests, VOCAB)
    info.emitted_history = EmittedHistory(None, torch.tensor(last), torch.tensor(lengths))
    logits = torch.arange(float(VOCAB)).repeat(tokens.numel(), 1)
    apply_custom_processors(logits, tokens, parents, torch.tensor(prefix_lens), info)
    return logits.view(*tokens.shape, VOCAB)


def forbidden(row: torch.Tensor) -> set[int]:
    return set(row.isneginf().nonzero().flatten().tolist())


def test_a_node_shows_the_output_up_to_its_own_token():
    """Overlap: the host knows output 10, the last round emitted 11 and 12 on top; 12 is the root."""
    req = request_with(ForbidEverythingSoFar, prompt=[3, 4], output=[10])
    tokens, parents = torch.tensor([[12, 20, 21, 22]]), torch.tensor([[-1, 0, 0, 2]])
    logits = adjusted([req], tokens, parents, prefix_lens=[4], last=[[11, 12, 0, 0]], lengths=[2])
    base = {3, 4, 10, 11, 12}
    assert [forbidden(row) for row in logits[0]] == [base, base | {20}, base | {21}, base | {21, 22}]
    assert logits[0, :, 0].tolist() == [5, 6, 6, 7]
    assert list(req.output_ids) == [10] and req.output_ids.typecode == "q"


def test_each_request_gets_its_own_processor_parameters_and_none_means_none():
    requests = [
        request_with(OnlyToken, prompt=[1], output=[5], custom_params={"token": 7}),
        request_with(None, prompt=[1], output=[5]),
        request_with(ForbidEverythingSoFar, prompt=[1], output=[5, 6]),
        request_with(OnlyToken, prompt=[1], output=[5], custom_params={"token": 9}),
    ]
    tokens = torch.tensor([[5, 8], [5, 8], [6, 8], [5, 8]])
    logits = adjusted(
        requests, tokens, chain_parents(4, 2, "cpu"), [1, 1, 2, 1], [[5, 0], [5, 0], [6, 0], [5, 0]], [1] * 4
    )
    assert [forbidden(row) for row in logits[0]] == [set(range(VOCAB)) - {7}] * 2
    assert [forbidden(row) for row in logits[1]] == [set()] * 2
    assert [forbidden(row) for row in logits[2]] == [{1, 5, 6}, {1, 5, 6, 8}]
    assert [forbidden(row) for row in logits[3]] == [set(range(VOCAB)) - {9}] * 2


def test_the_other_attributes_of_a_request_are_its_own():
    req = request_with(ForbidEverythingSoFar, prompt=[3], output=[10])
    seen = []

    class Look(CustomLogitProcessor):
        def __call__(self, logits, custom_param_list):
            seen.extend(params["__req__"].rid for params in custom_param_list)
            return logits

    info = batches.sampling_info([req], VOCAB)
    info.emitted_history = EmittedHistory(None, torch.tensor([[10]]), torch.tensor([1]))
    next(iter(info.custom_logit_processor.values())).processor = Look()
    parents = chain_parents(1, 2, "cpu")
    apply_custom_processors(torch.zeros(2, VOCAB), torch.tensor([[10, 4]]), parents, torch.tensor([1]), info)
    assert seen == ["r", "r"]


@pytest.mark.parametrize("known, missing", [([5, 6, 7], []), ([5, 6], [7]), ([5], [6, 7])])
def test_what_the_host_lacks_comes_from_the_last_round(known, missing):
    req = batches.request(prompt=[1, 2], output=known)
    assert missing_output(req, prefix_len=4, last_tokens=[6, 7, 0], last_length=2) == missing


def test_a_gap_that_the_last_round_cannot_fill_is_an_error():
    req = batches.request(prompt=[1, 2])
    with pytest.raises(RuntimeError, match="has emitted 3 tokens, of which the host knows 0; .* accounts for 2"):
        missing_output(req, prefix_len=4, last_tokens=[6, 7, 0], last_length=2)
    assert isinstance(req.output_ids, array)
