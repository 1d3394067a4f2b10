"""The doctor's report: as text for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .facts import Facts, to_json
from .findings import Finding
from .toolchain_rules import toolkit_choice
from .toolkit_rules import WHERE, text
from .toolkits import Toolkit, Version


def as_text(facts: Facts, findings: Sequence[Finding]) -> str:
    """Facts, one line each, then the findings with their fixes, then one line that sums up."""
    lines = [*_machine(facts), *_toolkits(facts), *_gpus(facts), *_failures(facts), ""]
    for finding in findings:
        lines += [f"[{finding.severity}] {finding.name}: {finding.what}", f"    fix: {finding.fix}"]
    return "\n".join([*lines, _summary(facts, findings)])


def as_json(facts: Facts, findings: Sequence[Finding]) -> dict[str, Any]:
    """``facts`` can be judged again with ``--facts``; ``chosen`` is the toolkit that a server would take."""
    choice = toolkit_choice(facts)
    return {
        "chosen": {"home": choice.toolkit.home if choice.toolkit else None, "reason": choice.reason},
        "findings": [vars(finding) for finding in findings],
        "facts": to_json(facts),
    }


def _machine(facts: Facts) -> Iterator[str]:
    flashinfer = facts.flashinfer
    yield f"Python {facts.python} on {facts.machine}"
    yield f"PyTorch {facts.torch or 'not installed'}, built with CUDA {_or_none(facts.torch_cuda)}"
    yield (
        f"FlashInfer {flashinfer.version or 'not installed'}, prebuilt kernels {flashinfer.jit_cache or 'none'}, "
        f"binaries {flashinfer.cubin or 'none'}"
    )
    yield f"driver {facts.driver or 'none'}, serves CUDA up to {_or_none(facts.driver_cuda)}"
    yield f"NCCL {facts.nccl or 'none'}"
    yield f"C++ compiler {facts.host_compiler or 'none'}, ninja {facts.ninja or 'none'}"
    yield f"NUMA nodes {facts.numa_nodes or 'unknown'}, /dev/shm {facts.shared_memory_gib} GiB"
    for disk in facts.disks:
        kind = {True: "rotating", False: "solid state", None: "unknown kind"}[disk.rotational]
        yield f"models {disk.folder}: {disk.filesystem}, {kind}, {disk.free_gib} GiB free"
    for cache in facts.caches:
        yield f"kernel cache {cache.folder}: {cache.modules} modules"


def _toolkits(facts: Facts) -> Iterator[str]:
    chosen = toolkit_choice(facts).toolkit
    if not facts.toolkits:
        yield "CUDA toolkits: none"
    for toolkit in facts.toolkits:
        mark = "*" if chosen is not None and chosen.home == toolkit.home else " "
        yield f"{mark} toolkit {toolkit.home} ({WHERE[toolkit.source]}): {_describe(toolkit)}"


def _describe(toolkit: Toolkit) -> str:
    if toolkit.problem:
        return toolkit.problem
    missing = f", without {', '.join(toolkit.missing)}" if toolkit.missing else ""
    return (
        f"nvcc {toolkit.build or _or_none(toolkit.nvcc)}, headers {_or_none(toolkit.headers)}, "
        f"libcudart {toolkit.runtime or 'none'}{missing}"
    )


def _gpus(facts: Facts) -> Iterator[str]:
    for gpu in facts.gpus:
        memory = f"{gpu.memory_mib} MiB" if gpu.memory_mib else "no memory of its own"
        link = f", PCIe {gpu.link_generation} x{gpu.link_width}" if gpu.link_width else ""
        yield f"GPU{gpu.index} {gpu.name}: compute capability {text(gpu.capability)}, {memory}{link}"
    if not facts.gpus:
        yield "GPUs: none"


def _failures(facts: Facts) -> Iterator[str]:
    for probe, reason in facts.failed.items():
        yield f"not read: {probe}: {reason}"


def _summary(facts: Facts, findings: Sequence[Finding]) -> str:
    errors = sum(finding.severity == "error" for finding in findings)
    if errors:
        return f"{errors} to mend, {len(findings) - errors} to know."
    return "Nothing needs a hand." if facts.gpus else "No GPU here; nothing else needs a hand."


def _or_none(version: Version | None) -> str:
    return text(version) if version else "none"
