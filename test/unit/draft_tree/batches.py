"""Batches of requests with sampling parameters, as the scheduler would hand them to a forward; no server, no model."""

from array import array
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import torch

from sglang.srt.layers.sampler import Sampler
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.runtime_context import get_context, get_parallel
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

EOS = 2


@contextmanager
def published(**server_args):
    """Publishes server arguments and a one-rank layout for the duration; PyTorch's sampling backend by default."""
    with ExitStack() as stack:
        fields = {"sampling_backend": "pytorch", **server_args}
        stack.enter_context(get_context().override_server_args(**fields))
        stack.enter_context(get_parallel().override(tp_group=SimpleNamespace(device_group=None, world_size=1)))
        yield


def plain_sampler() -> Sampler:
    """Upstream's sampler; only inside `published`."""
    return Sampler()


def request(prompt: list[int] = (1,), output: list[int] = (), custom_logit_processor: str | None = None, **sampling):
    """One request: what upstream reads of it for sampling."""
    parameters = SamplingParams(**{"max_new_tokens": 64, **sampling})
    parameters.normalize(SimpleNamespace(encode=lambda text, **_: [0]))
    return SimpleNamespace(
        rid="r",
        origin_input_ids=array("q", prompt),
        output_ids=array("q", output),
        sampling_params=parameters,
        custom_logit_processor=custom_logit_processor,
        return_sampling_mask=False,
        sampling_logprobs_mode=None,
        eos_token_ids={EOS},
        tokenizer=SimpleNamespace(additional_stop_token_ids=None, eos_token_id=EOS),
    )


class Batch(SimpleNamespace):
    """What the seams read of a ScheduleBatch."""

    def batch_size(self) -> int:
        return len(self.reqs)


def batch(
    requests, mode: ForwardMode = ForwardMode.EXTEND, pool=None, rows=None, algorithm="DFLASH", **fields
) -> Batch:
    """A batch of `requests` that uses the `rows` of the request table of `pool`; no sampling information yet."""
    return Batch(
        reqs=list(requests),
        device="cpu",
        forward_mode=mode,
        req_to_token_pool=pool,
        req_pool_indices=None if rows is None else torch.tensor(rows),
        spec_algorithm=SpeculativeAlgorithm.from_string(algorithm),
        enable_overlap=False,
        **fields,
    )


def sampling_info(requests, vocab_size: int, **choices) -> SamplingBatchInfo:
    """The scheduler's information on a new batch of `requests`; only inside `published`."""
    new = batch(requests, **choices)
    info = SamplingBatchInfo.from_schedule_batch(new, vocab_size)
    info.keep_alive = new  # upstream's penalizers hold the batch weakly
    return info


def request_table(rows: int = 8) -> SimpleNamespace:
    """A pool of `rows` request rows, hashable and weakly referable as upstream's is."""
    return type("Pool", (), {"req_to_token": torch.zeros(rows, 4, dtype=torch.int32)})()
