"""Distillation through the target's frozen head, some rows at a time: full logits of a batch would not fit in memory.

Per row, with p the target's distribution, t the text's token and q the draft's distribution:

    label = soft * p + (1 - soft) * onehot(t)        loss = - sum(label * log q)

Rows weigh exp(-(d - 1) / decay) at depth d of the block, since a token counts only if those before it were accepted.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS_PER_CHUNK = 4096


def depth_weights(depths: int, decay: float) -> Tensor:
    """Returns float32 [depths], 1 at depth 1."""
    return torch.exp(-torch.arange(depths, dtype=torch.float32) / decay)


def distillation_loss(
    draft: Tensor, target: Tensor, tokens: Tensor, weights: Tensor, head: Tensor, soft: float,
    chunk: "Chunk | None" = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Returns the weighted mean loss, a scalar with a gradient to ``draft``, and where the draft's choice is the token.

    ``draft``, ``target`` [rows, hidden] are hidden states before the head; ``tokens`` int64 [rows]; ``weights`` float32
    [rows], 0 where a row has no label; ``head`` [vocabulary, hidden]; ``soft`` in [0, 1]. The second result is bool
    [rows]. ``chunk`` is ``chunk_loss`` or a compiled form of it.
    """
    weights = weights / weights.sum().clamp(min=1e-6)
    return _Distillation.apply(draft, target, tokens, weights, head, soft, chunk or chunk_loss)


def chunk_loss(
    draft_logits: Tensor, target_logits: Tensor, tokens: Tensor, weights: Tensor, soft: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the summed weighted loss, its gradient to ``draft_logits`` [rows, vocabulary], and correct choices."""
    label = torch.softmax(target_logits.float(), dim=-1) * soft
    log_q = torch.log_softmax(draft_logits.float(), dim=-1)
    hard = log_q.gather(1, tokens[:, None]).squeeze(1)
    losses = -(label * log_q).sum(-1) - (1 - soft) * hard
    gradient = (log_q.exp() - label) * weights[:, None]
    gradient = gradient.scatter_add(1, tokens[:, None], (-(1 - soft) * weights)[:, None])
    return (losses * weights).sum(), gradient.to(draft_logits.dtype), draft_logits.argmax(-1) == tokens


Chunk = Callable[[Tensor, Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]]


class _Distillation(torch.autograd.Function):
    """The head is frozen, so the gradient to the hidden states is known with the loss; logits are not kept."""

    @staticmethod
    def forward(ctx, draft, target, tokens, weights, head, soft, chunk):
        rows = len(draft)
        padding = -rows % ROWS_PER_CHUNK if rows > ROWS_PER_CHUNK else 0  # equal chunks: one compiled shape
        low = draft.to(head.dtype)
        low, target = F.pad(low, (0, 0, 0, padding)), F.pad(target, (0, 0, 0, padding))
        tokens, weights = F.pad(tokens, (0, padding)), F.pad(weights, (0, padding))
        total = torch.zeros((), device=draft.device)
        gradient, correct = torch.empty_like(low), torch.empty_like(tokens, dtype=torch.bool)
        # a gradient of one row is tiny beside one of the batch; scaled, it keeps its digits in bfloat16
        scale = float(rows)
        for start in range(0, rows, ROWS_PER_CHUNK):
            part = slice(start, start + ROWS_PER_CHUNK)
            loss, to_logits, hits = chunk(
                low[part] @ head.T, target[part] @ head.T, tokens[part], weights[part] * scale, soft
            )
            total += loss / scale
            gradient[part] = to_logits @ head
            correct[part] = hits
        ctx.save_for_backward(gradient[:rows].to(draft.dtype) / scale)
        ctx.mark_non_differentiable(correct)
        return total, correct[:rows].clone()

    @staticmethod
    def backward(ctx, to_loss, _):
        (gradient,) = ctx.saved_tensors
        return gradient * to_loss, None, None, None, None, None, None
