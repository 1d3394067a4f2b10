"""Starts servers for tests, on a free port, and talks to them; several tests can share one server."""

import os
import shlex
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from sglang.bundled_pair.server_process import ServerError, ServerProcess, find_free_port

from .gpu import gpu_environment, gpu_flags

STARTUP_SECONDS = 300
# Flags that every test server gets besides its own, and in their place where they are the same.
EXTRA_FLAGS = "SGLANG_TEST_SERVER_FLAGS"
REQUEST_SECONDS = 300


@dataclass(frozen=True)
class Server:
    """A running server; every call is one HTTP request."""

    process: ServerProcess

    @property
    def url(self) -> str:
        """``http://host:port`` without a path."""
        return self.process.base_url

    @property
    def log(self) -> str:
        """Everything that the server has printed until now."""
        return self.process.log_path.read_text(errors="replace")

    def post(self, path: str, body: dict[str, Any], **options: Any) -> requests.Response:
        """Returns the response whatever its status; a request that ends the server is the test's to find."""
        return requests.post(f"{self.url}{path}", json=body, timeout=REQUEST_SECONDS, **options)

    def get(self, path: str) -> dict[str, Any]:
        """Returns the JSON answer; raises on a status of 400 or more."""
        return _answer(requests.get(f"{self.url}{path}", timeout=REQUEST_SECONDS), self)

    def generate(
        self,
        *,
        text: Any = None,
        input_ids: Any = None,
        max_new_tokens: int = 16,
        sampling: dict[str, Any] | None = None,
        **body: Any,
    ) -> Any:
        """One native ``/generate`` request, greedy unless ``sampling`` says otherwise.

        ``text`` or ``input_ids`` is one prompt or a list of them; a list returns a list. Each answer has
        ``output_ids``, ``text`` and ``meta_info``. Fields of ``body`` (``return_logprob``, ...) are sent as they are.
        """
        prompt = {"text": text} if input_ids is None else {"input_ids": input_ids}
        parameters = {"temperature": 0.0, "max_new_tokens": max_new_tokens, **(sampling or {})}
        return _answer(self.post("/generate", {**prompt, "sampling_params": parameters, **body}), self)

    def generate_concurrently(self, requests_: list[dict[str, Any]]) -> list[Any]:
        """Sends each dict as the arguments of ``generate`` from a thread of its own; answers keep the given order."""
        with ThreadPoolExecutor(max_workers=len(requests_)) as pool:
            return list(pool.map(lambda arguments: self.generate(**arguments), requests_))

    def chat(self, content: str, *, max_tokens: int = 16, **body: Any) -> dict[str, Any]:
        """One OpenAI chat completion with ``content`` as the user's message; returns the whole answer."""
        message = {"role": "user", "content": content}
        request = {"model": "default", "messages": [message], "max_tokens": max_tokens, "temperature": 0.0, **body}
        return _answer(self.post("/v1/chat/completions", request), self)

    def flush_cache(self) -> None:
        """Empties the radix cache; the server must be idle."""
        requests.post(f"{self.url}/flush_cache", timeout=REQUEST_SECONDS).raise_for_status()


def accept_length(meta_info: dict[str, Any]) -> float:
    """Tokens committed per verify step, the bonus token counted, of one request's ``meta_info``."""
    return meta_info["completion_tokens"] / meta_info["spec_verify_ct"]


@contextmanager
def launch(
    model: Path | str,
    draft: Path | str | None = None,
    *,
    env: dict[str, str] | None = None,
    startup_seconds: float = STARTUP_SECONDS,
    **flags: Any,
) -> Iterator[Server]:
    """Starts a server and yields it healthy; ends it, and every process it started, on leaving.

    With ``draft`` it runs ``--speculative-algorithm DFLASH``. Each of ``flags`` becomes ``--its-name value``; True
    gives the bare flag, None and False leave it out, a list gives several values. ``env`` is added to this process's
    environment: ``{"PYTHONPATH": tree}`` serves another build. Raises ServerError, with the end of the log, when the
    server does not come up.
    """
    port = find_free_port()
    command = [sys.executable, "-m", "sglang.launch_server", *_arguments(model, draft, port, flags)]
    with tempfile.TemporaryDirectory(prefix="sglang-test-server-") as folder:
        process = ServerProcess(
            command,
            host="127.0.0.1",
            port=port,
            log_path=Path(folder) / "server.log",
            env={**os.environ, **gpu_environment(flags), **(env or {})},
            end_with_parent=True,  # a test run that is killed gets to no finally block
        )
        try:
            process.wait_until_healthy(startup_seconds)
            yield Server(process)
        finally:
            process.stop(grace=1)  # the orderly end polls every five seconds, and nothing here depends on it


@contextmanager
def launch_on_two_nodes(
    model: Path | str, draft: Path | str | None = None, *, env: dict[str, str] | None = None, **flags: Any
) -> Iterator[tuple[Server, ServerProcess]]:
    """``launch`` by two launchers, as on two machines, over loopback: the server, and the launcher of node 1."""
    nodes = {"nnodes": 2, "dist_init_addr": f"127.0.0.1:{find_free_port()}"}
    port = find_free_port()
    arguments = _arguments(model, draft, port, {**flags, **nodes, "node_rank": 1})
    with tempfile.TemporaryDirectory(prefix="sglang-test-node-") as folder:
        node = ServerProcess(
            [sys.executable, "-m", "sglang.launch_server", *arguments],
            host="127.0.0.1",
            port=port,
            log_path=Path(folder) / "node.log",
            env={**os.environ, **gpu_environment(flags), **(env or {})},
            end_with_parent=True,
        )
        try:
            with launch(model, draft, env=env, **flags, **nodes, node_rank=0) as server:
                yield server, node
        except ServerError as error:  # the reason may be the other node's
            raise ServerError(f"{error}\nend of node 1's log:\n{node.log_tail()}") from None
        finally:
            node.stop(grace=1)


class SharedServers:
    """Servers kept between tests: the same arguments give the same server, until ``limit`` others were asked for."""

    def __init__(self, limit: int = 2) -> None:
        self._limit = limit
        self._alive: OrderedDict[str, tuple[Any, Server]] = OrderedDict()
        self._lock = threading.Lock()  # clients in threads must not start a server each

    def get(self, model: Path | str, draft: Path | str | None = None, **options: Any) -> Server:
        """Returns a healthy server for exactly these arguments of ``launch``; never stop it yourself."""
        key = repr((str(model), str(draft), sorted(options.items())))
        with self._lock:
            if key in self._alive and not self._alive[key][1].process.is_running():
                self._close(key)
            if key not in self._alive:
                while len(self._alive) >= self._limit:
                    self._close(next(iter(self._alive)))
                context = launch(model, draft, **options)
                self._alive[key] = (context, context.__enter__())
            self._alive.move_to_end(key)
            return self._alive[key][1]

    def close(self) -> None:
        """Ends every server that still runs."""
        for key in list(self._alive):
            self._close(key)

    def _close(self, key: str) -> None:
        context, _ = self._alive.pop(key)
        context.__exit__(None, None, None)


def _arguments(model: Path | str, draft: Path | str | None, port: int, flags: dict[str, Any]) -> list[str]:
    arguments = ["--model-path", str(model), "--host", "127.0.0.1", "--port", str(port)]
    if draft is not None:
        arguments += ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", str(draft)]
    for name, value in {"max_total_tokens": 8192, "random_seed": 1, **gpu_flags(model, draft, flags), **flags}.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or value is False:
            continue
        if value is True:
            arguments.append(flag)
        elif isinstance(value, (list, tuple)):
            arguments += [flag, *map(str, value)]
        else:
            arguments += [flag, str(value)]
    return arguments + shlex.split(os.environ.get(EXTRA_FLAGS, ""))


def _answer(response: requests.Response, server: Server) -> Any:
    if response.status_code >= 400:
        raise AssertionError(
            f"{response.request.method} {response.url} answered {response.status_code}: {response.text[:2000]}\n"
            f"end of the server's log:\n{server.process.log_tail()}"
        )
    return response.json()
