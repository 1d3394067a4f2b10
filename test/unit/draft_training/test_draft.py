"""Many anchors in one pass equal one block at a time, computed without masks, groups or rotation tricks."""

import math

import pytest
import torch
from torch import Tensor

from benchmark.draft_training.draft import DraftConfig, DraftModel, visibility

CONFIG = DraftConfig(
    hidden_size=32, intermediate_size=48, layers=2, heads=4, kv_heads=2, head_dim=8, norm_eps=1e-5, rope_theta=10000.0,
    block_size=4, mask_token=3, target_layers=(0, 1),
)  # fmt: skip


def random_draft() -> DraftModel:
    generator = torch.Generator().manual_seed(0)
    draft = DraftModel(CONFIG)
    with torch.no_grad():
        for weight in draft.parameters():
            spread = torch.randn(weight.shape, generator=generator)
            weight.copy_(spread / math.sqrt(weight.shape[-1]) if weight.dim() == 2 else 1 + 0.1 * spread)
    return draft


def rotated(head: Tensor, position: int) -> Tensor:
    """One head [8] as four complex numbers, turned."""
    turns = torch.tensor([position * 10000.0 ** (-2 * i / 8) for i in range(4)], dtype=torch.float64)
    turned = torch.complex(head[:4], head[4:]) * torch.polar(torch.ones_like(turns), turns)
    return torch.cat((turned.real, turned.imag))


def one_block(draft: DraftModel, features: Tensor, anchor: int, block: Tensor) -> Tensor:
    """The block at ``anchor`` on its own: ``features`` [length, ...], ``block`` [4, 32]."""
    context = draft.hidden_norm(draft.fc(features[:anchor]))
    hidden = block
    for layer in draft.layers:
        attention = layer.self_attn
        normed = layer.input_layernorm(hidden)
        source = torch.cat((context, normed))
        keys = attention.k_norm(attention.k_proj(source).view(-1, 2, 8))
        values = attention.v_proj(source).view(-1, 2, 8)
        queries = attention.q_norm(attention.q_proj(normed).view(-1, 4, 8))
        outputs = torch.zeros(4, 4, 8, dtype=torch.float64)
        for row in range(4):
            for head in range(4):
                query = rotated(queries[row, head], anchor + row)
                scores = torch.stack([query @ rotated(key, place) for place, key in enumerate(keys[:, head // 2])])
                outputs[row, head] = torch.softmax(scores / math.sqrt(8), 0) @ values[:, head // 2]
        hidden = hidden + attention.o_proj(outputs.reshape(4, 32))
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    return draft.norm(hidden)


@pytest.mark.parametrize("count", [3, 32])
def test_many_anchors_equal_one_block_at_a_time(count):
    draft = random_draft()
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(2, 40, 64, generator=generator)
    anchors = torch.stack([torch.randperm(39, generator=generator)[:count].sort().values + 1 for _ in range(2)])
    block = torch.randn(2, count, 4, 32, generator=generator)
    with torch.no_grad():
        found = draft(features, anchors, block).double()
        draft.double()
        for row, place in [(0, 0), (0, count - 1), (1, count // 2)]:
            expected = one_block(draft, features[row].double(), int(anchors[row, place]), block[row, place].double())
            torch.testing.assert_close(found[row, place], expected, rtol=1e-4, atol=1e-5)


def test_a_block_sees_the_context_before_its_anchor_and_itself():
    assert visibility(torch.tensor([[1, 3]]), length=4, block_size=2).int().tolist() == [
        [
            [
                [1, 0, 0, 0, 1, 1, 0, 0],
                [1, 0, 0, 0, 1, 1, 0, 0],
                [1, 1, 1, 0, 0, 0, 1, 1],
                [1, 1, 1, 0, 0, 0, 1, 1],
            ]
        ]
    ]


def test_a_wider_mlp_starts_as_the_targets():
    wide, narrow = DraftModel(CONFIG), random_draft().float()
    known = [
        {name: weight for name, weight in layer.named_parameters() if "norm" not in name} for layer in narrow.layers
    ]
    for layer in known:
        for name in ("mlp.gate_proj.weight", "mlp.up_proj.weight"):
            layer[name] = layer[name][:40]
        layer["mlp.down_proj.weight"] = layer["mlp.down_proj.weight"][:, :40]
    wide.initialize(0, known, torch.full((32,), 2.0))
    hidden = torch.randn(5, 32, generator=torch.Generator().manual_seed(2))
    gate, up, down = (known[0][f"mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
    expected = (torch.nn.functional.silu(hidden @ gate.T) * (hidden @ up.T)) @ down.T
    torch.testing.assert_close(wide.layers[0].mlp(hidden), expected)
    assert torch.equal(wide.layers[1].self_attn.q_proj.weight, known[1]["self_attn.q_proj.weight"])
    assert torch.equal(wide.norm.weight, torch.full((32,), 2.0))
