"""The wheel that the build makes of the pinned release: name, version, contents, requirements, licences."""

import base64
import configparser
import csv
import hashlib
import io
import os
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

import build_backend
from build_backend.assemble import CHANGES, overlay_files
from build_backend.settings import read_settings
from harness.upstream import REPOSITORY, cached_wheels
from patches.apply import RECORD, applicable
from patches.pin import read_pin
from patches.series import load_series

INFO = "sglang-0.5.23+dflash.1.dist-info"
CUDA_WORDS = re.compile(r"nvidia|cuda|cutlass|flashinfer|nvshmem|cu1\d|flash-attn|deep-gemm|deep-ep|triton")


@pytest.fixture(scope="module")
def built(upstream_wheel, tmp_path_factory):
    """The wheel for CPU, made by pip with no network."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir"]
    variables = {"SGLANG_UPSTREAM_WHEEL": str(upstream_wheel), "SGLANG_TARGET_DEVICE": "cpu"}
    environment = {**os.environ, **variables, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run([*command, str(folder), str(REPOSITORY)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.iterdir()
    return wheel


@pytest.fixture(scope="module")
def ours(built):
    with zipfile.ZipFile(built) as archive:
        yield archive


@pytest.fixture(scope="module")
def theirs(upstream_wheel):
    with zipfile.ZipFile(upstream_wheel) as archive:
        yield archive


def message(archive, folder):
    return message_from_bytes(archive.read(f"{folder}/METADATA"))


def upstream_info(archive):
    return f"sglang-{read_pin().version}.dist-info"


def test_R35_version_file_name_and_runtime_report_agree(built, ours, upstream_wheel):
    name, version, _, tags = parse_wheel_filename(built.name)
    assert (name, version) == ("sglang", Version("0.5.23+dflash.1"))
    assert tags == parse_wheel_filename(upstream_wheel.name)[3]
    assert version.public == str(read_pin().version)
    fields = message(ours, INFO)
    assert (fields["Name"], fields["Version"]) == (name, str(version))
    runtime = {}
    exec(ours.read("sglang/_version.py"), runtime)
    assert runtime["__version__"] == runtime["version"] == str(version)
    assert runtime["__version_tuple__"] == (0, 5, 23, "dflash.1")
    assert Requirement("sglang==0.5.23").specifier.contains(version), "dependants on the release are satisfied"


def test_R35_the_cuda_wheel_has_exactly_the_requirements_of_the_release(upstream_wheel, theirs, tmp_path, monkeypatch):
    monkeypatch.setenv("SGLANG_UPSTREAM_WHEEL", str(upstream_wheel))
    monkeypatch.delenv("SGLANG_TARGET_DEVICE", raising=False)
    assert build_backend.prepare_metadata_for_build_wheel(tmp_path) == INFO
    fields = message_from_bytes((tmp_path / INFO / "METADATA").read_bytes())
    upstream = message(theirs, upstream_info(theirs))
    for field in ("Requires-Dist", "Provides-Extra", "Requires-Python"):
        assert fields.get_all(field) == upstream.get_all(field)


def test_R35_every_requirement_that_the_cpu_wheel_changes_has_a_recorded_reason(ours, theirs):
    cpu = set(message(ours, INFO).get_all("Requires-Dist"))
    upstream = set(message(theirs, upstream_info(theirs)).get_all("Requires-Dist"))
    target = read_settings().target("cpu")
    replaced = {canonicalize_name(Requirement(line).name) for line in target.added}
    assert cpu - upstream == set(target.added)
    assert {canonicalize_name(Requirement(line).name) for line in upstream - cpu} <= set(target.without) | replaced
    assert all(len(reason) > 5 for reason in [*target.without.values(), *target.added.values()])


def test_R35_this_environment_satisfies_the_requirements_of_its_wheel(ours):
    unmet = []
    for line in message(ours, INFO).get_all("Requires-Dist"):
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            try:
                found = metadata.version(requirement.name)
            except metadata.PackageNotFoundError:
                found = None
            if found is None or not requirement.specifier.contains(found, prereleases=True):
                unmet.append(f"{line}: found {found}")
    assert unmet == []


def test_the_cpu_wheel_asks_for_no_cuda_package(ours):
    requirements = [Requirement(line) for line in message(ours, INFO).get_all("Requires-Dist")]
    always = [line for line in requirements if line.marker is None or line.marker.evaluate({"extra": ""})]
    assert [str(line) for line in always if CUDA_WORDS.search(str(line).lower())] == []
    assert "torch" in {line.name for line in always}


def test_upstream_files_are_there_unchanged_but_for_the_listed_ones(ours, theirs):
    info = upstream_info(theirs)
    upstream = {name for name in theirs.namelist() if not name.endswith("/") and not name.startswith(info)}
    patched = {file for patch in applicable(load_series(), read_pin().version) for file in patch.files}
    overlay = set(overlay_files(REPOSITORY, read_settings()))
    changed = {name for name in upstream if theirs.read(name) != ours.read(name)}
    assert changed == patched | {"sglang/_version.py"}
    added = {name for name in ours.namelist() if not name.startswith(INFO)} - upstream
    assert added == overlay | {CHANGES, RECORD}


def test_our_files_are_there_as_they_stand_in_the_repository(ours):
    overlay = overlay_files(REPOSITORY, read_settings())
    assert "sglang/srt/platforms/cpu_reference/__init__.py" in overlay
    for name, source in overlay.items():
        assert ours.read(name) == source.read_bytes()


def test_native_modules_and_executable_bits_stay(ours, theirs):
    native = [name for name in theirs.namelist() if name.endswith(".so")]
    assert native and set(native) <= set(ours.namelist())

    def executable(archive):
        return {item.filename for item in archive.infolist() if not item.is_dir() and item.external_attr >> 16 & 0o100}

    assert executable(theirs) and executable(ours) == executable(theirs)


def test_record_lists_every_file_with_its_hash_and_size(ours):
    rows = {name: (digest, size) for name, digest, size in csv.reader(io.TextIOWrapper(ours.open(f"{INFO}/RECORD")))}
    assert set(rows) == set(ours.namelist()), "neither more nor fewer"
    assert rows.pop(f"{INFO}/RECORD") == ("", "")
    for name, (digest, size) in rows.items():
        content = ours.read(name)
        expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        assert (digest, int(size)) == (f"sha256={expected}", len(content)), name


def test_entry_points_are_upstreams_and_ours(ours, theirs):
    def points(archive, folder):
        parser = configparser.ConfigParser(delimiters="=")
        parser.optionxform = str
        parser.read_string(archive.read(f"{folder}/entry_points.txt").decode())
        return {section: dict(parser[section]) for section in parser.sections()}

    upstream = points(theirs, upstream_info(theirs))
    assert upstream["console_scripts"]["sglang"] == "sglang.cli.main:main"
    platform = {"cpu_reference": "sglang.srt.platforms.cpu_reference:activate"}
    assert points(ours, INFO) == {**upstream, "sglang.srt.platforms": platform}


def test_licences_are_in_the_wheel(ours, theirs):
    licences = f"{INFO}/licenses"
    assert ours.read(f"{licences}/LICENSE") == theirs.read(f"{upstream_info(theirs)}/licenses/LICENSE")
    assert b"modified version of SGLang" in ours.read(f"{licences}/NOTICE")
    assert message(ours, INFO).get_all("License-File") == ["LICENSE", "NOTICE"]


def test_each_modified_file_carries_a_notice_and_is_listed_with_its_patches(ours):
    listed = ours.read(CHANGES).decode()
    for patch in applicable(load_series(), read_pin().version):
        for file in patch.files:
            notice = ours.read(file).split(b"\n", 1)[0].decode()
            assert notice.startswith("# Modified by the dflash fork") and patch.name in notice
            assert f"- `{file}`\n" in listed
        assert f"  - {patch.name}: {patch.header.summary}\n" in listed


def test_the_same_inputs_give_the_same_bytes(built, upstream_wheel, tmp_path):
    again = build_backend.build(tmp_path, upstream_wheel, "cpu")
    assert again.name == built.name
    assert again.read_bytes() == built.read_bytes()


def test_wheels_of_other_pythons_and_machines_hold_the_same_source(ours, upstream_wheel, tmp_path):
    others = [wheel for wheel in cached_wheels() if wheel.name != upstream_wheel.name]
    if not others:
        pytest.skip("no upstream wheel of another Python or machine is in the cache")
    other = build_backend.build(tmp_path, others[0], "cpu")
    assert parse_wheel_filename(other.name)[3] == parse_wheel_filename(others[0].name)[3]
    with zipfile.ZipFile(other) as archive:
        sources = [name for name in ours.namelist() if name.endswith(".py")]
        assert sources == [name for name in archive.namelist() if name.endswith(".py")]
        assert [name for name in sources if archive.read(name) != ours.read(name)] == []
