"""What stops the build: one line each that names the file, what was found and what to do, and nothing written.

Runs the PEP 517 hooks as pip does, in a process of their own, on a small made-up release.
"""

import os
import subprocess
import sys

import pytest
from packaging.tags import Tag

from harness.patching import queue_file
from harness.upstream import make_repository, make_wheel

POOL = "sglang/srt/pool.py"


class Build:
    """One repository, one upstream wheel, and what the last run of a hook said."""

    def __init__(self, folder):
        self.folder = folder
        self.upstream = make_wheel(folder / "upstream")
        self.repository = make_repository(folder / "repository", [self.upstream])
        self.out = folder / "out"
        self.out.mkdir()

    def run(self, hook="build_wheel", **environment):
        variables = {"SGLANG_UPSTREAM_WHEEL": str(self.upstream), "XDG_CACHE_HOME": str(self.folder / "cache")}
        return subprocess.run(
            [sys.executable, "-c", f"import build_backend; print(build_backend.{hook}({str(self.out)!r}))"],
            cwd=self.repository,
            env={**os.environ, **variables, **environment},
            capture_output=True,
            text=True,
        )

    def error(self, *arguments, **environment) -> str:
        """The one line that a failing run prints."""
        done = self.run(*arguments, **environment)
        assert done.returncode != 0
        assert list(self.out.iterdir()) == []
        (line,) = done.stderr.splitlines()
        return line

    def add(self, path, content=""):
        (self.repository / path).parent.mkdir(parents=True, exist_ok=True)
        (self.repository / path).write_text(content)

    def add_patch(self, name, content):
        self.add(f"patches/queue/{name}.py", content)
        with (self.repository / "patches/series").open("a") as series:
            series.write(f"{name}\n")


@pytest.fixture
def build(tmp_path):
    return Build(tmp_path)


def test_the_same_repository_builds_without_a_fault(build):
    build.add("python/sglang/ours.py")
    build.add("sgl-kernel/draft_tree/walk.py")
    build.add_patch(
        "wraps-call", queue_file(f'Replace("{POOL}", "Pool.grow", call("f"), "g()")', f"{POOL} :: Pool.grow")
    )
    done = build.run()
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in build.out.iterdir()] == [done.stdout.strip()]
    assert done.stdout.startswith("sglang-1.0+dflash.7-")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("python/sglang/srt/pool.py", POOL), ("sgl-kernel/draft/__init__.py", "sglang/kernels/draft/__init__.py")],
)
def test_an_overlay_file_where_upstream_has_one(build, ours, theirs):
    files = {"sglang/_version.py": "", POOL: "", "sglang/kernels/draft/__init__.py": ""}
    build.upstream = make_wheel(build.folder / "other", files)
    build.repository = make_repository(build.folder / "other repository", [build.upstream])
    build.add(ours)
    message = build.error()
    assert message == (
        f"error: {build.repository / ours}: upstream has a file at {theirs}; "
        "rename ours, or change upstream's with a patch"
    )


@pytest.mark.parametrize(
    ("ours", "found"),
    [("python/sglang/srt/pool.py/helper.py", f"a file at {POOL}"), ("python/sglang/srt", "a folder at sglang/srt")],
)
def test_an_overlay_path_that_cannot_stand_beside_upstreams(build, ours, found):
    build.add(ours)
    assert f"upstream has {found}; rename ours" in build.error()


def test_a_wheel_with_another_hash(build):
    content = build.upstream.read_bytes()
    build.upstream.write_bytes(content[:-1] + b"?")
    message = build.error()
    assert message.startswith(f"error: {build.upstream}: sha256 is ")
    assert message.endswith("; remove the file and fetch it again")


def test_a_wheel_that_is_no_file(build):
    missing = build.folder / "gone.whl"
    message = build.error(SGLANG_UPSTREAM_WHEEL=str(missing))
    assert message == f"error: {missing}: is no file; give the path of an upstream wheel"


def test_a_pin_without_a_wheel_for_this_python(build):
    other = make_wheel(build.folder / "upstream", tag=Tag("cp39", "cp39", "manylinux_2_34_x86_64"))
    build.repository = make_repository(build.folder / "other repository", [other])
    message = build.error(SGLANG_UPSTREAM_WHEEL="")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert message.startswith(f"error: patches/pin.toml: has no wheel of sglang 1.0 for Python {version} on ")
    assert message.endswith("; use one of cp39-cp39-manylinux_2_34_x86_64")


def test_a_pinned_wheel_of_another_python(build):
    other = make_wheel(build.folder / "upstream", tag=Tag("cp39", "cp39", "manylinux_2_34_x86_64"))
    build.repository = make_repository(build.folder / "other repository", [build.upstream, other])
    message = build.error(SGLANG_UPSTREAM_WHEEL=str(other))
    assert message.endswith(f"is {other.name}; this Python needs {build.upstream.name}")


def test_a_patch_whose_target_is_gone(build):
    build.add_patch("decorates", queue_file(f'Decorate("{POOL}", "Pool.shrink", "a")', f"{POOL} :: Pool.shrink"))
    message = build.error()
    assert message.startswith(f"error: patches/queue/decorates.py: {POOL} has no Pool.shrink; ")


def test_a_patch_that_matches_twice(build):
    edit = f'Replace("{POOL}", "Pool.grow", expression("f"), "g", count=2)'
    build.add_patch("replaces", queue_file(edit, f"{POOL} :: Pool.grow"))
    message = build.error()
    assert message.startswith("error: patches/queue/replaces.py: expression('f') matches 1 times in Pool.grow")


def test_a_patch_without_a_header_field(build):
    content = queue_file(f'Decorate("{POOL}", "Pool.grow", "a")', f"{POOL} :: Pool.grow")
    build.add_patch("decorates", content.replace("Origin: vendor\n", ""))
    message = build.error()
    assert message.startswith("error: patches/queue/decorates.py: header field 'Origin' is missing or empty; ")


def test_two_patches_on_one_construct(build):
    for name in ("first", "second"):
        build.add_patch(name, queue_file(f'Decorate("{POOL}", "Pool.grow", "{name}")', f"{POOL} :: Pool.grow"))
    assert build.error().startswith(f"error: {POOL}: first and second touch the same construct; ")


def test_an_unknown_target_device(build):
    for hook in ("build_wheel", "prepare_metadata_for_build_wheel"):
        message = build.error(hook, SGLANG_TARGET_DEVICE="tpu")
        assert message == "error: SGLANG_TARGET_DEVICE: is 'tpu'; set it to one of cpu, cuda"


def test_a_left_out_package_that_upstream_does_not_require(build):
    text = (build.repository / "pyproject.toml").read_text()
    build.add("pyproject.toml", text.replace("cuda-python", "cuda-pythons"))
    message = build.error(SGLANG_TARGET_DEVICE="cpu")
    assert message.startswith("error: pyproject.toml: leaves out cuda-pythons, which upstream does not require; ")


def test_an_entry_point_that_is_upstreams(build):
    text = (build.repository / "pyproject.toml").read_text()
    build.add("pyproject.toml", text.replace('"sglang.srt.platforms"', "console_scripts").replace("ours =", "sglang ="))
    assert "entry point console_scripts:sglang is also upstream's, sglang.cli:main" in build.error()


def test_an_editable_install_says_what_to_do_instead(build):
    for hook in ("build_editable", "prepare_metadata_for_build_editable"):
        assert "python -m patches tree FOLDER" in build.error(hook)


def test_a_source_distribution_is_refused(build):
    assert "use a clone of the repository" in build.error("build_sdist")
