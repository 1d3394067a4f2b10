"""Rules about several GPUs in one machine: peer access, PCIe links, shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from .facts import Facts
from .findings import Finding, Rule

_SHARED_MEMORY_GIB = 1.0


def peer_access(facts: Facts) -> Iterator[Finding]:
    """Names the pairs without peer access. Access between some pairs alone is worse than none: collectives may hang."""
    pairs = bad_pairs(facts)
    if not pairs or _switched_off(facts):
        return
    count = len(facts.peers)
    partial = len(pairs) < count * (count - 1)
    listed = ", ".join(f"GPU{a} to GPU{b} ({relation})" for a, b, relation in pairs[:8])
    more = f" and {len(pairs) - 8} more" if len(pairs) > 8 else ""
    yield Finding(
        "peer-access-partial" if partial else "peer-access-none",
        "error" if partial else "note",
        f"no peer access from {listed}{more}: "
        + ("collectives may fail or hang" if partial else "collectives go through host memory")
        + ", and --moe-a2a-backend deepep does not start",
        "NCCL_P2P_DISABLE=1 sglang serve ... --disable-custom-all-reduce --moe-a2a-backend none",
    )


def iommu_translates(facts: Facts) -> Iterator[Finding]:
    """The driver reports peer access also where the IOMMU makes it unusable; the first collective then never ends."""
    if not facts.iommu or _switched_off(facts) or bad_pairs(facts) or not pcie_pairs(facts):
        return
    yield Finding(
        "peer-access-behind-iommu",
        "error",
        "GPUs reach each other over PCIe while the IOMMU translates their addresses: the driver reports peer access, "
        "and collectives can hang with GPUs at 100 % and idle power",
        "NCCL_P2P_DISABLE=1 sglang serve ...; for peer access, boot with iommu=pt (amd_iommu=off or intel_iommu=off)",
    )


def custom_all_reduce(facts: Facts) -> Iterator[Finding]:
    if len(facts.links) > 2 and pcie_pairs(facts):
        count = len(facts.links)
        yield Finding(
            "custom-all-reduce",
            "note",
            f"{count} GPUs without NVLink between all of them: custom all-reduce is off, and tensor parallelism pays "
            "for it; expert parallelism moves less in each layer of a mixture-of-experts model",
            f"sglang serve ... --tp-size {count} --ep-size {count} --disable-custom-all-reduce",
        )


def narrow_links(facts: Facts) -> Iterator[Finding]:
    for gpu in facts.gpus:
        if gpu.link_width and gpu.link_width_max and gpu.link_width < gpu.link_width_max:
            yield Finding(
                "pcie-width",
                "note",
                f"GPU{gpu.index} ({gpu.name}) runs on {gpu.link_width} of {gpu.link_width_max} PCIe lanes",
                f"sudo lspci -vv -s {gpu.bus[-12:]} | grep -E 'LnkCap|LnkSta'; then reseat the card or its riser, or "
                "take another slot",
            )


def small_shared_memory(facts: Facts) -> Iterator[Finding]:
    size = facts.shared_memory_gib
    here = facts.driver is not None  # an image that is being built has other shared memory than its containers
    if here and len(facts.gpus) > 1 and size is not None and size < _SHARED_MEMORY_GIB:
        yield Finding(
            "shared-memory",
            "error",
            f"/dev/shm has {size:.2f} GiB; NCCL needs more for {len(facts.gpus)} GPUs",
            "docker run --shm-size 16g ..., or sudo mount -o remount,size=16G /dev/shm",
        )


def bad_pairs(facts: Facts) -> list[tuple[int, int, str]]:
    """Ordered pairs of GPUs, and what the driver says where that is not peer access."""
    return [
        (a, b, relation)
        for a, row in enumerate(facts.peers)
        for b, relation in enumerate(row)
        if a != b and relation != "OK"
    ]


def pcie_pairs(facts: Facts) -> list[tuple[int, int]]:
    """Pairs of GPUs that are not joined by NVLink."""
    return [
        (a, b)
        for a, row in enumerate(facts.links)
        for b, way in enumerate(row)
        if a < b and way != "X" and not way.startswith("NV")
    ]


def _switched_off(facts: Facts) -> bool:
    return facts.environment.get("NCCL_P2P_DISABLE", "0") not in ("", "0")


RULES: tuple[Rule, ...] = (peer_access, iommu_translates, custom_all_reduce, narrow_links, small_shared_memory)
