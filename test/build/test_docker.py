"""The image's recipe passes its linter."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCKERFILE = Path(__file__).parents[2] / "docker" / "Dockerfile"


def test_dockerfile_is_clean() -> None:
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed: pip install -r test/requirements.txt")
    answer = subprocess.run([linter, "--no-color", str(DOCKERFILE)], capture_output=True, text=True, timeout=120)
    assert (answer.returncode, answer.stdout) == (0, ""), answer.stdout + answer.stderr
