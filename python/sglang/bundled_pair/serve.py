"""From nothing to a server that has answered: prepare the pair, start, wait, ask once, keep serving until stopped."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from .errors import PairError, say
from .prepare import default_cache, prepare_pair, prepare_target
from .server_process import ServerError, ServerProcess, StopRequested, raise_on_stop_signals, require_free_port

QUESTION = "Explain in two sentences why the sky is blue."
MAX_ANSWER_TOKENS = 128
_REQUEST_SECONDS = 300
_PROGRESS_SECONDS = 5
_WATCH_SECONDS = 0.5


@dataclass(frozen=True)
class ServeOptions:
    """What to serve and where.

    ``model`` and ``draft`` default to the bundled pair's. ``startup_seconds`` bounds the wait for the first healthy
    answer. ``once`` ends the server after the first chat answer. ``server_arguments`` go to the server as they are.
    """

    model: Path | str | None = None
    draft: Path | str | None = None
    host: str = "127.0.0.1"
    port: int = 30000
    cache: Path | None = None
    gguf: Path | None = None
    startup_seconds: float = 600.0
    once: bool = False
    server_arguments: Sequence[str] = ()


def serve(options: ServeOptions) -> int:
    """Serves until Ctrl-C, SIGTERM or SIGHUP (status 0); PairError and ServerError say why it could not.

    Must run in the main thread: it takes over the three signals.
    """
    raise_on_stop_signals()
    try:
        return _serve(options)
    except StopRequested as stop:
        say(f"{stop}: stopped, no process is left")
        return 0


def build_command(model: Path | str, draft: Path | str, options: ServeOptions) -> list[str]:
    """Returns the server's command line."""
    return [
        sys.executable, "-m", "sglang.launch_server",
        "--model-path", str(model),
        "--speculative-algorithm", "DFLASH",
        "--speculative-draft-model-path", str(draft),
        "--host", options.host,
        "--port", str(options.port),
        *options.server_arguments,
    ]  # fmt: skip


def describe_answer(answer: dict[str, Any], seconds: float) -> str:
    """Returns the text for the terminal of one chat completion (sent with ``return_meta_info``) that took ``seconds``.

    Accept length is completion tokens per verify step and counts the bonus token.
    """
    choice = answer["choices"][0]
    tokens = answer["usage"]["completion_tokens"]
    verify_steps = (choice.get("meta_info") or {}).get("spec_verify_ct")
    accept_length = f"{tokens / verify_steps:.2f}" if verify_steps else "not reported by the server"
    return (
        f"  question:      {QUESTION}\n"
        f"  answer:        {choice['message']['content'].strip()}\n"
        f"  speed:         {tokens / seconds:.1f} tok/s ({tokens} tokens in {seconds:.2f} s, prefill included)\n"
        f"  accept length: {accept_length} (tokens per verify step, bonus token counted)"
    )


def _serve(options: ServeOptions) -> int:
    require_free_port(options.host, options.port)
    model, draft = _choose_pair(options)
    log_path = (options.cache or default_cache()) / "logs" / f"server-{options.port}.log"
    command = build_command(model, draft, options)
    say(f"starting the server: {' '.join(command)}")
    server = ServerProcess(command, host=options.host, port=options.port, log_path=log_path, end_with_parent=True)
    try:
        say(f"waiting until it is healthy; its log is {log_path}")
        seconds = server.wait_until_healthy(options.startup_seconds, _progress(server))
        say(f"healthy after {seconds:.0f} s; sending one chat request")
        print(_ask(server), flush=True)
        if options.once:
            return 0
        say(f"serving the OpenAI API at {server.base_url}/v1 until Ctrl-C")
        while server.is_running():
            time.sleep(_WATCH_SECONDS)
        raise ServerError(f"the server ended by itself\nlast lines of {log_path}:\n{server.log_tail()}")
    finally:
        say("ending the server")
        server.stop()


def _choose_pair(options: ServeOptions) -> tuple[Path | str, Path | str]:
    if options.model is None:
        say("preparing the bundled pair (made once, kept in the cache)")
        if options.draft is None:
            pair = prepare_pair(options.cache, gguf=options.gguf)
            return pair.target, pair.draft
        return prepare_target((options.cache or default_cache()) / "pairs", options.gguf), options.draft
    if options.draft is None:
        raise PairError(
            f"a DFLASH draft is trained for one target, and the bundled one does not fit {options.model}: name its "
            "draft with --draft (DRAFT= with make), or serve without a draft by python -m sglang.launch_server"
        )
    return options.model, options.draft


def _ask(server: ServerProcess) -> str:
    request = {
        "model": "default",
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": MAX_ANSWER_TOKENS,
        "temperature": 0,
        "return_meta_info": True,
    }
    started = time.monotonic()
    try:
        response = requests.post(f"{server.base_url}/v1/chat/completions", json=request, timeout=_REQUEST_SECONDS)
    except requests.RequestException as error:
        raise ServerError(
            f"the first chat request failed: {error}\nlast lines of {server.log_path}:\n{server.log_tail()}"
        ) from error
    if response.status_code != 200:
        raise ServerError(
            f"the first chat request was answered with status {response.status_code}: {response.text[:500]}\n"
            f"the server's log is {server.log_path}"
        )
    return describe_answer(response.json(), time.monotonic() - started)


def _progress(server: ServerProcess) -> Callable[[float], None]:
    """Every five seconds, the time waited and the server's last log record (warnings of libraries are no records)."""
    next_report = float(_PROGRESS_SECONDS)

    def report(waited: float) -> None:
        nonlocal next_report
        if waited >= next_report:
            records = [line for line in server.log_tail().splitlines() if line.startswith("[")]
            say(f"  {waited:4.0f} s  {records[-1][:120] if records else 'loading libraries'}")
            next_report += _PROGRESS_SECONDS

    return report
