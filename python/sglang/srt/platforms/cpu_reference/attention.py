"""Attention on the CPU reference platform: prefill, decode, chain and tree verification, the draft's block."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import scaled_dot_product_attention

from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.platforms.cpu_reference import ATTENTION_BACKEND
from sglang.srt.platforms.cpu_reference.visibility import visible_columns

if TYPE_CHECKING:
    from sglang.srt.layers.radix_attention import RadixAttention
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch
    from sglang.srt.model_executor.model_runner import ModelRunner


@dataclass
class QueryGroup:
    """Requests with the same number of query rows in this forward, handled as one batch.

    ``tokens`` [bs * rows] selects their rows in the flat token dimension, or is None for "all, in order".
    ``slots`` [bs, columns] are KV slots; columns past a request's own length repeat slot 0 and are never visible.
    Bias tensors are built once per forward for each (window, two-way, heads per KV head) that a layer asks for.
    """

    tokens: slice
    rows: int
    prefix_lens: torch.Tensor  # [bs]
    depths: torch.Tensor  # [bs, rows]
    slots: torch.Tensor  # [bs, columns]
    swa_slots: torch.Tensor | None
    ancestor_mask: torch.Tensor | None  # [bs, rows, rows]
    biases: dict = field(default_factory=dict)

    def bias(self, *, window: int, two_way: bool, repeats: int, dtype: torch.dtype) -> torch.Tensor:
        """Additive mask [bs, 1, repeats * rows, columns]: 0 where visible, -inf elsewhere."""
        key = (window, two_way, repeats, dtype)
        if key not in self.biases:
            visible = visible_columns(
                self.prefix_lens,
                self.depths,
                self.slots.shape[1],
                ancestor_mask=self.ancestor_mask,
                two_way=two_way,
                window=window,
            )
            bias = torch.zeros(visible.shape, dtype=dtype).masked_fill_(~visible, -math.inf)
            self.biases[key] = bias.repeat(1, repeats, 1).unsqueeze(1)
        return self.biases[key]


class CpuReferenceAttention(AttentionBackend):
    """Scaled dot-product attention over gathered KV rows.

    Decode and verification run as one padded batch; prefill runs request by request, since prompts differ in length.
    Heads that share a KV head are folded into the row dimension, so grouped queries need no copy of the keys.

    A verify input may carry ``ancestor_mask`` [bs, rows, rows] (bool); without one the rows form a chain. A flat
    ``custom_mask`` of the same size (upstream's QLEN_ONLY layout) is read the same way.
    """

    reads_ancestor_mask = True  # of a verify input, instead of the flat mask with prefix columns

    def __init__(self, model_runner: ModelRunner):
        super().__init__()
        self.req_to_token_pool = model_runner.req_to_token_pool
        self.token_to_kv_pool = model_runner.token_to_kv_pool
        self._windowed_pool = isinstance(self.token_to_kv_pool, SWAKVPool) and self.token_to_kv_pool.swa_layer_nums > 0
        self._groups: list[QueryGroup] = []
        self._swa_out_slots: torch.Tensor | None = None

    def support_triton(self) -> bool:
        return False

    # --- once per forward ----------------------------------------------------------------------------------

    def init_forward_metadata(self, forward_batch: ForwardBatch) -> None:
        self._groups = []
        self._swa_out_slots = self._to_windowed(forward_batch.out_cache_loc)
        mode = forward_batch.forward_mode
        if mode.is_idle():
            return
        table_rows = forward_batch.req_pool_indices.to(torch.int64)
        seq_lens = forward_batch.seq_lens.to(torch.int64)
        bs = seq_lens.shape[0]
        if mode.is_decode():
            self._add_group(slice(None), table_rows, seq_lens - 1, torch.zeros((bs, 1), dtype=torch.int64))
        elif mode.is_target_verify():
            spec_info = forward_batch.spec_info
            rows = spec_info.num_tokens_per_req
            positions = forward_batch.positions.view(bs, rows).to(torch.int64)
            depths = positions - positions[:, :1]
            self._add_group(slice(None), table_rows, seq_lens, depths, _ancestor_mask(spec_info, bs, rows))
        else:
            start = 0
            for i, length in enumerate(forward_batch.extend_seq_lens.tolist()):
                if length:
                    tokens, request = slice(start, start + length), slice(i, i + 1)
                    prefix = seq_lens[request] - length
                    self._add_group(tokens, table_rows[request], prefix, torch.arange(length)[None])
                start += length

    def _add_group(
        self,
        tokens: slice,
        table_rows: torch.Tensor,
        prefix_lens: torch.Tensor,
        depths: torch.Tensor,
        ancestor_mask: torch.Tensor | None = None,
    ) -> None:
        rows = depths.shape[1]
        lens = prefix_lens + rows
        columns = int(lens.max())
        slots = self.req_to_token_pool.req_to_token[table_rows, :columns].to(torch.int64)
        # A row holds stale slots past its request's length: keep the gather inside the pool.
        slots.masked_fill_(torch.arange(columns)[None, :] >= lens[:, None], 0)
        self._groups.append(
            QueryGroup(tokens, rows, prefix_lens, depths, slots, self._to_windowed(slots), ancestor_mask)
        )

    def _to_windowed(self, slots: torch.Tensor | None) -> torch.Tensor | None:
        if not self._windowed_pool or slots is None:
            return None
        return self.token_to_kv_pool.translate_loc_from_full_to_swa(slots)

    # --- once per layer ------------------------------------------------------------------------------------

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs) -> torch.Tensor:
        return self._forward(q, k, v, layer, forward_batch, save_kv_cache, **kwargs)

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs) -> torch.Tensor:
        return self._forward(q, k, v, layer, forward_batch, save_kv_cache, **kwargs)

    def _forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer: RadixAttention,
        forward_batch: ForwardBatch,
        save_kv_cache: bool,
        sinks: torch.Tensor | None = None,
        **unknown,
    ) -> torch.Tensor:
        """Attention of all query rows of this forward.

        Args:
            q: [tokens, q_heads * qk_head_dim]; absorbed MLA is one KV head of the latent width.
            k, v: rows to write to the cache first, or None when they are there already.
            sinks: [q_heads] extra logit each softmax may spend its mass on.

        Returns:
            [tokens, q_heads * v_head_dim] in the dtype of ``q``.
        """
        self._refuse_unsupported(layer, unknown)
        if save_kv_cache and k is not None:
            loc = KVWriteLoc(forward_batch.out_cache_loc, self._swa_out_slots)
            self.token_to_kv_pool.set_kv_buffer(layer, loc, k, v)
        q = q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)

        keys = self.token_to_kv_pool.get_key_buffer(layer.layer_id)
        values = self.token_to_kv_pool.get_value_buffer(layer.layer_id)
        out = q.new_empty((q.shape[0], layer.tp_q_head_num, layer.v_head_dim))
        for group in self._groups:
            slots = self._slots_of(group, layer)
            out[group.tokens] = self._attend(q[group.tokens], keys[slots], values[slots], layer, group, sinks)
        return out.view(q.shape[0], -1)

    def _slots_of(self, group: QueryGroup, layer: RadixAttention) -> torch.Tensor:
        if self._windowed_pool and self.token_to_kv_pool.layers_mapping[layer.layer_id][1]:
            return group.swa_slots
        return group.slots

    @staticmethod
    def _attend(
        q: torch.Tensor,  # [bs * rows, q_heads, qk_dim]
        k: torch.Tensor,  # [bs, columns, kv_heads, qk_dim]
        v: torch.Tensor,  # [bs, columns, kv_heads, v_dim]
        layer: RadixAttention,
        group: QueryGroup,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        bs, _, kv_heads, _ = k.shape
        rows, repeats = group.rows, q.shape[1] // kv_heads
        k = k.to(q.dtype).transpose(1, 2)
        v = v.to(q.dtype).transpose(1, 2)
        # [bs, kv_heads, repeats * rows, dim]: query heads that share a KV head become extra rows.
        by_head = q.view(bs, rows, kv_heads, repeats, -1).permute(0, 2, 3, 1, 4)
        folded = by_head.reshape(bs, kv_heads, repeats * rows, -1)
        bias = group.bias(
            window=layer.sliding_window_size,
            two_way=layer.attn_type == AttentionType.ENCODER_ONLY,
            repeats=repeats,
            dtype=q.dtype,
        )
        if layer.logit_cap > 0 or sinks is not None:
            out = _explicit_attention(folded, k, v, bias, layer.scaling, layer.logit_cap, sinks, rows)
        else:
            out = scaled_dot_product_attention(folded, k, v, attn_mask=bias, scale=layer.scaling)
        return out.view(bs, kv_heads, repeats, rows, -1).permute(0, 3, 1, 2, 4).reshape(bs * rows, q.shape[1], -1)

    @staticmethod
    def _refuse_unsupported(layer: RadixAttention, unknown: dict) -> None:
        asked = [name for name, value in unknown.items() if value is not None]
        if layer.is_cross_attention:
            asked.append("cross attention")
        if asked:
            raise NotImplementedError(
                f"layer {layer.layer_id} asks the CPU reference attention for {', '.join(asked)}, which it does not "
                "have; serve this model on an accelerator."
            )


def _ancestor_mask(spec_info, bs: int, rows: int) -> torch.Tensor | None:
    mask = getattr(spec_info, "ancestor_mask", None)
    if mask is None:
        mask = getattr(spec_info, "custom_mask", None)
    if mask is None:
        return None
    if mask.numel() != bs * rows * rows:
        raise ValueError(
            f"the verify mask has {mask.numel()} cells, but {bs} requests of {rows} rows need {bs * rows * rows}: "
            "the CPU reference attention reads one rows x rows ancestor mask a request, without prefix columns."
        )
    return mask.view(bs, rows, rows).to(torch.bool)


def _explicit_attention(
    q: torch.Tensor,  # [bs, kv_heads, repeats * rows, dim]
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor,
    scale: float,
    logit_cap: float,
    sinks: torch.Tensor | None,  # [kv_heads * repeats]
    rows: int,
) -> torch.Tensor:
    """Attention spelled out, for what the fused operator lacks: capped logits and attention sinks."""
    scores = (q @ k.transpose(-1, -2)).float() * scale
    if logit_cap > 0:
        scores = logit_cap * torch.tanh(scores / logit_cap)
    scores = scores + bias.float()
    if sinks is not None:
        sink = sinks.float().view(1, q.shape[1], -1, 1).repeat_interleave(rows, dim=2).expand(q.shape[0], -1, -1, 1)
        weights = torch.softmax(torch.cat([scores, sink], dim=-1), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores, dim=-1)
    return weights.to(v.dtype) @ v


def register() -> None:
    """Make the backend known under its name, for all models and for MLA ones; safe to call more than once."""
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS, register_attention_backend
    from sglang.srt.models.deepseek_common.attention_backend_handler import AttentionBackendRegistry
    from sglang.srt.models.deepseek_common.attention_forward_methods import AttnForwardMethod

    if ATTENTION_BACKEND not in ATTENTION_BACKENDS:
        register_attention_backend(ATTENTION_BACKEND)(CpuReferenceAttention)
    # Always absorbed: the other forms hand over keys that are in no cache, and this backend reads the cache alone.
    AttentionBackendRegistry.register(ATTENTION_BACKEND, lambda attention, forward_batch: AttnForwardMethod.MLA)
