"""A cached folder is complete or absent: shown by killing, racing, damaging and failing the work that fills it."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from sglang.bundled_pair.cached_folder import MARKER, cached_folder, find_damage

# Writes one file, says so, waits for the go-ahead file, writes the second; counts its runs beside the folder.
WORKER = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    from sglang.bundled_pair.cached_folder import cached_folder
    folder, go_ahead, started = map(Path, sys.argv[1:4])

    def build(partial):
        (partial / "first").write_text("1")
        with started.open("a") as log:
            log.write("built\\n")
        while not go_ahead.exists():
            time.sleep(0.02)
        (partial / "second").write_text("2")

    cached_folder(folder, build)
    """
)


@pytest.fixture
def paths(tmp_path):
    return tmp_path / "cache" / "pair", tmp_path / "go", tmp_path / "started"


@pytest.fixture
def start_worker(paths):
    workers = []

    def start():
        workers.append(subprocess.Popen([sys.executable, "-c", WORKER, *map(str, paths)], stderr=subprocess.PIPE))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()
        worker.communicate()


def wait_for(path, seconds=60):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


def names(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def fill(partial):
    (partial / "weights").write_bytes(b"weights")


def test_a_killed_run_leaves_no_folder_and_the_next_run_completes_it(paths, start_worker):
    folder, go_ahead, started = paths
    worker = start_worker()
    wait_for(started)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    assert not folder.exists()

    go_ahead.touch()
    assert start_worker().wait(timeout=60) == 0
    assert names(folder) == [MARKER, "first", "second"]
    assert names(folder.parent) == ["pair"]  # the killed run's partial folder is gone


def test_two_processes_at_once_build_once_and_both_succeed(paths, start_worker):
    folder, go_ahead, started = paths
    first = start_worker()
    wait_for(started)
    second = start_worker()
    message = second.stderr.readline()  # blocks until the second run has met the lock
    assert b"another process is making" in message
    go_ahead.touch()
    assert (first.wait(timeout=60), second.wait(timeout=60)) == (0, 0)
    assert started.read_text() == "built\n"
    assert find_damage(folder) is None


def test_a_failing_build_leaves_nothing(tmp_path):
    def fail(partial):
        fill(partial)
        raise ValueError("no space")

    with pytest.raises(ValueError, match="no space"):
        cached_folder(tmp_path / "pair", fail)
    assert names(tmp_path) == []


def test_a_finished_folder_is_not_built_again(tmp_path):
    cached_folder(tmp_path / "pair", fill)

    def refuse(partial):
        raise AssertionError("built twice")

    assert cached_folder(tmp_path / "pair", refuse) == tmp_path / "pair"


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: (folder / "weights").write_bytes(b"weightz"), "weights has sha256"),
        (lambda folder: (folder / "weights").unlink(), "weights is missing"),
        (lambda folder: (folder / MARKER).unlink(), f"{MARKER} is missing"),
        (lambda folder: (folder / MARKER).write_text("{"), f"{MARKER} is missing or unreadable"),
    ],
)
def test_a_damaged_folder_is_named_and_made_again(tmp_path, capsys, damage, named):
    folder = cached_folder(tmp_path / "pair", fill)
    damage(folder)
    cached_folder(folder, fill)
    assert named in capsys.readouterr().err
    assert (folder / "weights").read_bytes() == b"weights"
    assert find_damage(folder) is None


def test_others_may_read_a_finished_folder(tmp_path):
    def fill_privately(partial):
        fill(partial)
        (partial / "weights").chmod(0o600)

    folder = cached_folder(tmp_path / "pair", fill_privately)
    assert folder.stat().st_mode & 0o777 == 0o755
    assert (folder / "weights").stat().st_mode & 0o777 == 0o644
