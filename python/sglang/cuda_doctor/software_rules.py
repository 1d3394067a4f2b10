"""Rules about FlashInfer and the kernels that it has compiled."""

from __future__ import annotations

from collections.abc import Iterator

from .facts import Facts
from .findings import Finding, Rule, anywhere


def flashinfer_packages(facts: Facts) -> Iterator[Finding]:
    """Packages that go with FlashInfer are of its version. A local part ("+cu130") names a build, not a version."""
    if "flashinfer" in facts.failed:
        return
    main = facts.flashinfer.version
    if main is None:
        yield Finding(
            "flashinfer-absent",
            "note",
            "FlashInfer is not installed: attention is Triton's and sampling PyTorch's",
            "pip install flashinfer-python==0.7.2",
        )
        return
    others = {"flashinfer-jit-cache": facts.flashinfer.jit_cache, "flashinfer-cubin": facts.flashinfer.cubin}
    for package, version in others.items():
        if version is not None and _public(version) != _public(main):
            yield Finding(
                "flashinfer-versions",
                "error",
                f"flashinfer-python is {main} and {package} is {version}",
                f"pip install {package}=={_public(main)}, or pip uninstall {package}",
            )


@anywhere
def broken_caches(facts: Facts) -> Iterator[Finding]:
    for cache in facts.caches:
        if cache.broken:
            yield Finding(
                "cache-broken",
                "error",
                f"{len(cache.broken)} of {cache.modules} compiled FlashInfer modules in {cache.folder} were cut off "
                "while being written",
                f"rm -r {' '.join(cache.broken)}",
            )


@anywhere
def mixed_caches(facts: Facts) -> Iterator[Finding]:
    for cache in facts.caches:
        if len(cache.toolkits) > 1:
            yield Finding(
                "cache-mixed",
                "note",
                f"FlashInfer modules in {cache.folder} were compiled with several toolkits, and each change compiles "
                f"everything again: {', '.join(cache.toolkits)}",
                f"rm -r {cache.folder}/.cache/flashinfer",
            )


def _public(version: str) -> str:
    return version.partition("+")[0]


RULES: tuple[Rule, ...] = (flashinfer_packages, broken_caches, mixed_caches)
