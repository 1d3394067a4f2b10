"""A processor that fails for one request: its rows stay as they were, everybody else's are processed."""

import weakref
from types import SimpleNamespace

import pytest
import torch

from sglang.srt.layers.sampler import apply_custom_logit_processor
from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor
from sglang.srt.sampling.processor_failures import remember_requests
from sglang.srt.sampling.sampling_batch_info import ProcessorEntry, SamplingBatchInfo

VOCAB = 4


class Request:
    def __init__(self, rid):
        self.rid, self.to_finish = rid, None

    def finished(self):
        return False


class Add(CustomLogitProcessor):
    """Adds each row's number, in place, up to the first row without one, where it fails."""

    def __call__(self, logits, custom_param_list):
        for row, params in zip(logits, custom_param_list, strict=True):
            row += params["number"]
        return logits


class Drop(CustomLogitProcessor):
    def __call__(self, logits, custom_param_list):
        return logits[:0]


def information(rows: int, processed: list[int], params, processor) -> SamplingBatchInfo:
    entry = ProcessorEntry(processor=processor, rows=processed, indices=torch.tensor(processed))
    values = torch.ones(rows, 1)
    return SamplingBatchInfo(
        temperatures=values,
        top_ps=values,
        top_ks=values,
        min_ps=values,
        is_all_greedy=True,
        is_any_greedy=True,
        need_top_p_sampling=False,
        need_top_k_sampling=False,
        need_min_p_sampling=False,
        vocab_size=VOCAB,
        has_custom_logit_processor=True,
        custom_logit_processor={0: entry},
        custom_params=params,
    )


def run(requests, info) -> torch.Tensor:
    remember_requests(SimpleNamespace(sampling_info=info, reqs=requests))
    logits = torch.zeros(len(info), VOCAB)
    apply_custom_logit_processor(logits, info)
    return logits[:, 0]


def ended(requests) -> list[bool]:
    return [request.to_finish is not None for request in requests]


def test_one_of_three_requests_fails_without_parameters():
    requests = [Request(name) for name in "abcd"]
    logits = run(requests, information(4, [0, 2, 3], [{"number": 5}, None, None, {"number": 7}], Add()))
    assert logits.tolist() == [5, 0, 0, 7]
    assert ended(requests) == [False, False, True, False]
    reason = requests[2].to_finish
    assert reason.status_code == 400
    assert reason.message == "custom_logit_processor Add failed: TypeError: 'NoneType' object is not subscriptable"


def test_every_node_of_a_failing_request_stays_as_it_was():
    """Two requests with three nodes each; the first one's parameters are wrong at its last node alone."""
    requests = [Request("a"), Request("b")]
    params = [{"number": 1}, {"number": 1}, {}, {"number": 2}, {"number": 3}, {"number": 4}]
    logits = run(requests, information(6, list(range(6)), params, Add()))
    assert logits.tolist() == [0, 0, 0, 2, 3, 4]
    assert ended(requests) == [True, False]


def test_a_result_of_another_shape_is_a_failure_that_shows_both():
    requests = [Request("a")]
    assert run(requests, information(1, [0], [{}], Drop())).tolist() == [0]
    assert requests[0].to_finish.message.endswith("must return a tensor of shape [1, 4], its result is of shape [0, 4]")


def test_without_a_known_request_the_failure_is_not_hidden():
    with pytest.raises(TypeError, match="NoneType"):
        apply_custom_logit_processor(torch.zeros(1, VOCAB), information(1, [0], [None], Add()))


def test_requests_are_held_weakly():
    info = information(1, [0], [{}], Add())
    request = Request("a")
    remember_requests(SimpleNamespace(sampling_info=info, reqs=[request]))
    assert info.requests == [weakref.ref(request)]
    del request
    assert info.requests[0]() is None
