"""A configuration's server: started here and ended with its block, or attached to by URL."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from sglang.bundled_pair.server_process import ServerError, ServerProcess, find_free_port

from .config import BUNDLED, Configuration, Flag, SweepConfig, SweepError

HOST = "127.0.0.1"
FORCED_ACCEPT_LENGTH = "SGLANG_SIMULATE_ACC_LEN"
_LONGEST_REASON = 400
_ERROR = re.compile(r"\b(\w*Error|\w*Exception|error)\b:")


@dataclass(frozen=True)
class Served:
    """A server that answers; ``process`` is None where it was attached to."""

    url: str
    info: dict[str, Any]  # /server_info
    process: ServerProcess | None

    @property
    def verify_width(self) -> int | None:
        """Tokens that one round verifies per request, the root included; None without speculation."""
        if not self.info.get("speculative_algorithm"):
            return None
        return self.info.get("speculative_num_draft_tokens")


@contextmanager
def serve(config: SweepConfig, configuration: Configuration, log: Path) -> Iterator[Served]:
    """Yields a healthy server. Raises SweepError, in one line, where there is none or it does not do as it was told."""
    with start(config, configuration, log) as process:
        yield wait(config, configuration, process, log)


@contextmanager
def start(config: SweepConfig, configuration: Configuration, log: Path) -> Iterator[ServerProcess | None]:
    """Yields a server that loads, None where one is attached to. Raises SweepError where none can be started."""
    if configuration.url:
        yield None
        return
    port = config.port or find_free_port()
    try:
        process = ServerProcess(
            command(config, configuration, port),
            host=HOST,
            port=port,
            log_path=log,
            env={**os.environ, **environment(config, configuration)},
            end_with_parent=True,
        )
    except (ServerError, OSError) as error:
        raise SweepError(f"{configuration.name}: {error}") from None
    try:
        yield process
    finally:
        process.stop(grace=5)


def wait(config: SweepConfig, configuration: Configuration, process: ServerProcess | None, log: Path) -> Served:
    """Returns the server that ``start`` gave once it is healthy. Raises SweepError if it ends or is too slow."""
    if process is None:
        return checked(configuration, Served(configuration.url.rstrip("/"), server_info(configuration.url), None))
    try:
        process.wait_until_healthy(config.startup_seconds)
    except ServerError as error:
        raise SweepError(f"{str(error).splitlines()[0]}: {reason_in(log)}") from None
    return checked(configuration, Served(process.base_url, server_info(process.base_url), process))


def command(config: SweepConfig, configuration: Configuration, port: int) -> list[str]:
    """Returns the server's command line."""
    model, draft = model_and_draft(config)
    flags: dict[str, Flag] = {"random-seed": config.seed, **config.flags, **configuration.flags}
    if configuration.speculates and draft is not None:
        flags.setdefault("speculative-draft-model-path", draft)
    if config.has_shape:
        flags.setdefault("load-format", "dummy")
    if config.together:
        flags.setdefault("sleep-on-idle", True)
    fixed = ["--model-path", model, "--host", HOST, "--port", str(port)]
    return [
        interpreter(configuration),
        "-m",
        "sglang.launch_server",
        *fixed,
        *(text for flag in flags.items() for text in _spell(*flag)),
    ]


def interpreter(configuration: Configuration) -> str:
    """Returns the Python that serves ``configuration``. Raises SweepError if it is not there."""
    if configuration.python is None:
        return sys.executable
    found = shutil.which(os.path.expandvars(os.path.expanduser(configuration.python)))
    if found is None:
        raise SweepError(
            f"{configuration.name}: there is no interpreter {configuration.python}; "
            "name one whose sglang is to be measured, or set the variable in it"
        )
    return found


def environment(config: SweepConfig, configuration: Configuration) -> dict[str, str]:
    """Returns the variables that the server gets besides this process's own."""
    variables = {**config.env, **configuration.env}
    if configuration.force_accept_length is not None:
        variables[FORCED_ACCEPT_LENGTH] = str(configuration.force_accept_length)
    return variables


def model_and_draft(config: SweepConfig) -> tuple[str, str | None]:
    """Returns the names or folders of target and draft, the bundled ones made where they are asked for."""
    if config.has_shape:
        from sglang.bundled_pair.prepare import default_cache

        from .shapes import shape_pair

        target, draft = shape_pair(config.model, default_cache() / "shapes")
        return target, config.draft or draft
    if BUNDLED not in (config.model, config.draft):
        return config.model, config.draft
    from sglang.bundled_pair import prepare_pair
    from sglang.bundled_pair.errors import PairError

    try:
        pair = prepare_pair()
    except PairError as error:
        raise SweepError(f"the bundled pair cannot be made: {error}") from None
    model = str(pair.target) if config.model == BUNDLED else config.model
    return model, str(pair.draft) if config.draft == BUNDLED else config.draft


def reason_in(log: Path) -> str:
    """Returns the last line of ``log`` that names an error, else its last line, cut to a length for reading."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)]
    return (errors or lines or ["its log is empty"])[-1][:_LONGEST_REASON] + f" (log: {log.parent.name}/{log.name})"


def checked(configuration: Configuration, served: Served) -> Served:
    """Returns ``served``. Raises SweepError if it verifies another number of tokens than the tree budget asks for."""
    budget = configuration.tree_budget
    if budget and served.verify_width != budget + 1:
        raise SweepError(
            f"a tree budget of {budget} was asked for and the server verifies {served.verify_width} tokens a round, "
            "not one more than the budget: its log says why"
        )
    return served


def server_info(url: str) -> dict[str, Any]:
    """Returns what the server at ``url`` says of itself. Raises SweepError if none answers."""
    try:
        response = requests.get(f"{url.rstrip('/')}/server_info", timeout=30)
        response.raise_for_status()
        return response.json()
    except requests.RequestException as error:
        raise SweepError(
            f"no server answers at {url}: {type(error).__name__}; start it, or leave the key url out"
        ) from None


def _spell(name: str, value: Flag) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}"] if value else []
    values = value if isinstance(value, list) else [value]
    return [f"--{name}", *map(str, values)]
