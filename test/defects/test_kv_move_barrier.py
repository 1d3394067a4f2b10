"""The kernel that moves an accepted path's KV rows, compiled without a GPU: every warp has read before one writes."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from harness.draft_tree_kernels import compile_for, recorded
from sglang.kernels.ops.kvcache import cache_move

ROWS, BYTES = 16, 1024  # the first of them move onto themselves, as the root does
HOPPER = 90


def memory_accesses(module: ModuleType) -> list[str]:
    """Loads, stores and barriers of the kernel, in order, each kind once a run."""
    config = {"byte_tiles": BYTES // 128, "bytes_per_tile": 128, "num_warps": 4}
    buffers, rows = torch.zeros(8, dtype=torch.int64), torch.zeros(ROWS, dtype=torch.int64)
    (launch,) = recorded(lambda: module.copy_all_layer_kv_cache_func(buffers, buffers, rows, rows, ROWS, ROWS, config))
    found = re.findall(r"ld\.global|st\.global|bar\.sync", compile_for(HOPPER, *launch).asm["ptx"])
    return [kind for kind, before in zip(found, [None, *found], strict=False) if kind != before]


def without_the_patch(wheel: Path, folder: Path) -> ModuleType:
    path = folder / "cache_move_of_the_release.py"
    with ZipFile(wheel) as release:
        path.write_bytes(release.read("sglang/kernels/ops/kvcache/cache_move.py"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rows_are_written_when_all_are_read(monkeypatch, upstream_wheel, tmp_path):
    release = without_the_patch(upstream_wheel, tmp_path)
    for module in (cache_move, release):
        monkeypatch.setattr(module, "_is_cpu", False)
    assert memory_accesses(cache_move) == ["ld.global", "bar.sync", "st.global"]
    assert memory_accesses(release) == ["ld.global", "st.global"]
