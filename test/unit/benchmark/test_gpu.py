"""GPUs: sums over the boards, and None where a board does not answer."""

import sys
from types import SimpleNamespace

from benchmark.sweep.gpu import MEBIBYTE, Gpus, gpus


class NvmlError(Exception):
    """As the library's own."""


def nvml(energy: dict[int, int]) -> SimpleNamespace:
    def total_energy(handle: int) -> int:
        if handle not in energy:
            raise NvmlError("not supported")
        return energy[handle]

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlDeviceGetName=lambda handle: f"board {handle}",
        nvmlSystemGetDriverVersion=lambda: "600.1",
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(
            used=(handle + 1) * 100 * MEBIBYTE, total=(9 - handle) * 1000 * MEBIBYTE
        ),
        nvmlDeviceGetTotalEnergyConsumption=total_energy,
    )


def test_sums_over_all_boards() -> None:
    boards = Gpus(nvml({0: 1500, 1: 2500}), [0, 1])
    assert boards.names() == ["board 0", "board 1"] and boards.driver() == "600.1"
    assert boards.least_memory_mib() == 8000
    assert boards.memory_mib() == 300 and boards.energy_j() == 4.0


def test_board_that_does_not_count_energy_gives_none() -> None:
    assert Gpus(nvml({0: 1500}), [0, 1]).energy_j() is None


def test_machine_without_the_library_has_no_gpus(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with gpus() as boards:
        assert boards.least_memory_mib() is None
        assert boards.names() == [] and boards.memory_mib() is None and boards.energy_j() is None
        assert boards.driver() is None
