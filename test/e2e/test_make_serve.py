"""The launcher behind ``make serve``: it answers, tells what it did, and leaves nothing behind however it ends."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest
import requests

from sglang.bundled_pair.server_process import find_free_port, require_free_port

PATIENCE_SECONDS = 240


class Launcher:
    """One ``python -m sglang.bundled_pair serve``, leading a process group as a shell would make it."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sglang.bundled_pair", "serve", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.seen = []

    @property
    def text(self):
        return "".join(self.lines)

    def wait_for(self, words):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while words not in self.text:
            assert self.process.poll() is None and time.monotonic() < deadline, f"{words!r} not in:\n{self.text}"
            time.sleep(0.1)
        self.seen = psutil.Process(self.process.pid).children(recursive=True)

    def finish(self):
        status = self.process.wait(timeout=PATIENCE_SECONDS)
        self._reader.join(timeout=10)
        return status

    def living_children(self, seconds=30):
        return psutil.wait_procs(self.seen, timeout=seconds)[1]

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)


@pytest.fixture
def launch():
    launchers = []

    def start(*arguments):
        launchers.append(Launcher(*arguments))
        return launchers[-1]

    yield start
    for launcher in launchers:
        for process in launcher.seen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        launcher.process.kill()
        launcher.process.wait()


@pytest.fixture
def tiny_arguments(tiny_pair, tmp_path):
    pair = tiny_pair()
    return ["--model", pair.target, "--draft", pair.draft, "--cache", tmp_path, "--max-total-tokens", 2048]


def test_the_bundled_pair_answers_and_ctrl_c_leaves_no_process(launch, bundled_pair):
    port = find_free_port()
    launcher = launch("--port", port, "--max-total-tokens", 4096)
    launcher.wait_for("serving the OpenAI API")

    speed = re.search(r"speed: +([\d.]+) tok/s \((\d+) tokens", launcher.text)
    assert float(speed.group(1)) > 0 and int(speed.group(2)) > 5
    accept_length = float(re.search(r"accept length: ([\d.]+)", launcher.text).group(1))
    assert 1.0 <= accept_length <= 8.0
    assert re.search(r"answer: +\w", launcher.text)
    assert str(bundled_pair.target) in launcher.text
    info = requests.get(f"http://127.0.0.1:{port}/server_info", timeout=60).json()
    assert info["max_total_tokens"] == 4096  # flags that are not the launcher's reach the server
    assert info["speculative_algorithm"] == "DFLASH"
    assert len(launcher.seen) >= 3  # the server, its scheduler, its detokenizer

    os.killpg(launcher.process.pid, signal.SIGINT)  # as a terminal does

    assert launcher.finish() == 0
    assert "SIGINT: stopped, no process is left" in launcher.text
    assert launcher.living_children() == []
    require_free_port("127.0.0.1", port)


def test_sigterm_while_the_server_starts_leaves_no_process(launch, tiny_arguments):
    launcher = launch("--port", find_free_port(), *tiny_arguments)
    launcher.wait_for("waiting until it is healthy")
    launcher.process.send_signal(signal.SIGTERM)
    assert launcher.finish() == 0
    assert launcher.living_children() == []


def test_a_killed_launcher_takes_the_server_with_it(launch, tiny_arguments):
    launcher = launch("--port", find_free_port(), *tiny_arguments)
    launcher.wait_for("serving the OpenAI API")
    launcher.process.kill()
    launcher.finish()
    assert launcher.living_children(seconds=60) == []


def test_a_port_in_use_is_one_message_before_any_work(launch):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        launcher = launch("--port", port)
        assert launcher.finish() == 1
    assert re.search(
        rf"^error: port {port} on 127.0.0.1 cannot be used: .*PORT= with make", launcher.text, re.MULTILINE
    )
    assert "preparing" not in launcher.text
    assert "Traceback" not in launcher.text


def test_a_server_that_dies_at_start_up_is_explained_by_its_log(launch, tiny_pair, tmp_path):
    absent = tmp_path / "absent-draft"
    launcher = launch(
        "--port", find_free_port(), "--model", tiny_pair().target, "--draft", absent, "--cache", tmp_path
    )  # fmt: skip
    assert launcher.finish() == 1
    assert "error: the server ended with status" in launcher.text
    assert str(absent) in launcher.text.split("last lines of", 1)[1]
    assert re.search(r"the whole log is in .*server-\d+\.log", launcher.text)


def test_a_server_that_is_late_is_ended_and_explained(launch, tiny_arguments):
    launcher = launch("--port", find_free_port(), "--startup-seconds", 3, *tiny_arguments)
    launcher.wait_for("waiting until it is healthy")
    assert launcher.finish() == 1
    assert "error: the server was not healthy after 3 s" in launcher.text
    assert launcher.living_children() == []


def test_another_target_without_its_draft_is_refused(launch, tiny_pair):
    launcher = launch("--port", find_free_port(), "--model", tiny_pair().target)
    assert launcher.finish() == 1
    assert "name its draft with --draft" in launcher.text
