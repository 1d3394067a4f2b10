"""The real queue on the pinned release."""

import ast
import os
import subprocess
import sys
import zipfile

import pytest

from harness.upstream import REPOSITORY
from patches.apply import applicable, patch_sources, patch_tree
from patches.pin import read_pin
from patches.series import load_series


@pytest.fixture(scope="module")
def pristine(upstream_wheel):
    """The pinned release: upstream path -> content."""
    with zipfile.ZipFile(upstream_wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.endswith(".py")}


@pytest.fixture(scope="module")
def patched(pristine):
    """What the whole queue makes of the release."""
    return patch_sources(load_series(), read_pin().version, pristine.get)


def test_every_patch_for_the_pin_changes_the_files_that_it_names(pristine, patched):
    queue = applicable(load_series(), read_pin().version)
    assert queue
    assert set(patched) == {file for patch in queue for file in patch.files}
    for file, content in patched.items():
        assert content != pristine[file]
        ast.parse(content)


def test_no_patch_for_the_pin_is_marked_as_landed_in_it(pristine):
    from patches.apply import Sources

    sources = Sources(pristine.get)
    for patch in applicable(load_series(), read_pin().version):
        signs = [sign.holds(sources.need(sign.file, patch.label)) for sign in patch.landed]
        assert not (signs and all(signs)), f"{patch.name}: the pinned release has it already; drop the patch"


def test_a_second_time_changes_nothing(pristine, patched, tmp_path):
    for file in patched:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(pristine[file])
    queue, version = load_series(), read_pin().version
    assert patch_tree(tmp_path, queue, version) == list(patched)
    assert {file: (tmp_path / file).read_bytes() for file in patched} == patched
    assert patch_tree(tmp_path, queue, version) == []
    assert {file: (tmp_path / file).read_bytes() for file in patched} == patched


SCRIPT = """
import hashlib, sys, zipfile
from patches.apply import patch_sources
from patches.pin import read_pin
from patches.series import load_series
archive = zipfile.ZipFile(sys.argv[1])
names = set(archive.namelist())
patched = patch_sources(load_series(), read_pin().version, lambda file: archive.read(file) if file in names else None)
print(hashlib.sha256(repr(patched).encode()).hexdigest())
"""


def test_two_processes_write_the_same_bytes(upstream_wheel):
    digests = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(upstream_wheel)],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
