"""Answers that are read as they come, so that a test can act while a request runs."""

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from .plain_and_dflash import TOKENS
from .server import REQUEST_SECONDS, Server


class Stream:
    """One request whose answer is read as it comes, in a thread."""

    def __init__(self, threads: ThreadPoolExecutor, server: Server, request: dict, **fields) -> None:
        parameters = {"temperature": 0, "max_new_tokens": request.get("max_new_tokens", TOKENS), "ignore_eos": True}
        body = {"input_ids": request["input_ids"], "sampling_params": parameters, "stream": True, **fields}
        self._begun = Event()
        self._closed = Event()
        self._answer = threads.submit(self._read, server, body)

    def _read(self, server: Server, body: dict) -> dict:
        answer = {}
        with server.post("/generate", body, stream=True) as response:
            for line in response.iter_lines():
                if line.startswith(b"data: {"):
                    answer = json.loads(line.removeprefix(b"data: "))
                    self._begun.set()
                if self._closed.is_set():
                    break
        return answer

    def wait_for_a_token(self) -> "Stream":
        assert self._begun.wait(REQUEST_SECONDS), "no token came"
        return self

    def close(self) -> None:
        """Hangs up at the next event."""
        self._closed.set()

    def result(self) -> dict:
        """The last event, which has the whole answer."""
        return self._answer.result()
