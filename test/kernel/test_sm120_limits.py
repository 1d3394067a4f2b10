"""R30: draft-tree kernels and the release's attention, compiled for SM120 on any machine, fit its shared memory."""

import importlib.util

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from harness import attention_kernels
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


@pytest.mark.parametrize(
    ("launch", "shape"),
    [
        (attention_kernels.verify, (32, 8, 128, 128)),  # Qwen3-8B
        (attention_kernels.verify, (8, 1, 576, 512)),  # Kimi K2.6 over eight GPUs: latent keys and values
        (attention_kernels.decode, (8, 1, 576, 512)),
    ],
)
def test_r30_attention_of_the_release_fits_the_shared_memory_of_sm120(launch, shape):
    with attention_kernels.on_gpu((12, 0)):
        ((kernel, arguments, options),) = recorded(lambda: launch(*shape))
    assert compile_for(120, kernel, arguments, options).metadata.shared <= SHARED_BYTES


def test_r30_hopper_tiles_of_latent_attention_would_not_fit_sm120():
    with attention_kernels.on_gpu((9, 0)):
        ((kernel, arguments, options),) = recorded(lambda: attention_kernels.verify(8, 1, 576, 512))
    assert compile_for(90, kernel, arguments, options).metadata.shared == 106496  # the figure of the reports
