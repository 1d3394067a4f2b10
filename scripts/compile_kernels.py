"""compile_kernels.py [--out FILE]: compiles what DFLASH serving compiles on first use, for SM90, SM100 and SM120.

It needs nvcc 13 and no GPU: the FlashInfer modules that an MHA target, a target with latent attention, their drafts and
the sampler use, and the fork's own Triton kernels. Each object is then asked what machine code it holds. Modules that
the result file already has are not compiled again, so a run that was stopped goes on; it takes an hour or two.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "test" / "kernel" / "compiled_kernels.json"
WORK = ROOT / "build" / "flashinfer"
TARGETS = {"sm_90a": (9, 0), "sm_100a": (10, 0), "sm_120f": (12, 0)}
ARCH_LIST = "9.0a 10.0a 12.0f"
TRITON_TARGETS = {"sm_90a": 90, "sm_100a": 100, "sm_120a": 120}  # Triton builds for one chip, not for its family
SHARED_LIMIT = {"sm_90a": 232448, "sm_100a": 232448, "sm_120a": 101376}  # bytes that a block may have
HEAD, LATENT, ROPE, LATENT_PREFILL = 128, 512, 64, (192, 128)


@dataclass
class Compiled:
    """One module: kernels of machine code by target, seconds of the compilation, and what went wrong."""

    module: str
    use: str
    kernels: dict[str, int] = field(default_factory=dict)
    shared_bytes: dict[str, int] = field(default_factory=dict)  # most of a kernel; FlashInfer's own is asked at launch
    seconds: float = 0.0
    problem: str | None = None


def main() -> int:
    """Returns 0, 1 where a module has no machine code for a target, 2 where nothing can be compiled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULT, help="result file (default: the committed one)")
    parser.add_argument("--again", action="store_true", help="compile also what the result file has")
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT / "test")]
    setup = prepare()
    if isinstance(setup, str):
        print(f"error: {setup}", file=sys.stderr)
        return 2
    done = {} if options.again else read(options.out, setup)
    for name, use, targets, compile_module in modules():
        if name in done:
            continue
        print(f"==> {name}: {use}", flush=True)
        compiled = Compiled(name, use)
        begin = time.monotonic()
        try:
            compile_module(compiled)
        except (RuntimeError, ValueError) as error:
            compiled.problem = str(error)[-2000:]
        compiled.seconds = round(time.monotonic() - begin, 1)
        missing = [target for target in targets if not compiled.kernels.get(target)]
        if missing and compiled.problem is None:
            compiled.problem = f"no machine code for {', '.join(missing)}"
        print(f"    {compiled.kernels} in {compiled.seconds:.0f} s {compiled.problem or ''}", flush=True)
        done[name] = asdict(compiled)
        options.out.write_text(json.dumps({"setup": setup, "modules": list(done.values())}, indent=1) + "\n")
    return int(any(entry["problem"] for entry in done.values()))


def prepare() -> dict[str, Any] | str:
    """Sets the toolkit for this process; returns what was compiled with, or why nothing can be."""
    from sglang.cuda_doctor.toolkit_rules import choose_toolkit, compile_environment
    from sglang.cuda_doctor.toolkits import find_toolkits
    from sglang.srt.utils.link_libraries import link_libraries

    choice = choose_toolkit(find_toolkits(), set(TARGETS.values()))
    if choice.toolkit is None or choice.problems:
        problems = [str(problem) for problem in choice.problems.values()]
        return f"{'; '.join(problems) or choice.reason}; make compile-kernels installs what is needed"
    WORK.mkdir(parents=True, exist_ok=True)
    environment = compile_environment(choice.toolkit, os.environ, WORK / "links")
    if "LIBRARY_PATH" in environment:
        link_libraries(choice.toolkit, WORK / "links")
    os.environ.update(environment)
    os.environ.update(FLASHINFER_CUDA_ARCH_LIST=ARCH_LIST, FLASHINFER_WORKSPACE_BASE=str(WORK), MAX_JOBS="1")
    try:
        versions = {name: version(name) for name in ("flashinfer-python", "triton", "torch")}
    except ModuleNotFoundError as error:
        return f"no package {error.name}: make compile-kernels installs what is needed"
    return {"nvcc": choice.toolkit.build, **versions, "system": platform.system(), "machine": platform.machine()}


def read(path: Path, setup: dict[str, Any]) -> dict[str, dict]:
    """Returns the modules that ``path`` has of this setup, those that failed left out."""
    if not path.is_file():
        return {}
    content = json.loads(path.read_text())
    if content["setup"] != setup:
        return {}
    return {entry["module"]: entry for entry in content["modules"] if entry["problem"] is None}


def modules() -> Iterator[tuple[str, str, list[str], Callable[[Compiled], None]]]:
    """Yields name, use, targets and the compilation of each module, the short ones first."""
    from harness.draft_tree_kernels import LAUNCHES

    for name in LAUNCHES:
        yield f"draft_tree {name}", "the fork's own", list(TRITON_TARGETS), _triton(name)
    for name, use, targets, make_spec in flashinfer_modules():
        yield f"flashinfer {name}", use, targets, _nvcc(make_spec)


def flashinfer_modules() -> Iterator[tuple[str, str, list[str], Callable[[], Any]]]:
    """Yields name, use, targets and the maker of the JitSpec of each FlashInfer module."""
    import torch
    from flashinfer.jit import attention, cascade, page, quantization, sampling, topk
    from flashinfer.jit.attention.modules import _gen_batch_prefill_primary_module as prefill_fa2

    mla, prefill = attention.gen_batch_mla_module, attention.gen_batch_prefill_module
    every, hopper = list(TARGETS), ["sm_90a"]
    kv = (torch.bfloat16,) * 3 + (torch.int32,)
    plain = (0, False, False)  # positions are encoded outside, no sliding window, no soft cap
    mha, latent, wide = (*kv, HEAD, HEAD, *plain), (*kv, LATENT, ROPE, False), (*kv, *LATENT_PREFILL, *plain)
    yield "page", "KV pages", every, page.gen_page_module
    yield "quantization", "packed masks of draft trees", every, quantization.gen_quantization_module
    yield "cascade", "merging attention states", every, cascade.gen_cascade_module
    yield "sampling", "top-k, top-p and min-p", every, sampling.gen_sampling_module
    yield "decode", "MHA, decode", every, lambda: attention.gen_batch_decode_module(*mha)
    yield "mla", "latent attention, decode and verify", every, lambda: mla("fa2", *latent)
    yield "prefill", "MHA, prefill and verify; the draft", every, lambda: prefill_fa2("fa2", *mha, False)
    yield "prefill_mla", "latent attention, prefill", every, lambda: prefill_fa2("fa2", *wide, False)
    yield "mla_sm90", "latent attention, decode and verify", hopper, lambda: mla("fa3", *latent)
    yield "prefill_sm90", "MHA, prefill", hopper, lambda: prefill("fa3", *mha, False)
    yield "prefill_mla_sm90", "latent attention, prefill", hopper, lambda: prefill("fa3", *wide, False)
    # Last, since it takes as long as all the others.
    yield "topk", "candidates of drafts with a selector", every, topk.gen_topk_module


def _nvcc(make_spec: Callable[[], Any]) -> Callable[[Compiled], None]:
    def compile_module(compiled: Compiled) -> None:
        spec = make_spec()
        spec.write_ninja()
        objects = re.findall(r"^build (\S+\.o):", spec.ninja_path.read_text(), re.MULTILINE)
        run(["ninja", "-j1", "-f", str(spec.ninja_path), *objects], cwd=spec.build_dir)
        for path in objects:
            if path.endswith(".cuda.o"):
                count_machine_code(Path(path), compiled)

    return compile_module


def count_machine_code(path: Path, compiled: Compiled) -> None:
    """Adds the kernels of an object file to ``compiled``, by the target of their machine code."""
    kernels: Counter[str] = Counter(compiled.kernels)
    target = None
    for line in run([tool("cuobjdump"), "--dump-resource-usage", str(path)]).splitlines():
        if found := re.match(r"arch = (sm_\w+)", line.strip()):
            target = found[1]
        elif target and re.match(r"Function \S+:", line.strip()):
            kernels[target] += 1
    compiled.kernels = dict(sorted(kernels.items()))


def _triton(name: str) -> Callable[[Compiled], None]:
    def compile_module(compiled: Compiled) -> None:
        from harness.draft_tree_kernels import LAUNCHES, compile_for, recorded

        launched = recorded(LAUNCHES[name][0])
        for target, architecture in TRITON_TARGETS.items():
            shared = 0
            for kernel, arguments, keywords in launched:
                built = compile_for(architecture, kernel, arguments, keywords)
                shared = max(shared, built.metadata.shared)
                path = WORK / f"{kernel.fn.__name__}.{target}.cubin"
                path.write_bytes(built.asm["cubin"])
                found = re.search(r"^\s*\.target\s+(sm_\w+)", run([tool("nvdisasm"), str(path)]), re.MULTILINE)
                if found:
                    compiled.kernels[found[1]] = compiled.kernels.get(found[1], 0) + 1
            compiled.shared_bytes[target] = shared
            if shared > SHARED_LIMIT[target]:
                raise RuntimeError(f"{shared} bytes of shared memory on {target}, which has {SHARED_LIMIT[target]}")

    return compile_module


def tool(name: str) -> str:
    """Path of one of the CUDA tools that Triton brings along."""
    import triton

    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name)


def run(command: list[str], **options: Any) -> str:
    """Returns the output. Raises RuntimeError with its end if the command fails."""
    answer = subprocess.run(command, capture_output=True, text=True, **options)
    if answer.returncode:
        raise RuntimeError(
            f"{command[0]} ended with status {answer.returncode}: {(answer.stdout + answer.stderr)[-1500:]}"
        )
    return answer.stdout


if __name__ == "__main__":
    sys.exit(main())
