"""The bytes that one round of the target must move between memory and processor, and the time that takes.

The memory side of the roofline (Williams, Waterman and Patterson, 2009), counted for a transformer as in Pope et al.,
Efficiently Scaling Transformer Inference (arXiv 2211.05102, section 2): every weight that is used is read once, each
request's keys and values are read once per layer, and each matrix product reads its input and writes its output.

With B requests, W nodes each, T = B W tokens and C tokens before the tree:

    weights      P_dense + E(T) P_expert per layer, and the head; of the embedding T rows
    E(T)         n (1 - (1 - k/n)^T): distinct experts among n that T tokens reach, each choosing k evenly
    KV           B C kv bytes read, T kv bytes written; kv: 2 heads x dimension per layer, with latent attention its
                 rank and its rope part alone
    activations  T times the inputs and outputs of all matrix products, the logits included

Caches are left out, which makes the floor high where activations stay in them, and so are masks, norms and the draft.
"""

from dataclasses import dataclass
from typing import Any

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True)
class Traffic:
    """Bytes of one round, over all ranks together, and the floating-point operations of its matrix products."""

    weights: float
    kv: float
    activations: float
    operations: float

    @property
    def total(self) -> float:
        return self.weights + self.kv + self.activations

    def floor_ms(self, bandwidth_gb_s: float) -> float:
        """Least time in milliseconds; ``bandwidth_gb_s`` in 10^9 bytes per second, of all ranks together."""
        return self.total / bandwidth_gb_s / 1e6


@dataclass(frozen=True)
class _Products:
    """Matrix products of one layer as (input, output) sizes, and key-value numbers per token."""

    attention: list[tuple[int, int]]
    kv_numbers: int
    scores: int  # multiply-adds per pair of a token and a token that it sees


def traffic(config: dict[str, Any], batch: int, width: int, context: int) -> Traffic:
    """Bytes and operations of one round of the target ``config``, a config.json."""
    size, tokens = BYTES[config["dtype"]], batch * width
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    layers = config["num_hidden_layers"]
    attention = _latent(config) if "kv_lora_rank" in config else _grouped(config)
    weights = activations = products = 0.0
    for layer in range(layers):
        dense, routed = _feed_forward(config, layer)
        for rows, columns in attention.attention + dense:
            weights += rows * columns
            activations += tokens * (rows + columns)
            products += tokens * rows * columns
        if routed:
            count, chosen, expert = routed
            used = distinct_experts(count, chosen, tokens)
            for rows, columns in expert:
                weights += used * rows * columns
                activations += tokens * chosen * (rows + columns)
                products += tokens * chosen * rows * columns
    weights += hidden * vocab + tokens * hidden
    activations += tokens * (hidden + vocab)
    products += tokens * hidden * vocab
    kv = layers * attention.kv_numbers * (batch * context + tokens)
    products += layers * attention.scores * tokens * (context + (width + 1) / 2)
    return Traffic(size * weights, size * kv, size * activations, 2 * products)


def distinct_experts(count: int, chosen: int, tokens: int) -> float:
    """Expected number of distinct experts that ``tokens`` tokens reach, each choosing ``chosen`` of ``count``."""
    return count * (1 - (1 - chosen / count) ** tokens)


def _grouped(config: dict[str, Any]) -> _Products:
    hidden, head = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    return _Products([(hidden, queries + 2 * keys), (queries, hidden)], 2 * keys, 2 * queries)


def _latent(config: dict[str, Any]) -> _Products:
    """Absorbed: queries are taken into the latent space, which keys and values share."""
    hidden, heads, rank = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    q_rank = config["q_lora_rank"]
    products = [(hidden, q_rank + rank + rope), (q_rank, heads * (nope + rope)), (heads * value, hidden)]
    products += [(nope, rank), (rank, value)] * heads
    return _Products(products, rank + rope, heads * (2 * rank + rope))


def _feed_forward(
    config: dict[str, Any], layer: int
) -> tuple[list[tuple[int, int]], tuple[int, int, list[tuple[int, int]]] | None]:
    """Products that every token takes, and (experts, chosen, products of one expert) where there are experts."""
    hidden = config["hidden_size"]
    experts = config.get("num_experts") or config.get("n_routed_experts")
    if not experts or layer < config.get("first_k_dense_replace", 0):
        inner = config["intermediate_size"]
        return [(hidden, 2 * inner), (inner, hidden)], None
    inner = config["moe_intermediate_size"]
    shared = inner * config.get("n_shared_experts", 0)
    always = [(hidden, experts), *([(hidden, 2 * shared), (shared, hidden)] if shared else [])]
    return always, (experts, config["num_experts_per_tok"], [(hidden, 2 * inner), (inner, hidden)])
