"""R30: every draft-tree kernel is compiled for SM120, on any machine, and fits the shared memory that it has."""

import importlib.util

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from harness.draft_tree_kernels import LAUNCHES, compile_for, recorded

SHARED_BYTES = 101376  # for one block on SM120 and SM121


@pytest.mark.parametrize("name", LAUNCHES)
def test_r30_kernels_fit_the_shared_memory_of_sm120(name):
    launch, expected = LAUNCHES[name]
    launched = recorded(launch)
    assert {kernel.fn.__name__ for kernel, _, _ in launched} == expected
    for kernel, arguments, options in launched:
        compiled = compile_for(120, kernel, arguments, options)
        assert "sm_120" in compiled.asm["ptx"]
        assert compiled.asm["cubin"]
        assert compiled.metadata.shared <= SHARED_BYTES, f"{kernel.fn.__name__} takes {compiled.metadata.shared} bytes"
