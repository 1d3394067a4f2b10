"""One cell under upstream's load generator, ``sglang.benchmark.serving``, which sends, times and limits the requests.

It keeps of a request what its own report needs. The rest, such as rounds and token ids, stands in each answer: every
request has an id of ours, and the generator's JSON reader is watched for the last part of each answer.
"""

import functools
import sys
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from .prompts import Prompt

BACKEND = "sglang"
DATASET = "custom"


class LoadError(RuntimeError):
    """The load generator gave up; the message is one line."""


@dataclass(frozen=True)
class RequestRecord:
    """What happened to one request. Times in seconds, on one clock."""

    prompt: int  # index into the prompts of the workload
    start: float
    latency: float
    ttft: float  # 0 where no text came
    itl: list[float] = field(repr=False)  # one per token behind the first; a block's time is spread over its tokens
    error: str
    output_ids: list[int] = field(repr=False)
    meta: dict[str, Any] = field(repr=False)  # the server's meta_info at the end


@dataclass(frozen=True)
class Load:
    """What one cell sends."""

    url: str
    model: str  # folder or hub name, for the generator's tokenizer
    prompts: Sequence[Prompt]
    requests: int
    concurrency: int
    sampling_params: dict[str, Any]
    seed: int


def run(load: Load, log: Path) -> list[RequestRecord]:
    """Warms the server up, empties its prefix cache, sends the requests and returns one record each, in order.

    The generator's own output goes to ``log``. Raises LoadError if it ends early.
    """
    from sglang.benchmark import serving
    from sglang.benchmark.datasets import DATASET_MAPPING

    prefix = uuid.uuid4().hex[:8]
    watch = _Watch(serving.orjson, prefix)
    send = _recording(serving.ASYNC_REQUEST_FUNCS[BACKEND], watch)
    log.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        file = stack.enter_context(log.open("a"))
        stack.enter_context(redirect_stdout(file))
        stack.enter_context(redirect_stderr(file))
        stack.enter_context(patch.object(serving, "orjson", watch))
        stack.enter_context(patch.dict(serving.ASYNC_REQUEST_FUNCS, {BACKEND: send}))
        stack.enter_context(patch.dict(DATASET_MAPPING, {DATASET: _dataset(load, prefix)}))
        stack.enter_context(patch.object(sys, "argv", ["serving", *_arguments(load, log.with_suffix(".jsonl"))]))
        try:
            serving.cli_main()
        except SystemExit as stop:
            raise LoadError(f"the load generator ended with status {stop.code}; its output is in {log}") from None
        except Exception as error:
            message = (str(error).strip() or type(error).__name__).splitlines()[-1]
            raise LoadError(f"the load generator failed: {message}; its output is in {log}") from error
    return watch.records(len(load.prompts))


def _arguments(load: Load, output: Path) -> list[str]:
    parameters = load.sampling_params
    flags = {
        "backend": BACKEND,
        "base-url": load.url,
        "model": load.model,
        "tokenizer": load.model,
        "dataset-name": DATASET,
        "num-prompts": load.requests,
        "ready-check-timeout-sec": 0,
        "max-concurrency": load.concurrency,
        "warmup-requests": load.concurrency,
        "seed": load.seed,
        # of the warm-up alone: the requests themselves carry all of theirs
        "temperature": parameters["temperature"],
        "output-file": output,
    }
    bare = ["--flush-cache", "--disable-tqdm", *([] if parameters["ignore_eos"] else ["--disable-ignore-eos"])]
    return [*(text for name, value in flags.items() for text in (f"--{name}", str(value))), *bare]


def _dataset(load: Load, prefix: str) -> Any:
    """A class that the generator loads its requests from, in the place of one of its own."""
    from sglang.benchmark.datasets.common import BaseDataset, DatasetRow

    class Prepared(BaseDataset):
        @classmethod
        def from_args(cls, args: Any) -> "Prepared":
            return cls()

        def load(self, tokenizer: Any, model_id: str | None = None) -> list[DatasetRow]:
            rows = []
            for number in range(load.requests):
                prompt = list(load.prompts[number % len(load.prompts)].input_ids)
                extra = {"rid": f"{prefix}-{number}", "sampling_params": load.sampling_params}
                length = load.sampling_params["max_new_tokens"]
                rows.append(DatasetRow(prompt, len(prompt), length, extra_request_body=extra))
            return rows

    return Prepared


def _recording(send: Any, watch: "_Watch") -> Any:
    @functools.wraps(send)
    async def send_and_record(request_func_input: Any, pbar: Any = None) -> Any:
        output = await send(request_func_input=request_func_input, pbar=pbar)
        if name := request_func_input.extra_request_body.get("rid"):  # a warm-up request has none
            watch.outputs[name] = output
        return output

    return send_and_record


class _Watch:
    """Stands in for the generator's ``orjson`` module and remembers the last part of every answer."""

    def __init__(self, orjson: Any, prefix: str) -> None:
        self._orjson, self._prefix = orjson, prefix
        self._answers: dict[str, dict] = {}
        self.outputs: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._orjson, name)

    def loads(self, data: bytes) -> Any:
        document = self._orjson.loads(data)
        if isinstance(document, dict):
            name = (document.get("meta_info") or {}).get("id", "")
            if name.startswith(self._prefix):
                self._answers[name] = document
        return document

    def records(self, prompts: int) -> list[RequestRecord]:
        return [self._record(name, prompts) for name in sorted(self.outputs, key=_number)]

    def _record(self, name: str, prompts: int) -> RequestRecord:
        output, answer = self.outputs[name], self._answers.get(name, {})
        error = "" if output.success and answer else _last_line(output.error) or "the answer was empty"
        if not error and answer["meta_info"].get("finish_reason") is None:
            error = "the answer ended before the request did"
        return RequestRecord(
            prompt=_number(name) % prompts,
            start=output.start_time,
            latency=output.latency,
            ttft=output.ttft,
            itl=output.itl,
            error=error,
            output_ids=answer.get("output_ids", []),
            meta=answer.get("meta_info", {}),
        )


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""
