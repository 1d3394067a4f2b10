"""The server of a run in the sweep's terms, its memory, and whether it is what was asked for."""

from pathlib import Path
from typing import Any

from benchmark.sweep.config import Configuration, Flag, SweepConfig, SweepError, Workload

from .floor import traffic
from .pinned_width import environment_of_pins
from .plan import Plan, Server
from .shapes import BLOCK_SIZE, write_pair

LOG_INTERVAL = 2  # rounds between two that the server times
_GIB = 1 << 30
_ACTIVATIONS_GIB = 14  # of a chunk of a prompt; the graphs themselves, and each backend's partial results
_SPARE_KV = 1.25  # admission counts with more than a request will need
_LEAST_KV = 8192


def server_config(plan: Plan, server: Server, folder: Path, pins: Path) -> tuple[SweepConfig, Configuration]:
    """Returns the server in the sweep's terms; writes the configurations of target and draft below ``folder``.

    Its rounds have the width that is pinned in the folder ``pins``.
    """
    target, draft = write_pair(plan.shape, folder / "models" / f"{plan.shape.name}-{plan.shape.layers}")
    flags: dict[str, Flag] = {
        "load-format": "dummy",
        "skip-tokenizer-init": True,
        "skip-server-warmup": True,
        "decode-log-interval": LOG_INTERVAL,
        "log-level": "warning",
        "max-running-requests": server.batches[-1],
        **(_gpu_flags(plan, server, plan.gpu_memory_mib) if plan.gpu_memory_mib is not None else {}),
        **plan.flags,
    }
    trees: dict[str, Flag] = {
        "speculative-algorithm": "DFLASH",
        "speculative-dflash-tree-budget": "auto",
        "speculative-dflash-widths": list(server.widths),
    }
    configuration = Configuration(
        name=server.name,
        flags={**flags, **(trees if server.speculates else {})},
        env=environment_of_pins(pins, server.most_tokens()) if server.speculates else {},
        force_accept_length=1 if server.speculates else None,
    )
    config = SweepConfig(
        name=plan.shape.name,
        model=str(target),
        draft=str(draft),
        seed=plan.seed,
        startup_seconds=plan.startup_seconds,
        workloads=[Workload(name="round", prompts="random")],
        concurrency=list(plan.batches),
        configurations=[configuration],
    )
    return config, configuration


def check_chooses(server: Server, info: dict[str, Any]) -> None:
    """Raises SweepError where a server of trees does not choose among the widths that it was given."""
    states = [state for state in info.get("internal_states") or [] if isinstance(state, dict)]
    rounds = [state["spec_rounds"] for state in states if state.get("spec_rounds")]
    found = sorted({int(width) for each in rounds for width in each.get("widths", {}).get("emitted_by_width", {})})
    if server.speculates and found != list(server.widths):
        raise SweepError(
            f"--speculative-dflash-tree-budget auto was asked for with widths {_text(server.widths)}, and the server "
            f"chooses from {_text(found) or 'none'}: it cannot with this target, draft or version, its log says why"
        )


def kv_room(info: dict[str, Any]) -> int | None:
    """Tokens of KV that the server has, by its ``/server_info``."""
    states = [state for state in info.get("internal_states") or [] if isinstance(state, dict)]
    return next((state["memory_usage"]["token_capacity"] for state in states if "memory_usage" in state), None)


def _gpu_flags(plan: Plan, server: Server, memory_mib: int) -> dict[str, Flag]:
    return {
        # Triton for plain decoding as well, so that widths compare.
        "attention-backend": "triton",
        "cuda-graph-bs-decode": server.batches,
        "cuda-graph-backend-prefill": "disabled",  # compiling takes minutes, and prompts are not measured
        "mem-fraction-static": memory_fraction(plan, server, memory_mib),
        # What the cells need and no more; graphs and logits have the rest.
        "max-total-tokens": max(_LEAST_KV, int(_SPARE_KV * server.kv_tokens(server.batches[-1]))),
    }


def memory_fraction(plan: Plan, server: Server, memory_mib: int) -> float:
    """Share of a GPU's memory for weights and KV; the rest is for what the widest rounds compute."""
    config, memory, ranks = plan.shape.config, memory_mib << 20, int(plan.flags.get("tp-size", 1))
    rows, batch = server.most_tokens(), server.batches[-1]
    # Logits in float32 that all graphs write to, before it the head's own output and a copy; the draft's likewise.
    drafted = batch * (BLOCK_SIZE - 1) if server.speculates else 0
    logits = 8 * config["vocab_size"] * (rows + drafted)
    # Masks of a byte per token and position, and the slots that attention reads, of target and draft.
    positions = config["max_position_embeddings"] * (2 * rows + 16 * batch)
    free = logits + positions + _ACTIVATIONS_GIB * _GIB
    weights = traffic(config, 1, 1 << 14, 0).weights / ranks
    return round(min(0.88, max(1 - free / memory, weights / memory + 0.08)), 2)


def _text(numbers: object) -> str:
    return " ".join(map(str, numbers))
