"""Rules about GPUs, their driver, and the disk that models come from."""

from __future__ import annotations

from collections.abc import Iterator

from .facts import Facts
from .findings import Finding, Rule, anywhere
from .toolkit_rules import text

# The first driver branch that serves a CUDA release.
_DRIVERS = {(12, 8): "570", (12, 9): "575", (13, 0): "580"}
_NETWORK_FILESYSTEMS = ("nfs", "cifs", "smb", "9p", "fuse", "ceph", "lustre", "glusterfs", "virtiofs")
_LARGE_GIB = 20


@anywhere
def no_gpu(facts: Facts) -> Iterator[Finding]:
    if facts.gpus:
        return
    if facts.driver is not None or "gpus" in facts.failed:
        reason = facts.failed.get("gpus") or "nvidia-smi is not on PATH"
        yield Finding(
            "driver-silent",
            "error",
            f"an NVIDIA driver is installed and lists no GPU: {reason}",
            "sudo modprobe nvidia && nvidia-smi; in a container: docker run --gpus all ...",
        )
    else:
        yield Finding(
            "no-gpu",
            "note",
            "this machine has no NVIDIA GPU: serving runs on the CPU reference platform",
            "make serve DEVICE=cpu",
        )


def driver_older_than_torch(facts: Facts) -> Iterator[Finding]:
    if facts.driver_cuda is None or facts.torch_cuda is None:
        return
    if facts.driver_cuda[0] < facts.torch_cuda[0]:
        branch = max(name for cuda, name in _DRIVERS.items() if cuda[0] <= facts.torch_cuda[0])
        yield Finding(
            "driver-too-old",
            "error",
            f"driver {facts.driver or '(unknown)'} serves CUDA up to {text(facts.driver_cuda)}, and PyTorch is built "
            f"with {text(facts.torch_cuda)}",
            f"sudo apt-get install nvidia-driver-{branch}-open && sudo reboot",
        )


def torch_without_cuda(facts: Facts) -> Iterator[Finding]:
    if facts.torch is not None and facts.torch_cuda is None and "torch_cuda" not in facts.failed:
        yield Finding(
            "torch-without-cuda",
            "error",
            f"PyTorch {facts.torch} is a build without CUDA, and there are {len(facts.gpus)} GPUs",
            f"pip install --force-reinstall torch=={facts.torch.partition('+')[0]}",
        )


def mixed_gpus(facts: Facts) -> Iterator[Finding]:
    kinds = {}
    for gpu in facts.gpus:
        kinds.setdefault(gpu.capability, []).append(gpu.index)
    if len(kinds) > 1:
        largest = max(kinds.values(), key=len)
        listed = ", ".join(f"{text(capability)} at {_indices(kinds[capability])}" for capability in sorted(kinds))
        yield Finding(
            "mixed-gpus",
            "note",
            f"the GPUs are of several compute capabilities ({listed}): kernels are chosen by the first one",
            f"export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={_indices(largest)}",
        )


@anywhere
def slow_disk(facts: Facts) -> Iterator[Finding]:
    for disk in facts.disks:
        network = disk.filesystem.startswith(_NETWORK_FILESYSTEMS)
        if disk.large_files_gib >= _LARGE_GIB and (network or disk.rotational):
            yield Finding(
                "slow-disk",
                "note",
                f"{disk.folder} holds {disk.large_files_gib:.0f} GiB of large files on a "
                f"{f'network file system ({disk.filesystem})' if network else 'rotating disk'}: every start reads them",
                f"cp -a {disk.folder} /PATH/ON/NVME/hub && export HF_HUB_CACHE=/PATH/ON/NVME/hub",
            )


def _indices(indices: list[int]) -> str:
    return ",".join(map(str, indices))


RULES: tuple[Rule, ...] = (no_gpu, driver_older_than_torch, torch_without_cuda, mixed_gpus, slow_disk)
