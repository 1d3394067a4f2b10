"""Measured round costs, kept from one start of a server to the next."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.environ import envs
from sglang.srt.platforms import current_platform
from sglang.srt.utils.common import get_device_name

logger = logging.getLogger(__name__)

Costs = dict[tuple[int, int], float]  # seconds by (class of batch sizes, width)

SAVE_SECONDS = 60.0
# What a round's cost depends on, beside the device and the versions.
_ARGUMENTS = (
    "model_path",
    "revision",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "page_size",
    "attention_backend",
    "moe_runner_backend",
    "speculative_draft_model_path",
    "speculative_draft_attention_backend",
    "speculative_dflash_block_size",
    "speculative_dflash_tree_topk",
    "tp_size",
    "pp_size",
    "ep_size",
    "disable_overlap_schedule",
)


class RoundCostsFile:
    """One JSON file per machine and configuration: `{"about": {...}, "seconds": [[batch class, width, seconds]]}`."""

    def __init__(self, folder: Path, about: dict[str, str]) -> None:
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        self.path = folder / f"{digest}.json"
        self._about = about
        self._saved_at = time.monotonic()

    def load(self) -> Costs:
        """What an earlier run measured; nothing, with a warning, where the file cannot be read."""
        try:
            rows = json.loads(self.path.read_text())["seconds"]
            return {(int(size), int(width)): float(seconds) for size, width, seconds in rows}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("%s: not read (%s); round costs are measured anew.", self.path, error)
            return {}

    def save(self, costs: Costs) -> None:
        """Write `costs` whole or not at all; a folder that takes no file costs a warning."""
        self._saved_at = time.monotonic()
        rows = [[size, width, seconds] for (size, width), seconds in costs.items()]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=self.path.parent, suffix=".new")
            with os.fdopen(descriptor, "w") as file:
                json.dump({"about": self._about, "seconds": rows}, file)
            os.replace(temporary, self.path)
        except OSError as error:
            logger.warning("%s: not written (%s); the next start measures round costs anew.", self.path, error)

    def is_due(self) -> bool:
        """Whether the last save, or the start, is long enough ago."""
        return time.monotonic() - self._saved_at >= SAVE_SECONDS


def round_costs_file(server_args: Any) -> RoundCostsFile:
    """The file of this server on this machine; SGLANG_CACHE_DIR moves it, as it does upstream's caches."""
    cfg = resolving_view(server_args)
    about = {name: str(getattr(cfg, name)) for name in _ARGUMENTS}
    about |= {"device": _device_name(), "torch": version("torch"), "sglang": version("sglang")}
    return RoundCostsFile(Path(envs.SGLANG_CACHE_DIR.get()).expanduser() / "dflash_round_costs", about)


def _device_name() -> str:
    if current_platform.is_out_of_tree():
        return f"{current_platform.get_device_name()} ({os.cpu_count()} cores)"
    return get_device_name()
