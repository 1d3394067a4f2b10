"""The DFLASH draft in plain torch, for many anchors of a text at once; parameters are named as in a checkpoint.

Layout (z-lab): ``fc`` and ``hidden_norm`` project the concatenated context features to the hidden size; every layer
makes keys and values of that projection, at the positions of the context, and of its own input at the block's
positions; queries come from the block only. Inside a block attention is not causal.

    visible to block of anchor a:   context 0 .. a-1   and   its own B positions a .. a+B-1
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ANCHORS_PER_GROUP = 16


@dataclass(frozen=True)
class DraftConfig:
    """The part of a draft's config.json that shapes the model."""

    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    block_size: int
    mask_token: int
    target_layers: tuple[int, ...]

    @classmethod
    def from_json(cls, config: dict[str, Any]) -> "DraftConfig":
        """Reads the keys of a z-lab config.json."""
        dflash = config["dflash_config"]
        return cls(
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            kv_heads=config["num_key_value_heads"],
            head_dim=config["head_dim"],
            norm_eps=config["rms_norm_eps"],
            rope_theta=config["rope_theta"],
            block_size=config["block_size"],
            mask_token=dflash["mask_token_id"],
            target_layers=tuple(dflash["target_layer_ids"]),
        )


class DraftModel(nn.Module):
    """The draft without embedding and head, which are the target's."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.config = config
        self.fc = nn.Linear(len(config.target_layers) * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)

    @torch.no_grad()
    def initialize(self, seed: int, layers: list[dict[str, Tensor]], norm: Tensor) -> None:
        """Starts from the target's last layers: ``layers`` are their weights by name, ``norm`` [hidden] its last norm.

        A matrix of another height or width than the target's takes what fits and is random beyond; columns of
        ``down_proj`` beyond are 0, so a wider MLP starts as the target's. The rest is random with a spread of 0.02.
        """
        generator = torch.Generator().manual_seed(seed)
        for weight in self.parameters():
            if weight.dim() == 2:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.02)
        self.norm.weight.copy_(norm)
        for layer, known in zip(self.layers, layers, strict=True):
            for name, weight in layer.named_parameters():
                if name not in known:
                    continue
                if name.endswith("down_proj.weight"):
                    weight.zero_()
                common = tuple(slice(min(sizes)) for sizes in zip(weight.shape, known[name].shape, strict=True))
                weight[common] = known[name][common].to(weight)

    def forward(self, features: Tensor, anchors: Tensor, block: Tensor) -> Tensor:
        """Runs the blocks of all anchors.

        ``features`` [rows, length, target layers * hidden]: context features at positions 0..length-1.
        ``anchors`` int64 [rows, anchors]: positions; their number is a multiple of 16, or below 16.
        ``block`` [rows, anchors, block, hidden]: embeddings of the anchor's token and the masks.
        Returns hidden states after the last norm, [rows, anchors, block, hidden].
        """
        config = self.config
        rows, count, size, _ = block.shape
        context = self.hidden_norm(self.fc(features).float())
        offsets = torch.arange(size, device=anchors.device)
        block_angles = _angles((anchors[..., None] + offsets).reshape(rows, count * size), config)
        context_angles = _angles(torch.arange(features.shape[1], device=anchors.device)[None], config)
        groups = max(1, count // ANCHORS_PER_GROUP)
        visible = visibility(anchors.reshape(rows * groups, count // groups), features.shape[1], size)
        hidden = block.reshape(rows, count * size, -1).float()  # the residual stream, also under autocast
        for layer in self.layers:
            hidden = layer(hidden, context, block_angles, context_angles, visible, groups)
        return self.norm(hidden).reshape(block.shape)


def visibility(anchors: Tensor, length: int, block_size: int) -> Tensor:
    """Returns what block positions see, bool [groups, 1, anchors * block, length + anchors * block].

    ``anchors`` [groups, anchors]. Columns are the context, then the blocks of the same group in order.
    """
    count = anchors.shape[1]
    context = torch.arange(length, device=anchors.device) < anchors.repeat_interleave(block_size, 1)[..., None]
    own = torch.arange(count, device=anchors.device).repeat_interleave(block_size)
    blocks = (own[:, None] == own).expand(len(anchors), -1, -1)
    return torch.cat((context, blocks), dim=-1)[:, None]


class _Layer(nn.Module):
    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = _Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = _Mlp(config)

    def forward(self, hidden: Tensor, *attention: Any) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), *attention)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class _Attention(nn.Module):
    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.config = config
        width, kv_width = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)
        self.q_norm = nn.RMSNorm(config.head_dim, eps=config.norm_eps)
        self.k_norm = nn.RMSNorm(config.head_dim, eps=config.norm_eps)

    def forward(
        self,
        hidden: Tensor,
        context: Tensor,
        block_angles: Tensor,
        context_angles: Tensor,
        visible: Tensor,
        groups: int,
    ) -> Tensor:
        config = self.config
        rows, width, _ = hidden.shape
        query = self._heads(self.q_proj(hidden), self.q_norm, block_angles)
        block_keys = self._heads(self.k_proj(hidden), self.k_norm, block_angles)
        block_values = self._heads(self.v_proj(hidden))
        context_keys = self._heads(self.k_proj(context), self.k_norm, context_angles)
        context_values = self._heads(self.v_proj(context))

        def grouped(tensor: Tensor) -> Tensor:  # [rows, width, heads, dim] -> [rows * groups, width / groups, ...]
            return tensor.reshape(rows * groups, width // groups, *tensor.shape[2:])

        def keys(of_context: Tensor, of_block: Tensor) -> Tensor:  # -> [rows * groups, heads, keys, dim]
            shared = of_context[:, None].expand(-1, groups, -1, -1, -1).flatten(0, 1)
            both = torch.cat((shared, grouped(of_block)), dim=1)
            return both.repeat_interleave(config.heads // config.kv_heads, dim=2).transpose(1, 2)

        output = F.scaled_dot_product_attention(
            grouped(query).transpose(1, 2),
            keys(context_keys, block_keys),
            keys(context_values, block_values),
            attn_mask=visible,
        )
        return self.o_proj(output.transpose(1, 2).reshape(rows, width, -1))

    def _heads(self, flat: Tensor, norm: nn.Module | None = None, angles: Tensor | None = None) -> Tensor:
        heads = flat.unflatten(-1, (-1, self.config.head_dim))
        return heads if norm is None else _rotate(norm(heads.float()), angles).to(flat.dtype)


class _Mlp(nn.Module):
    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


def _angles(positions: Tensor, config: DraftConfig) -> Tensor:
    """Rotary angles, float32 [rows, width, 1, head_dim / 2]."""
    exponents = torch.arange(0, config.head_dim, 2, device=positions.device, dtype=torch.float32) / config.head_dim
    return (positions.float()[..., None] * config.rope_theta**-exponents)[:, :, None]


def _rotate(heads: Tensor, angles: Tensor) -> Tensor:
    """Rotary embedding of halves (NeoX), in float32."""
    first, second = heads.chunk(2, dim=-1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
