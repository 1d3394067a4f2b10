"""The plan of one launch: layout, memory, backends and graphs, with what is assumed and what cannot work."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sglang.cuda_doctor.facts import Facts, Gpu
from sglang.launch_plan import memory as parts
from sglang.launch_plan.checkpoint import Tensor
from sglang.launch_plan.layout import Layout
from sglang.launch_plan.memory import Memory, gib
from sglang.launch_plan.peers import PeerPlan, plan_peers


@dataclass(frozen=True)
class Model:
    """What the plan knows about a target or a draft; ``tensors`` is None where the checkpoint's sizes are unknown."""

    path: str
    tensors: Sequence[Tensor] | None
    kv_per_token_and_layer: float  # bytes on one GPU
    layers: int


@dataclass(frozen=True)
class Asked:
    """The resolved arguments that a plan rests on."""

    layout: Layout
    target: Model
    draft: Model | None
    device: str
    backends: Mapping[str, str]  # what it is for, to name and reason
    mem_fraction_static: float
    max_total_tokens: int | None
    context_length: int
    page_size: int
    verify_width: int | None  # tokens of one request that a round verifies; None without speculation
    verify_widths: Sequence[int]  # where the width is chosen per round; else empty
    graph_batches: Sequence[int]
    graphs: str  # backend of the decode graphs: "full", "disabled", ...
    moe_a2a_backend: str
    fraction_assumed: bool  # nobody named --mem-fraction-static, and this machine has no GPU to derive it from
    weights_as_stored: bool  # False where quantization or offloading at load changes their size
    experts: int = 0


@dataclass
class Plan:
    """The plan, as tables of text, and its findings."""

    layout: list[list[str]] = field(default_factory=list)
    memory: list[list[str]] = field(default_factory=list)
    choices: list[list[str]] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    peers: PeerPlan = field(default_factory=lambda: PeerPlan("one GPU"))


def make_plan(asked: Asked, facts: Facts, environment: Mapping[str, str] = os.environ) -> Plan:
    """Judges ``asked`` on the machine of ``facts``."""
    plan = Plan()
    layout = asked.layout
    plan.layout = [_layout_row(asked, rank) for rank in range(layout.world)]
    if facts.gpus and asked.device != "cuda":
        plan.assumed.append(f"backends are those of this machine ({asked.device}); on the GPUs, defaults may be others")
    if asked.fraction_assumed:
        plan.assumed.append(
            f"--mem-fraction-static {asked.mem_fraction_static:g}, which a launch on the GPUs may refine"
        )
    _plan_memory(asked, facts, plan)
    plan.peers = plan_peers(facts, layout.world, asked.moe_a2a_backend, environment)
    if plan.peers.problem:
        plan.problems.append(plan.peers.problem)
    if facts.gpus and layout.world > len(facts.gpus):
        plan.problems.append(
            f"--tp-size {layout.tp_size} --pp-size {layout.pp_size}: {layout.world} GPUs are needed and there are "
            f"{len(facts.gpus)}. Make one of the two smaller, or use several machines (--nnodes)."
        )
    plan.choices = [[use, choice] for use, choice in asked.backends.items()]
    plan.choices.append(["GPUs reach each other by", plan.peers.way])
    plan.choices.append(["CUDA graphs of decode", _graphs(asked)])
    return plan


def _layout_row(asked: Asked, rank: int) -> list[str]:
    layout = asked.layout
    pp_rank, tp_rank = divmod(rank, layout.tp_size)
    begin, end = layout.stage(pp_rank)
    heads = layout.kv_heads_of_rank()
    experts = "-"
    if asked.experts:
        each = asked.experts // layout.ep_size
        ep_rank = tp_rank // layout.expert_tp_size
        split = f", 1/{layout.expert_tp_size} of each" if layout.expert_tp_size > 1 else ""
        experts = f"{ep_rank * each} to {(ep_rank + 1) * each - 1}{split}"
    kv = "whole (latent)" if heads is None else str(heads)
    draft = "-" if asked.draft is None else ("yes" if pp_rank == layout.pp_size - 1 else "no")
    return [str(rank), str(pp_rank), str(tp_rank), f"{begin} to {end - 1}", kv, experts, draft]


def _plan_memory(asked: Asked, facts: Facts, plan: Plan) -> None:
    layout = asked.layout
    if asked.target.tensors is None or (asked.draft is not None and asked.draft.tensors is None):
        absent = asked.target.path if asked.target.tensors is None else asked.draft.path
        plan.assumed.append(
            f"the sizes of the weights of {absent} are unknown (no safetensors files here), so memory is not judged: "
            "name a local folder"
        )
        return
    if not asked.weights_as_stored:
        plan.assumed.append("quantization or offloading changes weights at load: memory is shown as stored, not judged")
    if not facts.gpus:
        where = "weights and KV share this machine's memory" if asked.device == "cpu" else "no GPU is here"
        plan.assumed.append(
            f"{where}: sizes are shown, and nothing is judged. For another machine, give --dry-run FACTS.json with the "
            "output of python -m sglang.cuda_doctor --json from there"
        )
    plan.assumed.append("each weight is split or repeated over ranks as its name says")
    for pp_rank in range(layout.pp_size):
        first = pp_rank * layout.tp_size
        gpu = _smallest(facts.gpus[first : first + layout.tp_size])
        memory = _memory(asked, pp_rank, gpu)
        plan.memory.append(_memory_row(asked, pp_rank, memory))
        if gpu is None or not asked.weights_as_stored:
            continue
        wanted, tokens = _wanted(asked)
        found = parts.problem(memory, tokens=tokens, wanted=wanted, tp_size=layout.tp_size, gpu=_named(gpu))
        if found and found not in plan.problems:
            plan.problems.append(found)


def _memory(asked: Asked, pp_rank: int, gpu: Gpu | None) -> Memory:
    layout = asked.layout
    begin, end = layout.stage(pp_rank)
    draft, draft_kv = 0.0, 0.0
    if asked.draft is not None and pp_rank == layout.pp_size - 1:
        draft = sum(tensor.bytes for tensor in asked.draft.tensors or ()) / layout.tp_size
        draft_kv = asked.draft.kv_per_token_and_layer * asked.draft.layers
    return Memory(
        weights=layout.bytes_of_rank(asked.target.tensors or (), pp_rank),
        draft=draft,
        kv_per_token=asked.target.kv_per_token_and_layer * (end - begin),
        draft_kv_per_token=draft_kv,
        total=gpu.memory_mib * (1 << 20) if gpu is not None and gpu.memory_mib else None,
        fraction=asked.mem_fraction_static,
    )


def _memory_row(asked: Asked, pp_rank: int, memory: Memory) -> list[str]:
    layout = asked.layout
    first = pp_rank * layout.tp_size
    ranks = f"{first} to {first + layout.tp_size - 1}" if layout.tp_size > 1 else str(first)
    kv = max(memory.kv, 0.0) if memory.kv is not None else None
    share = memory.draft_kv_per_token / ((memory.kv_per_token + memory.draft_kv_per_token) or 1)
    unknown = "?"
    return [
        ranks,
        gib(memory.weights),
        gib(memory.draft),
        gib(kv * (1 - share)) if kv is not None else unknown,
        gib(kv * share) if kv is not None else unknown,
        gib(memory.reserve) if memory.reserve is not None else unknown,
        gib(memory.total) if memory.total is not None else unknown,
        f"{memory.kv_tokens:,}" if memory.kv_tokens is not None else unknown,
        f"{(memory.kv_per_token + memory.draft_kv_per_token) / 1024:.1f} KiB",
    ]


def _wanted(asked: Asked) -> tuple[str, int]:
    """What KV must hold at least: what was asked for, else one page and what two rounds in flight write."""
    if asked.max_total_tokens is not None:
        return f"--max-total-tokens {asked.max_total_tokens}", asked.max_total_tokens
    return "one request", 2 * max(asked.page_size, asked.verify_width or 1)


def _smallest(gpus: Sequence[Gpu]) -> Gpu | None:
    return min(gpus, key=lambda gpu: gpu.memory_mib, default=None)


def _named(gpu: Gpu) -> str:
    return f"GPU{gpu.index} ({gpu.name})"


def _graphs(asked: Asked) -> str:
    if asked.graphs == "disabled" or not asked.graph_batches:
        return "none"
    width = asked.verify_width or 1
    batches = list(asked.graph_batches)
    listed = ", ".join(map(str, batches if len(batches) <= 12 else [*batches[:6], "...", *batches[-3:]]))
    if len(asked.verify_widths) > 1:
        widths = ", ".join(map(str, asked.verify_widths))
        return f"{len(batches)} batches ({listed}) of widths {widths}; the widest for the smaller batches alone"
    return f"{len(batches)} batches ({listed}) of width {width}: up to {max(batches) * width} tokens"


HEADERS = {
    "layout": ["rank", "pp", "tp", "layers", "KV heads", "experts", "draft"],
    "memory": ["ranks", "weights", "draft", "KV", "draft KV", "reserve", "of", "KV tokens", "per token"],
}


def as_text(plan: Plan) -> str:
    """The plan for a terminal or a file, without colours."""
    lines = ["Parallel layout", *_table(HEADERS["layout"], plan.layout)]
    if plan.memory:
        title = "Memory per GPU: weights, draft and KV as planned; the reserve is for activations and CUDA graphs"
        lines += ["", title, *_table(HEADERS["memory"], plan.memory)]
    lines += ["", "Choices", *_table(["for", "choice"], plan.choices)]
    if plan.assumed:
        lines += ["", "Assumed", *(f"  {line}" for line in plan.assumed)]
    verdict = [f"error: {line}" for line in plan.problems] or ["Nothing stands in the way."]
    return "\n".join([*lines, "", *verdict])


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    widths = [max(len(str(row[column])) for row in [header, *rows]) for column in range(len(header))]
    return [
        "  " + "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    ]
