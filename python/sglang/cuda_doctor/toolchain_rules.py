"""Rules about what compiles kernels: toolkits, host compiler, targets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .facts import Facts
from .findings import Finding, Rule
from .toolkit_rules import NAMED, Choice, choose_toolkit, first_nvcc, text, toolkit_problem
from .toolkits import Toolkit, Version

_OLDEST_TARGET_OF_13 = (7, 5)
_LOST = {"attention": "attention falls back to Triton", "sampling": "sampling falls back to PyTorch"}


def toolkit_choice(facts: Facts) -> Choice:
    """What a server on this machine would compile with."""
    return choose_toolkit(facts.toolkits, capabilities(facts), facts.torch_cuda)


def capabilities(facts: Facts) -> frozenset[Version]:
    return frozenset(gpu.capability for gpu in facts.gpus)


def toolkit_that_serves(facts: Facts) -> Iterator[Finding]:
    choice = toolkit_choice(facts)
    causes: dict[str, list[str]] = {}
    for use, problem in choice.problems.items():
        causes.setdefault(str(problem.cause), []).append(use)
    for cause, uses in causes.items():
        lost = " and ".join(_LOST[use] for use in uses)
        yield Finding("toolkit", "error", f"{cause}: {lost}", choice.problems[uses[0]].fix)


def toolkit_passed_over(facts: Facts) -> Iterator[Finding]:
    """A defective toolkit where JIT compilers look first: the server avoids it, other programs do not."""
    choice = toolkit_choice(facts)
    if choice.toolkit is None:
        return
    for toolkit in facts.toolkits:
        if toolkit.home == choice.toolkit.home:
            return
        problem = _first_problem(toolkit, facts)
        if problem is not None and toolkit.source in (*NAMED, "PATH", "default"):
            yield Finding(
                "toolkit-passed-over",
                "note",
                f"{toolkit.source} leads to a toolkit that cannot be used: {problem}; the server takes "
                f"{choice.toolkit.home} in its place",
                f"export CUDA_HOME={choice.toolkit.home} PATH={choice.toolkit.home}/bin:$PATH",
            )


def newer_driver_needed(facts: Facts) -> Iterator[Finding]:
    chosen = toolkit_choice(facts).toolkit
    if chosen is None or chosen.nvcc is None or facts.driver_cuda is None or chosen.nvcc[0] <= facts.driver_cuda[0]:
        return
    yield Finding(
        "toolkit-newer-than-driver",
        "error",
        f"kernels would be compiled with CUDA {text(chosen.nvcc)} ({chosen.home}), and the driver serves "
        f"{text(facts.driver_cuda)}: their first call fails",
        f"export CUDA_HOME=/usr/local/cuda-{text(facts.driver_cuda)}, or install a driver for CUDA {chosen.nvcc[0]}",
    )


def host_tools(facts: Facts) -> Iterator[Finding]:
    if facts.host_compiler is None and "host_compiler" not in facts.failed:
        yield Finding(
            "host-compiler",
            "error",
            "there is no C++ compiler: nvcc, Triton and FlashInfer need one",
            "sudo apt-get install g++",
        )
    if facts.ninja is None and "ninja" not in facts.failed:
        yield Finding("ninja", "error", "there is no ninja: nothing is compiled without it", "pip install ninja")


def target_lists(facts: Facts) -> Iterator[Finding]:
    chosen = toolkit_choice(facts).toolkit
    for variable in ("FLASHINFER_CUDA_ARCH_LIST", "TORCH_CUDA_ARCH_LIST"):
        asked_for = facts.environment.get(variable, "").strip()
        if not asked_for:
            continue
        reason = _bad_list(asked_for, capabilities(facts), chosen)
        if reason is not None:
            yield Finding("target-list", "error", f"{variable}={asked_for}: {reason}", f"unset {variable}")


def triton_assembler(facts: Facts) -> Iterator[Finding]:
    if facts.triton_ptxas is None or facts.environment.get("TRITON_PTXAS_PATH"):
        return
    for capability in sorted(capabilities(facts)):
        needed = first_nvcc(capability)
        if needed is not None and facts.triton_ptxas < needed:
            chosen = toolkit_choice(facts).toolkit
            own = f"export TRITON_PTXAS_PATH={chosen.home}/bin/ptxas" if chosen else "pip install --upgrade triton"
            yield Finding(
                "triton-ptxas",
                "error",
                f"Triton's ptxas is of CUDA {text(facts.triton_ptxas)}, and a GPU of compute capability "
                f"{text(capability)} needs {text(needed)} or newer",
                own,
            )


def _first_problem(toolkit: Toolkit, facts: Facts) -> str | None:
    for use in _LOST:
        problem = toolkit_problem(toolkit, capabilities(facts), use)
        if problem is not None:
            return problem.cause
    return None


def _bad_list(asked_for: str, present: frozenset[Version], chosen: Toolkit | None) -> str | None:
    entries = [entry for entry in re.split(r"[\s,;]+", asked_for) if entry]
    listed = {}
    for entry in entries:
        match = re.fullmatch(r"(\d+)\.(\d+)[af]?(?:\+PTX)?", entry)
        if match is None:
            if entry.removesuffix("+PTX").isalpha():
                return None  # PyTorch knows names of generations, too
            return f"{entry!r} is no compute capability"
        listed[(int(match[1]), int(match[2]))] = entry
    old = [entry for capability, entry in listed.items() if capability < _OLDEST_TARGET_OF_13]
    if old and chosen is not None and chosen.nvcc is not None and chosen.nvcc[0] >= 13:
        return f"nvcc {text(chosen.nvcc)} no longer builds for {', '.join(old)}"
    missing = sorted(text(capability) for capability in present - listed.keys())
    if missing:
        return f"it does not name this machine's GPUs ({', '.join(missing)}), so kernels would not run on them"
    return None


RULES: tuple[Rule, ...] = (
    toolkit_that_serves,
    toolkit_passed_over,
    newer_driver_needed,
    host_tools,
    target_lists,
    triton_assembler,
)
