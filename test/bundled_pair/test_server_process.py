"""A server process is watched, reported on and ended with everything that it started, shown on a small HTTP server."""

import random
import socket
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from sglang.bundled_pair.server_process import ServerError, ServerProcess, find_free_port, require_free_port

FAKE_SERVER = textwrap.dedent(
    """
    import http.server, signal, subprocess, sys, time
    port, status, mode = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    print("fake server says hello", flush=True)
    if mode == "die":
        print("cannot load weights", flush=True)
        print("modules " * 1000, flush=True)
        print('INFO: 127.0.0.1:5 - "GET /health HTTP/1.1" 503\\n' * 100, flush=True)
        sys.exit(3)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    sleeper = [sys.executable, "-c", deaf]
    middle = f"import subprocess; subprocess.Popen({sleeper!r})"
    if mode == "orphan":
        subprocess.run([sys.executable, "-c", middle], check=True)  # its child stays behind without a parent
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(sleeper)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()

        def log_message(self, *args):
            pass

    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
    """
)


@pytest.fixture
def start(tmp_path):
    started = []

    def start_fake(status=200, mode="plain"):
        port = find_free_port()
        process = ServerProcess(
            [sys.executable, "-c", FAKE_SERVER, str(port), str(status), mode],
            host="127.0.0.1", port=port, log_path=tmp_path / "logs" / "server.log",
        )  # fmt: skip
        started.append(process)
        return process

    yield start_fake
    for process in started:
        process.stop(grace=1)


def session_members(process):
    return [member for member in process._members() if member.is_running()]


def test_healthy_server_reports_seconds_and_stops(start):
    server = start()
    waits = []
    assert server.wait_until_healthy(20, waits.append) < 20
    assert waits == sorted(waits)
    assert "fake server says hello" in server.log_tail()
    server.stop()
    assert not server.is_running()


@pytest.mark.parametrize("mode", ["orphan", "stubborn"])
def test_stop_leaves_no_process_even_if_children_ignore_sigterm_or_lost_their_parent(start, mode):
    server = start(mode=mode)
    server.wait_until_healthy(20)
    members = session_members(server)
    assert len(members) == 2

    server.stop(grace=1)

    assert not any(member.is_running() and member.status() != psutil.STATUS_ZOMBIE for member in members)


def test_death_at_start_up_tells_the_status_and_shows_the_log(start):
    server = start(mode="die")
    with pytest.raises(ServerError) as failure:
        server.wait_until_healthy(20)
    assert "ended with status 3" in str(failure.value)
    assert "cannot load weights" in str(failure.value) and len(str(failure.value)) < 1000
    assert str(server.log_path) in str(failure.value)


def test_never_healthy_is_an_error_after_the_time_limit(start):
    server = start(status=503)
    with pytest.raises(ServerError, match="not healthy after 1 s"):
        server.wait_until_healthy(1)


def test_a_port_in_use_is_named_with_the_way_out(tmp_path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ServerError, match=rf"port {port} on 127.0.0.1 cannot be used: .*choose another port"):
            ServerProcess([sys.executable, "-c", ""], host="127.0.0.1", port=port, log_path=tmp_path / "log")
    require_free_port("127.0.0.1", port)


def test_a_free_port_is_none_that_a_connection_may_be_given_before_the_server_binds_it():
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = {find_free_port() for _ in range(20)}
    assert max(ports) < lowest and len(ports) > 1


def test_a_taken_port_is_passed_over(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port, other = taken.getsockname()[1], find_free_port()
        monkeypatch.setattr(random.SystemRandom, "sample", lambda self, population, k: [port, other])
        assert find_free_port() == other
        monkeypatch.setattr(random.SystemRandom, "sample", lambda self, population, k: [port])
        with pytest.raises(ServerError, match="ports between 20000 and 31999 on 127.0.0.1 is free: name one"):
            find_free_port()
