"""The call in a launch: a plan is printed and ends it, or what cannot work is refused before weights are loaded."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang.cuda_doctor.facts import Facts, from_json
from sglang.cuda_doctor.probes import GPU_PROBES, read_machine
from sglang.launch_plan.checkpoint import read_tensors
from sglang.launch_plan.layout import Layout
from sglang.launch_plan.peers import default_cache, try_collective, visible
from sglang.launch_plan.plan import Asked, Model, as_text, make_plan
from sglang.srt.arg_groups.overrides import attention_backends_of, model_config_of, resolved_view, use_mla_backend
from sglang.srt.utils.launch_error import LaunchError

if TYPE_CHECKING:
    from sglang.srt.server_args import ServerArgs

logger = logging.getLogger(__name__)

_ASSUMED_FRACTION = 0.85  # of a GPU's memory for weights and KV, where no GPU is here to derive it from
HERE = "here"
"""Value of the bare flag --dry-run: a plan for this machine."""


def plan_launch(server_args: ServerArgs) -> None:
    """Called once the arguments are resolved: with --dry-run prints the plan and ends the process, else returns.

    Raises LaunchError for what was refused, SystemExit for a plan: 0, or 1 where something stands in the way.
    """
    view = resolved_view(server_args)
    if view.dry_run:
        plan = make_plan(_asked(server_args, view, network=True), _facts(view.dry_run))
        print(as_text(plan), flush=True)
        raise SystemExit(1 if plan.problems else 0)
    if view.device != "cuda" or view.nnodes > 1:
        return
    facts = _used(visible(read_machine(GPU_PROBES), os.environ), view)
    try:
        asked = _asked(server_args, view, network=False)
        plan = make_plan(asked, facts)
    except Exception as error:  # a model whose configuration the plan cannot read may still be served
        logger.warning("This launch is not checked for memory and peer access: %s: %s", type(error).__name__, error)
        return
    if plan.problems:
        raise LaunchError(" ".join(plan.problems))
    if plan.peers.check:
        logger.info("%d GPUs, %s: a small collective must answer first", asked.layout.world, plan.peers.way)
        found = try_collective(facts, asked.layout.world, default_cache(), os.environ)
        if found is not None:
            raise LaunchError(f"--tp-size {view.tp_size} --pp-size {view.pp_size}: {found}")


def _used(facts: Facts, view: Any) -> Facts:
    """``facts`` with the GPUs in the order in which ranks take them."""
    if not (view.base_gpu_id or view.gpu_id_step != 1):
        return facts
    order = range(view.base_gpu_id, len(facts.gpus), view.gpu_id_step)
    return visible(facts, {"CUDA_VISIBLE_DEVICES": ",".join(map(str, order))})


def _facts(where: str) -> Facts:
    if where == HERE:
        return visible(read_machine(), os.environ)
    try:
        value = json.loads(Path(where).read_text())
        return from_json(value.get("facts", value))
    except (OSError, ValueError, AttributeError) as error:
        raise LaunchError(
            f"--dry-run {where}: {error}. Give the output of python -m sglang.cuda_doctor --json, or leave the value "
            "out for this machine."
        ) from error


def _asked(server_args: ServerArgs, view: Any, *, network: bool) -> Asked:
    target = model_config_of(server_args)
    latent = bool(use_mla_backend(server_args))
    attention_tp_size = max(1, view.tp_size // (view.dp_size if view.enable_dp_attention else 1))
    layers = int(target.num_hidden_layers)
    layout = Layout(
        tp_size=view.tp_size,
        pp_size=view.pp_size,
        ep_size=view.ep_size,
        attention_tp_size=attention_tp_size,
        layers=layers,
        kv_heads=None if latent else int(target.get_total_num_kv_heads()),
        embeds_at_end=view.speculative_algorithm == "DFLASH"
        or bool(getattr(target.hf_text_config, "tie_word_embeddings", False)),
        stages=_stages(layers, view.pp_size),
    )
    prefill, decode = attention_backends_of(view)
    graphs = view.cuda_graph_config.decode
    speculates = view.speculative_algorithm is not None
    text = target.hf_text_config
    experts = next(
        (int(value) for name in ("n_routed_experts", "num_experts", "num_local_experts")
         if (value := getattr(text, name, None))), 0
    )  # fmt: skip
    known = view.load_format in ("auto", "safetensors")
    assumed = view.device != "cuda" and server_args.mem_fraction_static is None
    return Asked(
        layout=layout,
        target=Model(
            view.model_path,
            read_tensors(view.model_path, network=network) if known else None,
            _kv_bytes(target, attention_tp_size, latent, view.kv_cache_dtype),
            layers,
        ),
        draft=_draft(server_args, view, attention_tp_size, network) if speculates else None,
        device=view.device,
        backends=_backends(server_args, view, prefill, decode),
        mem_fraction_static=float(_ASSUMED_FRACTION if assumed else view.mem_fraction_static),
        fraction_assumed=assumed,
        max_total_tokens=view.max_total_tokens,
        context_length=int(target.context_len),
        page_size=int(view.page_size or 1),
        verify_width=int(view.speculative_num_draft_tokens) if speculates else None,
        verify_widths=view.speculative_dflash_widths or [],
        graph_batches=graphs.bs or [],
        graphs="disabled" if view.device == "cpu" else str(graphs.backend),
        moe_a2a_backend=str(view.moe_a2a_backend),
        weights_as_stored=_as_stored(view, target),
        experts=experts,
    )


def _draft(server_args: ServerArgs, view: Any, tp_size: int, network: bool) -> Model | None:
    path = view.speculative_draft_model_path
    if (view.speculative_algorithm or "").upper() != "DFLASH" or path is None:
        return None
    from sglang.srt.speculative.dflash_draft_checkpoint import read_draft_config

    config = read_draft_config(view)
    heads = int(getattr(config, "num_key_value_heads", config.num_attention_heads))
    head = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    size = _element_size(view.kv_cache_dtype, model_config_of(server_args).dtype)
    return Model(
        path,
        read_tensors(path, network=network),
        2.0 * max(1, heads // tp_size) * head * size,
        int(config.num_hidden_layers),
    )


def _backends(server_args: ServerArgs, view: Any, prefill: str, decode: str) -> dict[str, str]:
    named = view.attention_backend if server_args.attention_backend else None
    why = "as named" if named else "the default on this machine"
    found = {"device": str(view.device)}
    found["attention"] = f"{decode} ({why})" if prefill == decode else f"prefill {prefill}, decode {decode} ({why})"
    found["sampling"] = f"{view.sampling_backend} ({'as named' if server_args.sampling_backend else 'the default'})"
    if view.speculative_algorithm:
        found["speculation"] = f"{view.speculative_algorithm}, {_shape(view)}, one draft pass a round"
    if view.moe_a2a_backend != "none" or view.ep_size > 1:
        found["experts"] = f"runner {view.moe_runner_backend}, dispatch {view.moe_a2a_backend}"
    return found


def _shape(view: Any) -> str:
    if view.speculative_dflash_widths:
        return f"trees of a width chosen per round: {', '.join(map(str, view.speculative_dflash_widths))}"
    if view.speculative_dflash_tree_budget:
        return f"trees of {view.speculative_dflash_tree_budget} draft nodes"
    return f"chains of {view.speculative_num_draft_tokens}"


def _stages(layers: int, pp_size: int) -> tuple[tuple[int, int], ...]:
    from sglang.srt.distributed.utils import get_pp_indices

    return tuple(get_pp_indices(layers, rank, pp_size) for rank in range(pp_size))


def _kv_bytes(config: Any, tp_size: int, latent: bool, kv_cache_dtype: str) -> float:
    """Bytes of one token's keys and values in one layer on one GPU."""
    size = _element_size(kv_cache_dtype, config.dtype)
    if latent:
        return float((config.kv_lora_rank + config.qk_rope_head_dim) * size)
    value = int(getattr(config, "v_head_dim", None) or config.head_dim)
    return float(config.get_num_kv_heads(tp_size) * (int(config.head_dim) + value) * size)


def _element_size(kv_cache_dtype: str, dtype: Any) -> float:
    name = kv_cache_dtype or "auto"
    if name.startswith(("fp8", "float8")):
        return 1.0
    if "fp4" in name:
        return 0.5
    return float(dtype.itemsize) if name == "auto" else 2.0


def _as_stored(view: Any, config: Any) -> bool:
    """Whether the weights have in memory the size that they have on disk."""
    stored = getattr(config.hf_config, "quantization_config", None)
    return (view.quantization is None or stored is not None) and not view.cpu_offload_gb
