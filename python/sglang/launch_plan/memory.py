"""Memory of each GPU by part, and whether it is enough."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU of one stage; ``total`` is None where no GPU is known."""

    weights: float
    draft: float
    kv_per_token: float
    draft_kv_per_token: float
    total: float | None
    fraction: float  # --mem-fraction-static: share for weights and KV; the rest is for activations and graphs

    @property
    def fixed(self) -> float:
        return self.weights + self.draft

    @property
    def reserve(self) -> float | None:
        """For activations, CUDA graphs and what libraries take."""
        return None if self.total is None else (1 - self.fraction) * self.total

    @property
    def kv(self) -> float | None:
        """What is left for keys and values of target and draft; negative where the weights alone are too much."""
        return None if self.total is None else self.fraction * self.total - self.fixed

    @property
    def kv_tokens(self) -> int | None:
        """Tokens whose keys and values fit."""
        per_token = self.kv_per_token + self.draft_kv_per_token
        return None if self.kv is None or not per_token else max(0, int(self.kv / per_token))


def problem(memory: Memory, *, tokens: int, wanted: str, tp_size: int, gpu: str) -> str | None:
    """One line where ``memory`` does not hold ``tokens`` tokens of KV, with the flags to change; None where it does.

    ``wanted`` says in words what the tokens are for, ``gpu`` names the GPU.
    """
    if memory.kv_tokens is None or memory.kv_tokens >= tokens:
        return None
    parts = f"{gib(memory.weights)} of weights"
    if memory.draft:
        parts += f" and {gib(memory.draft)} of draft"
    room = f"{memory.fraction:g} of {gib(memory.total or 0)} on {gpu}"
    least = _least_fraction(memory, tokens)
    raise_it = f"raise --mem-fraction-static to {least:.3f}, or " if least is not None else ""
    flags = f"--tp-size {2 * tp_size} or --pp-size, a quantized checkpoint, or a smaller --max-total-tokens"
    return (
        f"--mem-fraction-static {memory.fraction:g}: {parts} per GPU leave room for {memory.kv_tokens} tokens of KV in "
        f"{room}, and {wanted} needs {tokens}. Please {raise_it}take {flags}."
    )


def gib(size: float) -> str:
    """``size`` in bytes, for reading."""
    return f"{size / (1 << 20):.2f} MiB" if 0 < size < GIB / 100 else f"{size / GIB:.2f} GiB"


def _least_fraction(memory: Memory, tokens: int) -> float | None:
    """The least --mem-fraction-static that holds ``tokens``; None where no reasonable one does."""
    needed = memory.fixed + tokens * (memory.kv_per_token + memory.draft_kv_per_token)
    fraction = needed / (memory.total or 1) + 0.001
    return fraction if fraction <= 0.95 else None
