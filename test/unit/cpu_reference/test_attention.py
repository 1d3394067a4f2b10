"""The attention backend against a softmax written out row by row."""

import math
from types import SimpleNamespace

import pytest
import torch

from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.platforms.cpu_reference.attention import CpuReferenceAttention

Q_HEADS, KV_HEADS, DIM, SLOTS = 4, 2, 8, 64


class Pool:
    """Keys and values of one layer, written by slot."""

    def __init__(self, dtype):
        generator = torch.Generator().manual_seed(1)
        self.k = torch.randn(SLOTS, KV_HEADS, DIM, generator=generator).to(dtype)
        self.v = torch.randn(SLOTS, KV_HEADS, DIM, generator=generator).to(dtype)

    def get_key_buffer(self, layer_id):
        return self.k

    def get_value_buffer(self, layer_id):
        return self.v

    def set_kv_buffer(self, layer, loc, k, v):
        self.k[loc.loc], self.v[loc.loc] = k, v


def layer(**changes):
    settings = dict(
        layer_id=0, tp_q_head_num=Q_HEADS, tp_k_head_num=KV_HEADS, qk_head_dim=DIM, v_head_dim=DIM,
        scaling=DIM**-0.5, sliding_window_size=-1, logit_cap=0.0, attn_type=AttentionType.DECODER,
        is_cross_attention=False,
    )  # fmt: skip
    return SimpleNamespace(**{**settings, **changes})


def run(mode, prefix_lens, rows, *, dtype=torch.float32, sinks=None, ancestors=None, depths=None, **layer_changes):
    """Runs one forward; returns it and the oracle's answer. ``rows``: new tokens of each request."""
    generator = torch.Generator().manual_seed(2)
    bs, total = len(prefix_lens), sum(rows)
    table = torch.full((bs, 24), SLOTS + 1000)  # stale past a request's end, and out of the pool
    pool = Pool(dtype)
    runner = SimpleNamespace(req_to_token_pool=SimpleNamespace(req_to_token=table.int()), token_to_kv_pool=pool)
    backend = CpuReferenceAttention(runner)
    ends = [p + n for p, n in zip(prefix_lens, rows, strict=True)]
    # Requests must not share slots here, or one would overwrite the other's keys.
    owned = (torch.randperm(SLOTS - 1, generator=generator) + 1).split([*ends, SLOTS - 1 - sum(ends)])
    for b, end in enumerate(ends):
        table[b, :end] = owned[b]
    runner.req_to_token_pool.req_to_token.copy_(table)
    slots = torch.cat([table[b, p : p + n] for b, (p, n) in enumerate(zip(prefix_lens, rows, strict=True))])
    verify = mode == ForwardMode.TARGET_VERIFY
    depths = depths if depths is not None else [list(range(n)) for n in rows]
    positions = torch.tensor([p + d for p, ds in zip(prefix_lens, depths, strict=True) for d in ds])
    batch = SimpleNamespace(
        forward_mode=mode, out_cache_loc=slots, req_pool_indices=torch.arange(bs), positions=positions,
        seq_lens=torch.tensor(prefix_lens if verify else ends), extend_seq_lens=torch.tensor(rows),
        spec_info=SimpleNamespace(num_tokens_per_req=rows[0], ancestor_mask=ancestors, custom_mask=None),
    )  # fmt: skip
    q = torch.randn(total, Q_HEADS * DIM, generator=generator).to(dtype)
    k = torch.randn(total, KV_HEADS, DIM, generator=generator).to(dtype)
    v = torch.randn(total, KV_HEADS, DIM, generator=generator).to(dtype)
    this = layer(**layer_changes)
    backend.init_forward_metadata(batch)
    forward = backend.forward_decode if mode == ForwardMode.DECODE else backend.forward_extend
    out = forward(q, k, v, this, batch, sinks=sinks)

    expected = torch.zeros(total, Q_HEADS, DIM)
    row = 0
    for b, (prefix, count) in enumerate(zip(prefix_lens, rows, strict=True)):
        for i in range(count):
            for head in range(Q_HEADS):
                seen = [c for c in range(prefix + count) if sees(this, prefix, i, c, depths[b], ancestors, b)]
                keys = pool.k[table[b, seen], head // (Q_HEADS // KV_HEADS)].float()
                values = pool.v[table[b, seen], head // (Q_HEADS // KV_HEADS)].float()
                scores = keys @ q.view(total, Q_HEADS, DIM)[row, head].float() * this.scaling
                if this.logit_cap:
                    scores = this.logit_cap * torch.tanh(scores / this.logit_cap)
                sink = torch.tensor([float(sinks[head])]) if sinks is not None else torch.tensor([-math.inf])
                weights = torch.softmax(torch.cat([scores, sink]), dim=0)[:-1]
                expected[row, head] = weights @ values
            row += 1
    return out.float(), expected.view(total, -1)


def sees(this, prefix, i, column, depths, ancestors, b):
    window, position = this.sliding_window_size, prefix + depths[i]
    if column < prefix:
        return window < 0 or column >= position - window
    key = column - prefix
    if this.attn_type == AttentionType.ENCODER_ONLY:
        return True
    granted = bool(ancestors[b, i, key]) if ancestors is not None else key <= i
    return granted and (window < 0 or prefix + depths[key] >= position - window)


TREE = torch.tensor([[[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]], dtype=torch.bool).repeat(2, 1, 1)
CASES = {
    "prefill": (ForwardMode.EXTEND, [0, 0], [5, 3], {}),
    "prefill after a cached prefix": (ForwardMode.EXTEND, [4, 7], [3, 1], {}),
    "decode": (ForwardMode.DECODE, [3, 9, 1], [1, 1, 1], {}),
    "chain": (ForwardMode.TARGET_VERIFY, [5, 2], [4, 4], {}),
    "tree": (ForwardMode.TARGET_VERIFY, [5, 2], [4, 4], dict(ancestors=TREE, depths=[[0, 1, 1, 2]] * 2)),
    "draft block": (ForwardMode.TARGET_VERIFY, [5, 2], [4, 4], dict(attn_type=AttentionType.ENCODER_ONLY)),
    "capped logits": (ForwardMode.TARGET_VERIFY, [5, 2], [4, 4], dict(logit_cap=1.5)),
    "attention sinks": (ForwardMode.DECODE, [5, 2], [1, 1], dict(sinks=torch.tensor([0.5, -1.0, 2.0, 0.0]))),
}


@pytest.mark.parametrize("window", [-1, 2])
@pytest.mark.parametrize("name", CASES)
def test_equals_the_softmax_written_out(name, window):
    mode, prefix_lens, rows, options = CASES[name]
    out, expected = run(mode, prefix_lens, rows, sliding_window_size=window, **options)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)


def test_bfloat16_stays_within_its_precision():
    out, expected = run(ForwardMode.TARGET_VERIFY, [5, 2], [4, 4], dtype=torch.bfloat16)
    torch.testing.assert_close(out, expected, atol=3e-2, rtol=3e-2)


def test_a_mask_of_another_size_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match="9 cells.*32"):
        run(ForwardMode.TARGET_VERIFY, [5, 2], [4, 4], ancestors=torch.ones(1, 3, 3, dtype=torch.bool))


def test_what_the_backend_lacks_is_refused_by_name():
    with pytest.raises(NotImplementedError, match="cross attention"):
        run(ForwardMode.DECODE, [3], [1], is_cross_attention=True)
