"""Facts of machines that are not here, for tests of what the doctor and the launch plan conclude from them."""

import dataclasses

from sglang.cuda_doctor.facts import Facts, FlashInferFacts, Gpu
from sglang.cuda_doctor.toolkits import Toolkit

PRO_6000 = Gpu(0, "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", (12, 0), 97887, "00000000:01:00.0", 5, 16, 16)
SPARK = Gpu(0, "NVIDIA GB10", (12, 1), 0)
GOOD = Toolkit("/opt/cuda-13.0", "default", (13, 0), "13.0.88", None, (13, 0), (), "/opt/include", "/opt/libcudart.so")
PIP = dataclasses.replace(GOOD, home="/venv/nvidia/cu13", source="pip")
HEALTHY = Facts(
    python="3.12.3",
    machine="x86_64",
    torch="2.13.0+cu130",
    torch_cuda=(13, 0),
    driver="580.95.05",
    driver_cuda=(13, 0),
    gpus=(PRO_6000,),
    toolkits=(GOOD,),
    host_compiler="/usr/bin/c++",
    ninja="/usr/bin/ninja",
    flashinfer=FlashInferFacts("0.7.2"),
    shared_memory_gib=60.0,
    triton_ptxas=(13, 0),
)


def machine(**facts) -> Facts:
    """A healthy RTX PRO 6000 machine, but for ``facts``."""
    return dataclasses.replace(HEALTHY, **facts)


def toolkit(**parts) -> Toolkit:
    return dataclasses.replace(GOOD, **parts)


def several(count: int, way: str = "NODE", peer: str = "OK", **facts) -> Facts:
    """A healthy machine of ``count`` GPUs, each pair joined by ``way``, with ``peer`` as the driver's word."""
    square = [[("X" if a == b else "?") for b in range(count)] for a in range(count)]
    filled = {name: tuple(tuple(c.replace("?", by) for c in row) for row in square) for name, by in
              {"links": way, "peers": peer}.items()}  # fmt: skip
    gpus = tuple(dataclasses.replace(PRO_6000, index=index) for index in range(count))
    return machine(gpus=gpus, **{**filled, **facts})


def replaced(matrix, *cells: tuple[int, int], by: str):
    return tuple(
        tuple(by if (a, b) in cells else relation for b, relation in enumerate(row)) for a, row in enumerate(matrix)
    )
