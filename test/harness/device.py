"""Where a unit test computes: upstream decides by the machine which kernels it calls, whatever the tensors are on."""

import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

on_the_cpu_platform = pytest.mark.skipif(DEVICE.type == "cuda", reason="with a GPU, the CPU's kernels are not called")
