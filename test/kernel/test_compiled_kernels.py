"""The last result of ``make compile-kernels``: of this release, complete, and machine code for every target."""

import importlib.util
import json
import re
from pathlib import Path
from zipfile import ZipFile

import pytest

from harness.upstream import upstream_wheel

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from harness.draft_tree_kernels import LAUNCHES

__all__ = ["upstream_wheel"]
RESULT = json.loads((Path(__file__).parent / "compiled_kernels.json").read_text())
MODULES = {entry["module"]: entry for entry in RESULT["modules"]}
OWN = {f"draft_tree {name}" for name in LAUNCHES}


def test_result_is_of_the_flashinfer_that_the_release_pins(upstream_wheel: Path) -> None:
    with ZipFile(upstream_wheel) as wheel:
        (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        pinned = re.search(r"^Requires-Dist: flashinfer[-_]python\S*==([\d.]+)", wheel.read(metadata).decode(), re.M)
    assert RESULT["setup"]["flashinfer-python"] == pinned[1]
    assert RESULT["setup"]["nvcc"].startswith("13.")


def test_every_kernel_of_ours_is_in_the_result() -> None:
    assert MODULES.keys() >= OWN


@pytest.mark.parametrize("name", MODULES)
def test_module_has_machine_code_for_its_targets(name: str) -> None:
    entry = MODULES[name]
    assert entry["problem"] is None
    blackwell = "sm_120a" if name in OWN else "sm_120f"
    targets = {"sm_90a"} if name.endswith("_sm90") else {"sm_90a", "sm_100a", blackwell}
    assert set(entry["kernels"]) == targets and all(count > 0 for count in entry["kernels"].values())
    if blackwell in entry["shared_bytes"]:
        assert entry["shared_bytes"][blackwell] <= 101376
