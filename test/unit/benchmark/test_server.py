"""What is started, and the one line for each way in which a server is not to be had."""

import json
import socket
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from benchmark.sweep.config import SweepConfig, SweepError
from benchmark.sweep.server import Served, checked, command, environment, reason_in, serve


def config(flags: dict | None = None, top: dict | None = None, **configuration) -> SweepConfig:
    return SweepConfig.model_validate({
        "name": "s", "model": "target", "draft": "draft", "workloads": [{"name": "chat", "prompts": "chat"}],
        "concurrency": [1], "configurations": [{"name": "c", "flags": flags or {}, **configuration}], **(top or {}),
    })  # fmt: skip


def test_command_has_the_draft_where_it_speculates() -> None:
    swept = config({"speculative-algorithm": "DFLASH", "page-size": 16, "trust-remote-code": True, "x": False})
    words = command(swept, swept.configurations[0], 4000)
    assert words[:3] == [sys.executable, "-m", "sglang.launch_server"]
    assert words[3:9] == ["--model-path", "target", "--host", "127.0.0.1", "--port", "4000"]
    assert words[9:] == [
        "--random-seed", "1", "--speculative-algorithm", "DFLASH", "--page-size", "16", "--trust-remote-code",
        "--speculative-draft-model-path", "draft",
    ]  # fmt: skip
    plain = config({"page-size": 4}, {"flags": {"page-size": 16, "cuda-graph-bs": [1, 2]}})
    words = command(plain, plain.configurations[0], 4000)
    assert words[9:] == ["--random-seed", "1", "--page-size", "4", "--cuda-graph-bs", "1", "2"]


def test_a_shape_is_served_with_random_weights_its_own_draft_and_a_tokenizer(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    swept = config({"speculative-algorithm": "DFLASH"}, {"model": "shape:tiny-moe:3", "draft": None})
    words = command(swept, swept.configurations[0], 4000)
    target, draft = (Path(words[words.index(flag) + 1]) for flag in ("--model-path", "--speculative-draft-model-path"))
    assert words[words.index("--load-format") + 1] == "dummy"
    shape = json.loads((target / "config.json").read_text())
    assert shape["num_hidden_layers"] == json.loads((draft / "config.json").read_text())["num_target_layers"] == 3
    tokenizer = AutoTokenizer.from_pretrained(target)
    assert len(tokenizer) == shape["vocab_size"] and tokenizer.eos_token_id == shape["eos_token_id"]
    assert tokenizer.encode(tokenizer.decode([7, 300, 7]), add_special_tokens=False) == [7, 300, 7]


@pytest.mark.parametrize(
    "model, message", [("shape:qwen9", "there is no such shape; there are qwen3-8b"), ("shape:tiny:99", "has 3 to 4 l")]
)
def test_a_shape_that_is_none_is_one_line(model, message) -> None:
    swept = config({}, {"model": model})
    with pytest.raises(SweepError, match=message):
        command(swept, swept.configurations[0], 4000)


def test_forced_accept_length_is_the_release_s_own_variable() -> None:
    swept = config({"speculative-algorithm": "DFLASH"}, {"env": {"A": "1", "B": "1"}}, env={"B": "2"},
                   force_accept_length=2.5)  # fmt: skip
    expected = {"A": "1", "B": "2", "SGLANG_SIMULATE_ACC_LEN": "2.5"}
    assert environment(swept, swept.configurations[0]) == expected


def assert_refused(swept: SweepConfig, folder: Path, message: str) -> None:
    with pytest.raises(SweepError) as caught, serve(swept, swept.configurations[0], folder / "server.log"):
        pass
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert_refused(config(top={"port": port}), tmp_path, f"port {port} on 127.0.0.1 cannot be used")


def test_absent_interpreter_is_one_line(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    assert_refused(config(python="$NO_SUCH_VARIABLE"), tmp_path, "there is no interpreter $NO_SUCH_VARIABLE")


def test_server_that_ends_at_start_gives_its_last_error(tmp_path: Path) -> None:
    failing = tmp_path / "python"
    failing.write_text(
        "#!/bin/sh\necho loading\necho 'LaunchError: --page-size 3: it must be even'\necho bye\nexit 1\n"
    )
    failing.chmod(0o755)
    reason = "the server ended with status 1 at start-up: LaunchError: --page-size 3: it must be even"
    assert_refused(config(python=str(failing)), tmp_path, reason)


def test_url_without_a_server_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert_refused(config(url=f"http://127.0.0.1:{port}"), tmp_path, "no server answers at http://127.0.0.1:")


def test_tree_that_is_served_as_a_chain_is_refused() -> None:
    tree = config({"speculative-algorithm": "DFLASH", "speculative-dflash-tree-budget": 16}).configurations[0]
    chain = Served("url", {"speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 8}, None)
    with pytest.raises(SweepError, match="a tree budget of 16 was asked for and the server verifies 8 tokens"):
        checked(tree, chain)
    wide = Served("url", {"speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 17}, None)
    assert checked(tree, wide).verify_width == 17


def test_reason_is_the_last_error_or_the_last_line(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("ValueError: first\nRuntimeError: second\nexiting\n\n")
    assert reason_in(log).startswith("RuntimeError: second (log:")
    log.write_text("starting\nkilled\n")
    assert reason_in(log).startswith("killed (log:")
    log.write_text("")
    assert reason_in(log).startswith("its log is empty")
