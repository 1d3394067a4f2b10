"""One CUDA toolkit for everything that a server compiles, and FlashInfer only where it can get its kernels.

FlashInfer and upstream's kernels are compiled on first use, with the nvcc of CUDA_HOME or CUDA_PATH, else the one on
PATH, else the one of /usr/local/cuda; what it can build decides, not the CUDA that PyTorch was built with. Before the
first of them, one toolkit is chosen by the rules of ``sglang.cuda_doctor.toolkit_rules`` and set for this process and
those that it starts. Prebuilt FlashInfer kernels, where a package with them is installed, need no toolkit.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sglang.cuda_doctor.toolkit_rules import (
    Choice,
    Problem,
    choose_toolkit,
    compile_environment,
    target_list,
    text,
)
from sglang.cuda_doctor.toolkits import DEFAULT_HOME, Toolkit, Version, find_toolkits, named_home
from sglang.srt.environ import envs, third_party_cache_defaults
from sglang.srt.utils.jit_cache import cache_key, compiled_versions, drop_half_finished
from sglang.srt.utils.link_libraries import link_libraries

if TYPE_CHECKING:
    from sglang.srt.server_args import ServerArgs

logger = logging.getLogger(__name__)

ARCH_LIST_VARIABLE = "FLASHINFER_CUDA_ARCH_LIST"
_WORKSPACE_VARIABLE = "FLASHINFER_WORKSPACE_BASE"
_CUBIN_VARIABLE = "FLASHINFER_CUBIN_DIR"
_OTHER_BACKEND = {"attention": "triton", "sampling": "pytorch"}


@functools.cache
def chosen_toolkit() -> Choice:
    """The toolkit that this machine's GPUs are compiled for with; chosen and set for this process by the first call.

    Sets CUDA_HOME, the list of target architectures and the folder of FlashInfer's kernels, and logs one line.
    """
    capabilities = _capabilities()
    toolkits = find_toolkits(default_home=DEFAULT_HOME)
    choice = choose_toolkit(toolkits, capabilities, _torch_cuda())
    if choice.toolkit is None:
        return choice
    toolkit, named = choice.toolkit, named_home(os.environ)
    cache = Path(os.path.expanduser(envs.SGLANG_CACHE_DIR.get()))
    links = cache / "cuda-links" / cache_key(toolkit, "", {})
    environment = compile_environment(toolkit, os.environ, links)
    if "LIBRARY_PATH" in environment:
        link_libraries(toolkit, links)
    os.environ.update(environment)
    os.environ[ARCH_LIST_VARIABLE] = arch_list(capabilities, toolkit.nvcc)
    workspace = _set_flashinfer_cache(toolkit, os.environ[ARCH_LIST_VARIABLE])
    replaced = f" in place of {named[1]}={named[0]}" if named and toolkit.source != named[1] else ""
    logger.info(
        "CUDA toolkit: %s (nvcc %s)%s, %s; targets %s; FlashInfer's kernels in %s",
        toolkit.home,
        toolkit.build or text(toolkit.nvcc),
        replaced,
        choice.reason,
        os.environ[ARCH_LIST_VARIABLE],
        workspace,
    )
    return choice


def flashinfer_problem(
    capabilities: Collection[Version],
    use: str,
    choice: Choice,
    prebuilt: frozenset[str],
    environment: Mapping[str, str],
) -> Problem | None:
    """Why FlashInfer cannot get its kernels for GPUs of compute ``capabilities``, or None if it can.

    ``use`` is "attention" or "sampling"; ``prebuilt`` holds the architectures of installed prebuilt kernels ("sm90a").
    """
    if capabilities and all(any(_runs_on(built, gpu) for built in prebuilt) for gpu in capabilities):
        return None
    if environment.get("FLASHINFER_DISABLE_JIT"):
        return Problem(
            "FLASHINFER_DISABLE_JIT is set and no prebuilt kernels for this GPU are installed",
            "unset it, or pip install flashinfer-jit-cache",
        )
    return choice.problems.get(use)


def choose_flashinfer(available: bool, use: str) -> bool:
    """Whether to choose FlashInfer by default for ``use`` ("attention" or "sampling").

    ``available`` says whether it is installed on a CUDA machine. If it cannot get its kernels, the reason is logged
    once and the answer is no: the default is then a backend that compiles nothing with nvcc.
    """
    if not available:
        return False
    problems = _problems()
    if problems:
        taken = " and ".join(f"{_OTHER_BACKEND[lost]} for {lost}" for lost in problems)
        causes = "; ".join(dict.fromkeys(str(problem) for problem in problems.values()))
        _warn_once(f"FlashInfer cannot compile its kernels here, so the default is {taken}: {causes}.")
    return use not in problems


def prepare_toolkit(server_args: ServerArgs) -> None:
    """Set the toolkit for the processes of a launch, and say if FlashInfer, asked for by name, cannot compile here.

    A warning and no refusal, since kernels that an earlier start compiled are in FlashInfer's cache.
    """
    from sglang.srt.arg_groups.overrides import attention_backends_of, resolved_view
    from sglang.srt.runtime_context import get_platform

    if not get_platform().is_cuda:
        return
    problems = _problems()
    view = resolved_view(server_args)
    named = {
        "attention": "flashinfer" in (*attention_backends_of(view), view.speculative_draft_attention_backend),
        "sampling": view.sampling_backend == "flashinfer",
    }
    for use, problem in problems.items():
        if named[use] and get_platform().has_flashinfer:
            _warn_once(
                f"--{use}-backend flashinfer: FlashInfer cannot compile its kernels: {problem}. Unless an earlier "
                f"start compiled them, the first use fails; --{use}-backend {_OTHER_BACKEND[use]} needs no nvcc."
            )


def runtime_arch_list(capability: Version, upstream_default: str) -> str:
    """The architectures that a model process builds for: as launched, or where nothing was chosen, upstream's own."""
    if os.environ.get(ARCH_LIST_VARIABLE, "").strip():
        return arch_list({capability}, None)
    chosen_toolkit()
    return os.environ.get(ARCH_LIST_VARIABLE) or upstream_default


def arch_list(capabilities: Collection[Version], nvcc: Version | None) -> str:
    """The architectures that FlashInfer should build for, as its environment variable spells them.

    What the user set is kept, in the separators that FlashInfer reads. Raises ValueError for a user's list that is
    none.
    """
    asked_for = os.environ.get(ARCH_LIST_VARIABLE, "").strip()
    return _normalized(asked_for, capabilities) if asked_for else target_list(capabilities, nvcc)


@functools.cache
def prebuilt_architectures() -> frozenset[str]:
    """Architectures of the prebuilt kernels that are installed beside FlashInfer; empty without any."""
    if importlib.util.find_spec("flashinfer_jit_cache") is None:
        return frozenset()
    try:
        providers = importlib.import_module("flashinfer_jit_cache").get_jit_cache_providers()
        return frozenset(architecture for provider in providers for architecture in provider.cuda_architectures)
    except Exception as error:
        logger.warning("flashinfer-jit-cache is installed and cannot be read: %s", error)
        return frozenset()


def _problems() -> dict[str, Problem]:
    """By use of FlashInfer, why it cannot get its kernels; empty where it can."""
    choice, capabilities = chosen_toolkit(), _capabilities()
    found = {
        use: flashinfer_problem(capabilities, use, choice, prebuilt_architectures(), os.environ)
        for use in _OTHER_BACKEND
    }
    return {use: problem for use, problem in found.items() if problem is not None}


def _set_flashinfer_cache(toolkit: Toolkit, targets: str) -> Path:
    """Give FlashInfer's kernels a folder of their own for what they are compiled from, unless the user named one."""
    default = third_party_cache_defaults()[_WORKSPACE_VARIABLE]
    present = os.environ.get(_WORKSPACE_VARIABLE, default)
    if present == default:
        if importlib.util.find_spec("flashinfer_cubin") is None:
            # Fetched binaries depend on FlashInfer's version alone: one copy for all folders.
            os.environ.setdefault(_CUBIN_VARIABLE, str(Path(default, ".cache", "flashinfer", "cubins")))
        present = str(Path(default, "flashinfer", cache_key(toolkit, targets, compiled_versions())))
        os.environ[_WORKSPACE_VARIABLE] = present
    dropped = drop_half_finished(Path(present))
    if dropped:
        logger.warning("Half-finished FlashInfer builds were removed and will be compiled anew: %s", ", ".join(dropped))
    return Path(present)


def _capabilities() -> frozenset[Version]:
    import torch

    from sglang.srt.runtime_context import get_platform

    others = {torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())}
    return frozenset(others | {get_platform().device_capability})


def _torch_cuda() -> Version | None:
    import torch

    if torch.version.cuda is None:
        return None
    major, minor = torch.version.cuda.split(".")[:2]
    return int(major), int(minor)


def _runs_on(architecture: str, capability: Version) -> bool:
    """Whether kernels built for ``architecture`` run on the GPU: "a" targets on their own, others on later ones too."""
    target = re.fullmatch(r"sm(\d{1,2})(\d)([af]?)", architecture)
    if target is None or int(target[1]) != capability[0]:
        return False
    return int(target[2]) == capability[1] or (target[3] != "a" and int(target[2]) < capability[1])


def _normalized(asked_for: str, capabilities: Collection[Version]) -> str:
    entries = re.split(r"[\s,;]+", asked_for.strip(" ,;"))
    for entry in entries:
        if not re.fullmatch(r"\d+\.\d+[af]?", entry):
            raise ValueError(
                f"{ARCH_LIST_VARIABLE}={asked_for!r}: {entry!r} is no compute capability. Write them as in "
                "'9.0a 12.0f', or unset the variable."
            )
    missing = {text(capability) for capability in capabilities} - {entry.rstrip("af") for entry in entries}
    if missing:
        logger.warning(
            "%s=%s does not name this GPU (%s): FlashInfer's kernels will not run on it.",
            ARCH_LIST_VARIABLE,
            asked_for,
            ", ".join(sorted(missing)),
        )
    return " ".join(entries)


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning(message)
