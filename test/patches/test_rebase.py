"""Status and rebase: two made-up releases and one patch of every fate, bad input, and the real releases.

R36: patch sets that stop applying in silence, that are half applied, or that upstream has absorbed.
"""

import os
import shutil
import subprocess
import sys

import pytest
from packaging.tags import Tag
from packaging.version import Version

from harness.patching import queue_file, text
from harness.upstream import REPOSITORY, make_repository, make_wheel
from patches import rebase as rebase_module
from patches.errors import PatchError
from patches.pin import read_pin
from patches.rebase import rebase
from patches.release import Release, index_wheels, open_release
from patches.report import report_on, write_record
from patches.series import series_names

POOL, ROWS = "sglang/srt/pool.py", "sglang/srt/rows.py"
OLD = {
    "sglang/_version.py": "",
    "sglang/kernels/__init__.py": "",
    POOL: text("""
        from sglang.srt.limits import LIMIT

        class Pool:
            def grow(self, by):
                return read(self) + by

            def shrink(self):
                return read(self)

            def free(self):
                return guard(self)
    """),
    "sglang/srt/limits.py": "LIMIT = 1\n",
    ROWS: "def write_rows(rows):\n    return rows\n",
}
NEW = {
    **OLD,
    POOL: OLD[POOL].replace("read(self) + by", "read(self) + read(by)").replace("def shrink", "def shrink_to_fit"),
    "sglang/srt/limits.py": "MAXIMUM = 1\n",
    "sglang/srt/storage/rows.py": OLD[ROWS],
    "sglang/srt/taken.py": "",
}
del NEW[ROWS]
QUEUE = {
    "clean": queue_file(f'Decorate("{POOL}", "Pool.free", "ours")', f"{POOL} :: Pool.free"),
    "wrong-count": queue_file(f'Replace("{POOL}", "Pool.grow", call("read"), "ours")', f"{POOL} :: Pool.grow"),
    "changed-name": queue_file(f'Decorate("{POOL}", "Pool.shrink", "ours")', f"{POOL} :: Pool.shrink"),
    "moved-file": queue_file(f'Insert("{ROWS}", "write_rows", "check(rows)")', f"{ROWS} :: write_rows"),
    "absorbed": queue_file(
        f'Insert("{POOL}", "Pool", "kept = 1", where="end")',
        f"{POOL} :: Pool",
        landed=f'Present("{POOL}", "Pool.free", call("guard"))',
    ),
    "breaks-import": queue_file(
        f'AddImport("{POOL}", "from sglang.srt.limits import LIMIT as limit")', f"{POOL} :: imports", applies_to=">=1"
    ),
}  # fmt: skip


class Fork:
    """A fork of release 1.0 with QUEUE, and the wheels of 1.0 and 2.0 beside it."""

    def __init__(self, folder):
        before = {**OLD, POOL: OLD[POOL].replace("guard(self)", "self")}
        self.old = make_wheel(folder / "wheels", before)
        self.new = make_wheel(folder / "wheels", NEW, version="2.0")
        self.repository = make_repository(folder / "fork", [self.old])
        for name, content in QUEUE.items():
            self.add(f"patches/queue/{name}.py", content)
        self.add("patches/series", "# ours\n" + "\n".join(QUEUE) + "\n")
        self.add("python/sglang/srt/taken.py", "from sglang.srt.pool import Pool\n")
        write_record(Release(self.old), self.repository)

    def add(self, path, content):
        (self.repository / path).parent.mkdir(parents=True, exist_ok=True)
        (self.repository / path).write_text(content)

    def contents(self):
        files = (path for path in self.repository.rglob("*") if path.is_file() and path.suffix != ".pyc")
        return {path.relative_to(self.repository).as_posix(): path.read_bytes() for path in files}

    def command(self, *arguments, **environment):
        """Runs `python -m patches` of the fork with no network."""
        return subprocess.run(
            [sys.executable, "-m", "patches", *map(str, arguments)],
            cwd=self.repository,
            env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "XDG_CACHE_HOME": "cache", **environment},
            capture_output=True,
            text=True,
        )

    def error(self, *arguments, **environment) -> str:
        """The one line of a failing command, which must leave every file as it was."""
        before = self.contents()
        done = self.command(*arguments, **environment)
        assert done.returncode != 0
        assert self.contents() == before
        (line,) = [line for line in done.stderr.splitlines() if not line.startswith("fetching ")]
        return line


@pytest.fixture
def fork(tmp_path):
    return Fork(tmp_path)


def test_R36_on_its_own_pin_every_patch_applies_and_the_status_is_zero(fork):
    done = fork.command("status", "--onto", fork.old)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == (
        "sglang 1.0: 6 applies; 0 overlay clashes, 0 changed upstream names: nothing needs a hand"
    )


def test_R36_each_patch_gets_its_own_verdict_and_reason_on_the_new_release(fork):
    done = fork.command("status", "--onto", fork.new)
    assert done.returncode == 1
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "  applies" in rows["clean"]
    assert "  match count wrong  call('read') matches 2 times in Pool.grow" in rows["wrong-count"]
    assert (
        f"  target moved       {POOL} has no Pool.shrink; nearest: {POOL} :: Pool.shrink_to_fit" in rows["changed-name"]
    )
    assert rows["moved-file"].endswith("nearest: sglang/srt/storage/rows.py :: write_rows")
    assert "  already upstream" in rows["absorbed"]
    assert "overlay: " in done.stdout and "upstream has a file at sglang/srt/taken.py" in done.stdout
    assert "upstream name: sglang.srt.limits.LIMIT is gone; nearest in sglang.srt.limits: " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("sglang 2.0: 2 applies, 1 match count wrong, 2 target moved, ")
    assert done.stdout.splitlines()[-1].endswith("1 overlay clashes, 1 changed upstream names: needs a hand")


def test_R36_rebase_pins_drops_what_is_absorbed_and_lists_the_rest_twice_alike(fork):
    once = rebase(str(fork.new), fork.repository)
    first = fork.contents()
    assert once.dropped == ["absorbed"]
    assert read_pin(fork.repository / "patches/pin.toml") == once.pin
    assert (once.pin.version, list(once.pin.wheels)) == (Version("2.0"), [fork.new.name])
    assert "patches/queue/absorbed.py" not in first
    assert first["patches/series"].decode().split() == ["#", "ours", *(name for name in QUEUE if name != "absorbed")]
    work = first["patches/worklist.md"].decode()
    assert "Dropped, since upstream has it: absorbed\n" in work
    items = [line for line in work.splitlines() if line.startswith("- [ ] ")]
    assert [item.split(":")[0].split("/")[-1] for item in items] == [
        "wrong-count.py",
        "changed-name.py",
        "moved-file.py",
        "- [ ] overlay",
        "- [ ] upstream name",
    ]
    again = rebase(str(fork.new), fork.repository)
    assert again.dropped == []
    assert [v.outcome for v in again.report.verdicts] == [
        v.outcome for v in once.report.verdicts if v.patch.name != "absorbed"
    ]
    assert {name: data for name, data in fork.contents().items() if "worklist" not in name} == {
        name: data for name, data in first.items() if "worklist" not in name
    }


def test_R36_a_rebase_that_leaves_nothing_to_do_builds_and_removes_the_work_list(fork):
    for name in ("wrong-count", "changed-name", "moved-file", "breaks-import"):
        (fork.repository / f"patches/queue/{name}.py").unlink()
    fork.add("patches/series", "clean\nabsorbed\n")
    (fork.repository / "python/sglang/srt/taken.py").unlink()
    write_record(Release(fork.old), fork.repository)
    fork.add("patches/worklist.md", "from an earlier rebase")
    assert not rebase(str(fork.new), fork.repository).report.needs_hand
    assert not (fork.repository / "patches/worklist.md").exists()
    assert fork.command("tree", "out", "--wheel", fork.new).returncode == 0
    assert (fork.repository / "out" / POOL).read_text().count("@ours") == 1


def test_a_patch_that_its_specifier_leaves_out_needs_a_hand(fork):
    fork.add("patches/queue/clean.py", QUEUE["clean"].replace(">=1.0", "==1.0"))
    verdict = report_on(Release(fork.new), fork.repository).verdicts[0]
    assert (verdict.outcome, verdict.in_range, verdict.needs_hand) == ("applies", False, True)
    assert verdict.detail == "outside Applies-To ==1.0: read and widen it"


def test_patches_that_clash_or_do_not_compile_are_broken(fork):
    fork.add("patches/queue/second.py", QUEUE["clean"])
    fork.add("patches/queue/loop.py", queue_file(f'Insert("{POOL}", "Pool.free", "break")', f"{POOL} :: Pool.free"))
    fork.add("patches/series", "\n".join([*QUEUE, "second", "loop", ""]))
    verdicts = {v.patch.name: v for v in report_on(Release(fork.old), fork.repository).verdicts}
    assert verdicts["clean"].outcome == "applies"
    assert verdicts["second"].outcome == verdicts["loop"].outcome == "broken"
    assert verdicts["second"].detail == "clean and second touch the same construct"
    assert verdicts["loop"].detail.startswith("does not compile when patched: 'break' outside loop")


def test_diff_prints_what_a_patch_changes(fork, monkeypatch):
    done = fork.command("diff", "clean", "--onto", fork.old)
    assert done.returncode == 0
    added = [line for line in done.stdout.splitlines() if line.startswith("+")]
    assert added == [
        f"+++ b/{POOL}",
        "+# Modified by the dflash fork, patches: clean; see sglang/FORK_CHANGES.md.",
        "+    @ours",
    ]
    assert "has no 'cleen'; name a patch of it, clean" in fork.error("diff", "cleen", "--onto", fork.old)


@pytest.mark.parametrize("command", ["status", "rebase"])
class TestBadInput:
    """Each a one-line error, a non-zero exit, and no file written."""

    def test_unknown_version(self, fork, command):
        line = fork.error(command, "--onto", "9.9.9")
        assert line.startswith("error: sglang 9.9.9: no sglang 9.9.9: ")
        assert line.endswith("; give a version that the package index has")

    def test_no_version_at_all(self, fork, command):
        line = fork.error(command, "--onto", "newest")
        assert line == "error: --onto: 'newest' is neither a version nor a wheel file; give one of them"

    def test_no_such_wheel(self, fork, command):
        assert "sglang-3.0-py3-none-any.whl: is no readable wheel" in fork.error(
            command, "--onto", "sglang-3.0-py3-none-any.whl"
        )

    @pytest.mark.parametrize("damage", ["cut off", "a changed byte", "empty"])
    def test_damaged_wheel(self, fork, command, damage):
        content = bytearray(fork.new.read_bytes())
        if damage == "a changed byte":
            content[content.index(POOL.encode()) + len(POOL) + 20] ^= 0xFF
        fork.new.write_bytes(content[: {"cut off": -40, "a changed byte": None, "empty": 0}[damage]])
        line = fork.error(command, "--onto", fork.new)
        assert line.startswith(f"error: {fork.new}: is ") and line.endswith("; remove it and fetch it again")

    def test_wheel_of_another_package(self, fork, command):
        other = fork.new.rename(fork.new.with_name(fork.new.name.replace("sglang", "other")))
        assert fork.error(command, "--onto", other) == f"error: {other}: is a wheel of other; give one of sglang"

    def test_unlisted_queue_file(self, fork, command):
        fork.add("patches/queue/forgotten.py", QUEUE["clean"])
        line = fork.error(command, "--onto", fork.new)
        assert line.startswith("error: patches/queue/forgotten.py: is not in patches/series; ")


def test_a_release_without_a_wheel_for_this_python_cannot_be_pinned(fork, monkeypatch):
    other = f"sglang-2.0-{Tag('cp39', 'cp39', 'manylinux_2_34_x86_64')}.whl"
    monkeypatch.setattr(rebase_module, "index_wheels", lambda version: {other: "0" * 64})
    before = fork.contents()
    with pytest.raises(PatchError, match="has no wheel of sglang 2.0 for Python .*; use one of cp39-cp39-manylinux"):
        rebase("2.0", fork.repository)
    assert fork.contents() == before


def test_a_patch_without_a_header_field_is_broken_in_the_status_and_stops_a_rebase(fork):
    fork.add("patches/queue/clean.py", QUEUE["clean"].replace("Origin: vendor\n", ""))
    done = fork.command("status", "--onto", fork.old)
    assert done.returncode == 1
    assert "clean          broken             header field 'Origin' is missing or empty; " in done.stdout
    line = fork.error("rebase", "--onto", fork.new)
    assert line.startswith("error: patches/queue/clean.py: header field 'Origin' is missing or empty; ")


def test_a_rebase_that_is_cut_off_can_be_run_again(fork, monkeypatch):
    write = rebase_module.write_atomic

    def cut_off(path, content):
        if path.name == "pin.toml":
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(rebase_module, "write_atomic", cut_off)
    with pytest.raises(KeyboardInterrupt):
        rebase(str(fork.new), fork.repository)
    assert read_pin(fork.repository / "patches/pin.toml").version == Version("1.0")
    monkeypatch.undo()
    rebase(str(fork.new), fork.repository)
    assert read_pin(fork.repository / "patches/pin.toml").version == Version("2.0")


@pytest.fixture(scope="module")
def real_fork(tmp_path_factory):
    """A copy of this repository that a rebase may change."""
    folder = tmp_path_factory.mktemp("real") / "fork"
    ignored = shutil.ignore_patterns("__pycache__", ".*", "test", "build", "dist")
    shutil.copytree(REPOSITORY, folder, ignore=ignored)
    return folder


def test_the_fork_stands_on_its_pin(upstream_wheel):
    report = report_on(Release(upstream_wheel))
    assert not report.needs_hand, "\n".join(report.lines())


def test_the_record_of_upstream_names_is_that_of_the_pin(upstream_wheel, real_fork):
    write_record(Release(upstream_wheel), real_fork)
    made = (real_fork / "patches/upstream_api.json").read_text()
    assert made == (REPOSITORY / "patches/upstream_api.json").read_text(), "run `python -m patches record`"


def test_the_matrix_shows_the_queue_as_it_is():
    rows = (REPOSITORY / "patches/matrix.md").read_text().split("## Reasons")[0].splitlines()
    names = [row.split("|")[1].strip() for row in rows if row.startswith("| ")]
    assert names[2:-2] == series_names(), "run `python -m patches matrix`"


def test_rehearsal_of_a_rebase_from_0_5_22_to_0_5_23(real_fork):
    """Back to 0.5.22, which leaves a work list, and on to 0.5.23, which ends at the committed pin and queue."""
    if read_pin().version != Version("0.5.23"):
        pytest.skip("the fork has moved on from 0.5.23")
    try:
        index_wheels(Version("0.5.22"), pythons=["3.11"], machines=["x86_64"])
        open_release("0.5.22")
    except PatchError as error:
        pytest.skip(f"the package index cannot be asked, or sglang 0.5.22 not be had: {error}")

    def state():
        patches = real_fork / "patches"
        return {
            path.name: path.read_bytes()
            for path in [patches / "pin.toml", patches / "series", *patches.glob("queue/*.py")]
        }

    committed = state()
    back = rebase("0.5.22", real_fork)
    assert back.pin.version == Version("0.5.22") and len(back.pin.wheels) == 6
    assert back.report.needs_hand and (real_fork / "patches/worklist.md").is_file()
    assert back.dropped == []
    forth = rebase("0.5.23", real_fork)
    assert state() == committed
    assert not forth.report.needs_hand and not (real_fork / "patches/worklist.md").exists()
