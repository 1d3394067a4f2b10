"""Fixtures for the whole suite: the tiny pair, servers shared between tests, and the GPU tier."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.server import SharedServers
    from harness.tiny_pair import TinyPair
    from sglang.bundled_pair import BundledPair

# Nothing in the suite may reach for a model on a hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Test files and their servers share the cores: threads that spin at a barrier would hold up each other's.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items and not _has_gpu():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(scope="session")
def pairs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder that the tiny pairs of this run live in."""
    return tmp_path_factory.mktemp("pairs")


@pytest.fixture(scope="session")
def tiny_pair(pairs_folder: Path) -> "Callable[..., TinyPair]":
    """``tiny_pair(architecture="llama", block_size=4, ...)``: see ``harness.tiny_pair.make_tiny_pair``."""
    from harness.tiny_pair import make_tiny_pair

    return lambda **choices: make_tiny_pair(pairs_folder, **choices)


@pytest.fixture(scope="session")
def bundled_pair() -> "BundledPair":
    """SmolLM2-135M-Instruct and its draft, in the user's cache: fetched and converted by the first run only."""
    from sglang.bundled_pair import BundledPair

    command = [sys.executable, "-m", "sglang.bundled_pair", "prepare", "--json"]
    paths = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return BundledPair(**{name: Path(path) for name, path in paths.items()})


@pytest.fixture(scope="session")
def shared_servers() -> "Iterator[SharedServers]":
    """``shared_servers.get(model, draft, **flags)``: one server for all tests that ask for the same arguments."""
    from harness.server import SharedServers

    servers = SharedServers()
    yield servers
    servers.close()
