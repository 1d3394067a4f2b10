"""What the driver tells about the GPUs of this machine: names, memory in use, energy; nothing where there is none."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

MEBIBYTE = 1 << 20


class Gpus:
    """The GPUs of one machine, all of them: a server may use any."""

    def __init__(self, nvml: Any, handles: list[Any]) -> None:
        self._nvml, self._handles = nvml, handles

    def names(self) -> list[str]:
        return [self._nvml.nvmlDeviceGetName(handle) for handle in self._handles]

    def driver(self) -> str | None:
        return self._nvml.nvmlSystemGetDriverVersion() if self._handles else None

    def memory_mib(self) -> int | None:
        """Memory in use on all GPUs, whoever uses it; None without a GPU."""
        used = [self._ask(self._nvml.nvmlDeviceGetMemoryInfo, handle) for handle in self._handles]
        return sum(info.used for info in used) // MEBIBYTE if used and None not in used else None

    def least_memory_mib(self) -> int | None:
        """Memory of the smallest GPU, in use or not; None without a GPU."""
        found = [self._ask(self._nvml.nvmlDeviceGetMemoryInfo, handle) for handle in self._handles]
        return min(info.total for info in found) // MEBIBYTE if found and None not in found else None

    def energy_j(self) -> float | None:
        """Energy that all GPUs have used since the driver was loaded; None where it does not count."""
        used = [self._ask(self._nvml.nvmlDeviceGetTotalEnergyConsumption, handle) for handle in self._handles]
        return sum(used) / 1000 if used and None not in used else None

    def _ask(self, question: Callable[[Any], Any], handle: Any) -> Any:
        try:
            return question(handle)
        except self._nvml.NVMLError:  # not every board and not every virtual machine answers
            return None


@contextlib.contextmanager
def gpus() -> Iterator[Gpus]:
    """Yields the GPUs that NVIDIA's library lists, none where the library or the driver is absent."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # ImportError, or the library's own error where no driver is loaded
        yield Gpus(None, [])
        return
    try:
        count = pynvml.nvmlDeviceGetCount()
        yield Gpus(pynvml, [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)])
    finally:
        pynvml.nvmlShutdown()
