"""The server harness turns arguments into flags, shares servers, and never keeps more of them than its limit."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from harness import server as harness_server
from harness.server import SharedServers, accept_length


@pytest.fixture
def launches(monkeypatch):
    """Replaces servers by records of their arguments and of whether they still run."""
    made = []

    @contextmanager
    def fake_launch(model, draft=None, **options):
        process = SimpleNamespace(alive=True, is_running=lambda: process.alive)
        server = SimpleNamespace(model=model, draft=draft, options=options, process=process)
        made.append(server)
        time.sleep(0.01)  # long enough for another thread to ask meanwhile
        yield server
        process.alive = False

    monkeypatch.setattr(harness_server, "launch", fake_launch)
    return made


def test_equal_arguments_share_a_server_and_others_do_not(launches):
    servers = SharedServers(limit=3)
    first = servers.get("model", "draft", page_size=16, env={"A": "1"})
    assert servers.get("model", "draft", env={"A": "1"}, page_size=16) is first
    assert servers.get("model", page_size=16, env={"A": "1"}) is not first
    assert servers.get("model", "draft", page_size=1, env={"A": "1"}) is not first
    assert len(launches) == 3


def test_the_server_unused_for_longest_is_ended_beyond_the_limit(launches):
    servers = SharedServers(limit=2)
    first, second = servers.get("a"), servers.get("b")
    servers.get("a")
    servers.get("c")
    assert (first.process.alive, second.process.alive) == (True, False)
    servers.close()
    assert not any(server.process.alive for server in launches)


def test_clients_in_threads_get_one_server(launches):
    servers = SharedServers()
    with ThreadPoolExecutor(8) as clients:
        got = list(clients.map(lambda _: servers.get("a"), range(8)))
    assert len(launches) == 1 and all(server is got[0] for server in got)


def test_a_server_that_died_is_replaced(launches):
    servers = SharedServers()
    first = servers.get("a")
    first.process.alive = False
    assert servers.get("a") is not first


def test_flags_are_spelled_as_the_server_reads_them(monkeypatch):
    monkeypatch.setenv(harness_server.EXTRA_FLAGS, "--attention-backend 'triton'")
    flags = {"page_size": 16, "skip_tokenizer_init": True, "grammar_backend": None, "disable_radix_cache": False}
    arguments = harness_server._arguments("/m", "/d", 31000, {**flags, "lora_paths": ["x", "y"]})
    assert arguments[:6] == ["--model-path", "/m", "--host", "127.0.0.1", "--port", "31000"]
    assert arguments[6:10] == ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "/d"]
    rest = " ".join(arguments[10:])
    for expected in ("--page-size 16", "--skip-tokenizer-init", "--lora-paths x y"):
        assert expected in rest
    assert rest.endswith("--attention-backend triton")
    assert "grammar" not in rest and "radix" not in rest
    assert "DFLASH" not in harness_server._arguments("/m", None, 1, {})


def test_accept_length_counts_the_bonus_token():
    assert accept_length({"completion_tokens": 7, "spec_verify_ct": 3}) == pytest.approx(7 / 3)
