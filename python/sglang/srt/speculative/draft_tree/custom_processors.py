"""Custom logit processors at every node.

A processor is host code of the user's. It may read its request (`custom_params["__req__"]`), most often the output so
far, so each node shows it the request as plain decoding would have it there. That takes the tokens to the host, which
is why this stage alone waits for the device, and only in a batch that has processors.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch

from sglang.srt.layers.sampler import apply_custom_logit_processor
from sglang.srt.sampling.sampling_batch_info import ProcessorEntry
from sglang.srt.speculative.draft_tree.target_draw import repeat_over_nodes

if TYPE_CHECKING:
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

REQUEST = "__req__"


class RequestAtNode:
    """A request as it stands at one node: its output goes on with `tokens`; everything else is the request's own."""

    def __init__(self, request: Any, tokens: list[int]) -> None:
        self._request = request
        self.output_ids = request.output_ids[:]
        self.output_ids.extend(tokens)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


def apply_custom_processors(
    logits: torch.Tensor,
    tokens: torch.Tensor,
    parents: torch.Tensor,
    prefix_lens: torch.Tensor,
    sampling_info: SamplingBatchInfo,
) -> None:
    """Apply every request's custom logit processor to the logits of its nodes, in place.

    Args:
        logits: [bs * nodes, vocab], after all other adjustments and the grammar mask.
        tokens: [bs, nodes] int64.
        parents: [bs, nodes] int64.
        prefix_lens: [bs], tokens before the root.
        sampling_info: one row per request, made by `emitted_tokens.forward_sampling_info`.
    """
    bs, nodes = tokens.shape
    history = sampling_info.emitted_history
    host = torch.cat(
        [tokens, parents, history.tokens, history.lengths[:, None], prefix_lens.to(torch.int64)[:, None]], dim=1
    ).tolist()
    width = history.tokens.shape[1]
    params: list[dict[str, Any] | None] = []
    for row, values in zip(sampling_info.custom_params, host, strict=True):
        node_tokens, node_parents, last = values[:nodes], values[nodes : 2 * nodes], values[2 * nodes :]
        if row is None or REQUEST not in row:
            params += [row] * nodes
            continue
        request = row[REQUEST]
        missing = missing_output(request, prefix_len=last[-1], last_tokens=last[:width], last_length=last[-2])
        paths = _paths(node_tokens, node_parents)
        params += [{**row, REQUEST: RequestAtNode(request, missing + path)} for path in paths]
    per_node = dataclasses.replace(
        repeat_over_nodes(sampling_info, nodes),
        has_custom_logit_processor=True,
        custom_logit_processor={
            key: _over_nodes(entry, nodes) for key, entry in sampling_info.custom_logit_processor.items()
        },
        custom_params=params,
    )
    apply_custom_logit_processor(logits, per_node)


def missing_output(request: Any, *, prefix_len: int, last_tokens: list[int], last_length: int) -> list[int]:
    """The tokens up to the root that `request.output_ids` lacks.

    With overlap scheduling the host has not processed the last round when this one runs. The length of the prefix
    tells how many tokens there are: the root stands behind it.
    """
    emitted = prefix_len + 1 - len(request.origin_input_ids)
    count = emitted - len(request.output_ids)
    if not 0 <= count <= last_length:
        raise RuntimeError(
            f"Request {request.rid} has emitted {emitted} tokens, of which the host knows {len(request.output_ids)}; "
            f"the last round accounts for {last_length} of them, not for the difference."
        )
    return last_tokens[last_length - count : last_length]


def _paths(tokens: list[int], parents: list[int]) -> list[list[int]]:
    """Per node the tokens from below the root down to the node itself."""
    paths: list[list[int]] = []
    for node, parent in enumerate(parents):
        paths.append([*paths[parent], tokens[node]] if parent >= 0 else [])
    return paths


def _over_nodes(entry: ProcessorEntry, nodes: int) -> ProcessorEntry:
    first = entry.indices[:, None] * nodes
    return ProcessorEntry(
        processor=entry.processor,
        rows=[row * nodes + node for row in entry.rows for node in range(nodes)],
        indices=(first + torch.arange(nodes, device=first.device)).reshape(-1),
    )
