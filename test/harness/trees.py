"""Trees of the fork that lack one patch, so that a test can prove that the patch is what makes it pass.

    test_name.py            tests of what the patch brings; they pass on the fork
    def test_without...():  runs them again on the tree without the patch, where they must fail

The tree is the fork as it stands, with the files that the patch touches as the rest of the queue leaves them.
"""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.unfixed_tree import write_unfixed_tree

REPOSITORY = Path(__file__).resolve().parents[2]
TEST_SECONDS = 600


class Trees:
    """Trees made from one upstream wheel, each once."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        self._wheel = wheel
        self._folder = folder

    def without(self, patch: str) -> Path:
        """The fork without the queue's patch ``patch``."""
        tree = self._folder / f"without-{patch}"
        return tree if tree.is_dir() else write_unfixed_tree(tree, self._wheel, {patch})

    def failing_without(self, patch: str, *tests: str) -> dict[str, str]:
        """Run ``tests`` (pytest node ids) on the tree without ``patch``; {name of a test that fails: its last line}.

        Raises AssertionError if none of them ran: a test that cannot be collected proves nothing.
        """
        tree = self.without(patch)
        report = self._folder / f"{patch}-{abs(hash(tests))}.xml"
        options = ["-p", "no:cacheprovider", "--tb=line", f"--junitxml={report}"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            timeout=TEST_SECONDS,
        )
        assert done.returncode in (0, 1), f"pytest ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        cases = list(ElementTree.parse(report).iter("testcase"))
        assert cases, f"no test ran:\n{done.stdout}"
        failures = {case.get("name"): case.find("failure") for case in cases}
        return {name: found.get("message", "") for name, found in failures.items() if found is not None}


@pytest.fixture(scope="session")
def trees(upstream_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Trees:
    """Trees of this test run."""
    return Trees(upstream_wheel, tmp_path_factory.mktemp("trees"))
