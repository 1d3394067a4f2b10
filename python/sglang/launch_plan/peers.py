"""Peer access between GPUs before a launch: what cannot work is refused, and a collective must answer in time.

A driver may report peer access that does not work: the first collective then never ends, with GPUs at 100 % and idle
power. Where GPUs meet over PCIe or some pairs have no access, one small all-reduce is made beforehand in processes of
its own, once for each boot of a machine; a hang there becomes an error that names the switch that helps.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sglang.cuda_doctor.facts import Facts
from sglang.cuda_doctor.peer_rules import bad_pairs, pcie_pairs

SECONDS = 60.0
# By its path and not as a module: the package sglang takes seconds to import, in each of the ranks.
COLLECTIVE = (sys.executable, "-P", str(Path(__file__).with_name("collective.py")))
NO_P2P = {"NCCL_P2P_DISABLE": "1"}
_NEEDS_PEERS = ("deepep", "mooncake", "nixl")
_BOOT = Path("/proc/sys/kernel/random/boot_id")

Collective = Callable[[int, Mapping[str, str], float], str | None]


@dataclass(frozen=True)
class PeerPlan:
    """How GPUs will talk to each other, in words, and why a launch cannot work (None where it can)."""

    way: str
    problem: str | None = None
    check: bool = False  # whether a collective should be tried first


def plan_peers(facts: Facts, gpus: int, a2a_backend: str, environment: Mapping[str, str]) -> PeerPlan:
    """Decides for a launch over the first ``gpus`` GPUs of one machine; ``a2a_backend`` is --moe-a2a-backend."""
    if gpus < 2 or not facts.gpus:
        return PeerPlan("one GPU" if gpus < 2 else "unknown: no GPU here")
    used = _first(facts, gpus)
    pairs = bad_pairs(used)
    off = environment.get("NCCL_P2P_DISABLE", "0") not in ("", "0")
    if a2a_backend in _NEEDS_PEERS and (pairs or off):
        why = "NCCL_P2P_DISABLE is set" if not pairs else f"there is no peer access between {_listed(pairs)}"
        return PeerPlan(
            "none",
            f"--moe-a2a-backend {a2a_backend}: it needs peer access between all GPUs, and {why}. Leave the flag out: "
            "experts then exchange tokens by all-gather and reduce-scatter.",
        )
    if off:
        return PeerPlan("through host memory, since NCCL_P2P_DISABLE is set")
    total = len(used.peers) * (len(used.peers) - 1)
    if pairs and len(pairs) < total:
        return PeerPlan(f"peer access, and through host memory between {_listed(pairs)}", check=True)
    if pairs:
        return PeerPlan("through host memory: no GPU has peer access")
    over_pcie = pcie_pairs(used)
    way = "peer access over PCIe" if over_pcie else "peer access over NVLink"
    return PeerPlan(way, check=bool(over_pcie))


def try_collective(
    facts: Facts, gpus: int, cache: Path, environment: Mapping[str, str], collective: Collective | None = None
) -> str | None:
    """Makes one all-reduce over the first ``gpus`` GPUs, unless this boot of the machine has seen it work.

    Returns None where it works, else one line with what helps. ``collective`` stands in for the real one in tests.
    """
    stamp = cache / "peer-checks" / _key(facts, gpus, environment)
    if stamp.is_file():
        return None
    run = collective or run_collective
    said = run(gpus, environment, SECONDS)
    if said is None:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.touch()
        return None
    helps = run(gpus, {**environment, **NO_P2P}, SECONDS) is None
    tried = (
        "With NCCL_P2P_DISABLE=1 it works: put that in front of the command and add --disable-custom-all-reduce."
        if helps
        else "Neither does it with NCCL_P2P_DISABLE=1. Try NCCL_SHM_DISABLE=1, NCCL_IB_DISABLE=1 and a larger "
        "/dev/shm; NCCL_DEBUG=INFO tells the reason."
    )
    return f"a collective over {gpus} GPUs {said}, and a server would hang at its first one. {tried}"


def run_collective(
    gpus: int, environment: Mapping[str, str], seconds: float, command: Sequence[str] | None = None
) -> str | None:
    """Returns None if one all-reduce over ``gpus`` ranks ends in time, else what it did, as in "it ...".

    ``command`` starts all ranks; by default they use NCCL on this machine's GPUs.
    """
    command = command or [*COLLECTIVE, str(gpus), "nccl"]
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        return f"did not end within {seconds:.0f} s"
    if process.returncode == 0:
        return None
    last = (errors.strip().splitlines() or ["no message"])[-1]
    return f"failed ({last[:300]})"


def _end(process: subprocess.Popen) -> None:
    """The ranks, too: they are of the process's session."""
    import psutil

    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
    process.kill()
    process.communicate()


def _first(facts: Facts, gpus: int) -> Facts:
    def square(matrix: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        return tuple(row[:gpus] for row in matrix[:gpus])

    return replace(facts, peers=square(facts.peers), links=square(facts.links))


def _key(facts: Facts, gpus: int, environment: Mapping[str, str]) -> str:
    nccl = sorted((name, value) for name, value in environment.items() if name.startswith("NCCL_"))
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    boot = _BOOT.read_text() if _BOOT.is_file() else ""
    parts = repr((boot, facts.driver, facts.nccl, [gpu.bus for gpu in facts.gpus], gpus, visible, nccl))
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def _listed(pairs: Sequence[tuple[int, int, str]]) -> str:
    shown = ", ".join(f"GPU{a} and GPU{b} ({relation})" for a, b, relation in pairs[:6])
    return shown + (f" and {len(pairs) - 6} more" if len(pairs) > 6 else "")


def visible(facts: Facts, environment: Mapping[str, str]) -> Facts:
    """``facts`` with the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; as they are where it names no indices."""
    chosen = environment.get("CUDA_VISIBLE_DEVICES", "").replace(" ", "").split(",")
    if not all(word.isdigit() and int(word) < len(facts.gpus) for word in chosen):
        return facts
    order = [int(word) for word in chosen]

    def picked(matrix: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(matrix[a][b] for b in order) for a in order) if matrix else ()

    gpus = tuple(facts.gpus[index] for index in order)
    return replace(facts, gpus=gpus, peers=picked(facts.peers), links=picked(facts.links))


def default_cache() -> Path:
    """The folder that the server keeps what it compiles in."""
    from sglang.srt.environ import envs

    return Path(os.path.expanduser(envs.SGLANG_CACHE_DIR.get()))
