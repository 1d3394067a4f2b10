"""A server as a child process: started in its own session, watched until healthy, and ended with all its children."""

import ctypes
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import requests

LOG_TAIL_LINES = 60  # a native crash prints the stack of every thread behind its reason
_LONGEST_LINE = 400
_HEALTH_CHECK = '"GET /health'  # as uvicorn logs each of those that wait for the server
_POLL_SECONDS = 0.25
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)
_NOT_HANDED_OUT = range(20_000, 32_000)  # Linux hands out 32768 and above unless told otherwise


class ServerError(RuntimeError):
    """The server could not be started, died, or did not become healthy in time; the message has the end of its log."""


class ServerProcess:
    """One ``python -m sglang.launch_server`` (or any HTTP server with ``/health``) and everything that it starts.

    The child leads a session of its own: Ctrl-C in the terminal reaches only the parent, which then ends the child in
    order, and a grandchild whose parent has died is still found by its session.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        host: str,
        port: int,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        end_with_parent: bool = False,
    ) -> None:
        """Starts ``command`` at once; its standard output and error go to ``log_path``.

        With ``end_with_parent`` Linux sends the server SIGTERM when the calling thread ends for whatever reason, also
        when this process is killed. Raises ServerError where ``port`` on ``host`` is taken already.
        """
        require_free_port(host, port)
        self.command = list(command)
        self.base_url = f"http://{_reachable(host)}:{port}"
        self.log_path = log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                self.command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=None if env is None else dict(env), start_new_session=True,
                preexec_fn=_end_with_parent if end_with_parent else None,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Process id of the server, which is also the id of its session."""
        return self._process.pid

    def is_running(self) -> bool:
        """True while the server's first process lives."""
        return self._process.poll() is None

    def wait_until_healthy(self, timeout: float, on_wait: Callable[[float], None] = lambda seconds: None) -> float:
        """Returns the seconds (since this call) after which ``/health`` answered 200.

        ``on_wait`` is called about four times a second with the seconds waited. Raises ServerError if the server ends
        first or ``timeout`` seconds pass; the server is not stopped here.
        """
        started = time.monotonic()
        while True:
            waited = time.monotonic() - started
            if not self.is_running():
                status = self._process.returncode
                raise ServerError(self._with_log(f"the server ended with status {status} at start-up"))
            if self._answers_health():
                return waited
            if waited > timeout:
                raise ServerError(self._with_log(f"the server was not healthy after {timeout:.0f} s"))
            on_wait(waited)
            time.sleep(_POLL_SECONDS)

    def stop(self, grace: float = 10.0) -> None:
        """Ends the server and all its descendants: SIGTERM first, SIGKILL to whatever lives ``grace`` seconds later."""
        members = self._members()
        for process in members:
            if process.pid == self.pid:
                _signal(process, signal.SIGTERM)
        _, alive = psutil.wait_procs(members, timeout=grace if self.is_running() else 0)
        for process in {*alive, *self._members()}:
            _signal(process, signal.SIGKILL)
        psutil.wait_procs(alive, timeout=grace)
        self._process.wait()

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Returns the last ``lines`` lines of the log, cut to a readable length, without health checks."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        told = [line[:_LONGEST_LINE] for line in text.splitlines() if _HEALTH_CHECK not in line]
        return "\n".join(told[-lines:])

    def _answers_health(self) -> bool:
        try:
            return requests.get(f"{self.base_url}/health", timeout=5).status_code == 200
        except requests.RequestException:
            return False

    def _with_log(self, message: str) -> str:
        return f"{message}\nlast lines of {self.log_path}:\n{self.log_tail()}\nthe whole log is in {self.log_path}"

    def _members(self) -> list[psutil.Process]:
        """Every live process of the server: its descendants, and those that lost their parent but share the session."""
        members: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            with suppress(OSError, psutil.Error):
                if os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    members[process.pid] = process
        with suppress(psutil.NoSuchProcess):
            leader = psutil.Process(self.pid)
            members |= {process.pid: process for process in [leader, *leader.children(recursive=True)]}
        return list(members.values())


class StopRequested(BaseException):
    """Raised in the main thread by Ctrl-C, SIGTERM or SIGHUP, so that ``finally`` blocks run; not an Exception."""


def raise_on_stop_signals() -> None:
    """Makes SIGINT, SIGTERM and SIGHUP raise StopRequested once; later ones are ignored while the server is ended."""

    def request_stop(number: int, frame: object) -> None:
        for stop_signal in _STOP_SIGNALS:
            signal.signal(stop_signal, signal.SIG_IGN)
        raise StopRequested(signal.Signals(number).name)

    for stop_signal in _STOP_SIGNALS:
        signal.signal(stop_signal, request_stop)


def require_free_port(host: str, port: int) -> None:
    """Raises ServerError if something listens on ``port`` of ``host`` or it cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ServerError(
                f"port {port} on {host} cannot be used: {error.strerror}. "
                f"Stop the program that holds it, or choose another port (--port, or PORT= with make)"
            ) from None


def find_free_port(host: str = "127.0.0.1") -> int:
    """Returns a TCP port that was free a moment ago. Raises ServerError where none of many tried is.

    A server binds its port once its weights are loaded. Until then any connection could be given a port that the system
    hands out by itself, so it is none of those.
    """
    for port in random.SystemRandom().sample(_NOT_HANDED_OUT, k=100):
        with suppress(OSError), socket.socket() as probe:
            probe.bind((host, port))
            return port
    raise ServerError(
        f"none of 100 ports between {_NOT_HANDED_OUT[0]} and {_NOT_HANDED_OUT[-1]} on {host} is free: name one"
    )


def _reachable(host: str) -> str:
    if host in ("0.0.0.0", "::", ""):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal(process: psutil.Process, number: int) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)
