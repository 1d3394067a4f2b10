"""What the target needs to verify several widths: for each an attention backend and, on a GPU, its CUDA graphs.

Upstream's own pair is that of the greatest width. A step of plain decoding has graphs of its own, captured in decode
mode with the hidden states that the draft reads, so that it runs the kernels of a server without speculation.

A wide verify of a large batch is no use, since nothing is free any more when so many tokens are computed, and its
graphs and logits would fill the memory; so a batch verifies at most MAX_VERIFY_TOKENS, the least width aside.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardMode
from sglang.srt.runtime_context import get_exec, get_spec
from sglang.srt.speculative.draft_tree.config import draft_tree_config

if TYPE_CHECKING:
    from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.speculative.draft_tree.plain_step_tail import PlainStepTail

MAX_VERIFY_TOKENS = 4096


def widths_for(bs: int, widths: Sequence[int]) -> tuple[int, ...]:
    """Those of `widths`, ascending, that a batch of `bs` requests may be verified at."""
    return tuple(width for width in widths if width == widths[0] or width * bs <= MAX_VERIFY_TOKENS)


class WidthGraphs:
    """Backends and graphs of one target, by width.

    Args:
        runner: of the target, with upstream's own graphs in place.
        widths: ascending.
        plain_steps: whether a round of width 1 is a step of plain decoding, or a verify of the root alone.
        tail: of the graphs of plain steps, if they have one.
    """

    def __init__(
        self, runner: ModelRunner, widths: Sequence[int], *, plain_steps: bool, tail: PlainStepTail | None = None
    ) -> None:
        self._runner, self._plain_steps, self._tail = runner, plain_steps, tail
        self._resources = {widths[-1]: (runner.attn_backend, runner.decode_cuda_graph_runner)}
        for width in widths[:-1]:
            with captures_width(width, widths):
                self._resources[width] = self._build(width)

    @classmethod
    def of(
        cls, runner: ModelRunner, widths: Sequence[int], *, plain_steps: bool, tail: PlainStepTail | None = None
    ) -> WidthGraphs | None:
        """None where one backend serves every width: there is one, or nothing is captured and any mask is read."""
        if len(widths) == 1 or getattr(runner.attn_backend, "reads_ancestor_mask", False):
            return None
        return cls(runner, widths, plain_steps=plain_steps, tail=tail)

    def use(self, width: int) -> None:
        """Every forward of the target is of this width until the next call."""
        self._runner.attn_backend, self._runner.decode_cuda_graph_runner = self._resources[width]

    def _build(self, width: int) -> tuple:
        backend = another_backend(self._runner)
        graphs = self._runner.decode_cuda_graph_runner
        if not captures(self._runner):
            return backend, graphs
        is_plain = width == 1 and self._plain_steps
        runner_class = plain_step_runner(type(graphs)) if is_plain else type(graphs)
        ends = self._tail.captured(self._runner) if is_plain and self._tail is not None else contextlib.nullcontext()
        with ends:
            return backend, runner_class(self._runner, attn_backend=backend, speculative_num_draft_tokens=width)


@functools.cache
def plain_step_runner(base: type) -> type:
    """`base`, a class of upstream's decode graph runners, for steps of plain decoding of a speculative target."""

    class PlainStepRunner(base):
        # Upstream's constructor assigns both from the algorithm, and captures with what they are.
        capture_forward_mode = property(lambda self: ForwardMode.DECODE, lambda self, mode: None)
        capture_hidden_mode = property(lambda self: CaptureHiddenMode.FULL, lambda self, mode: None)

        def get_spec_info(self, num_tokens: int) -> None:
            return None

    return PlainStepRunner


def captures_few_wide_batches(capture: Callable) -> Callable:
    """Wrap `capture_decode_graph`: the target's graphs of the greatest width, for the batches that use it."""

    @functools.wraps(capture)
    def capture_few(*, model_runner: ModelRunner):
        widths = _adaptive_widths(model_runner)
        if not widths:
            return capture(model_runner=model_runner)
        with _batches_for(widths[-1], widths):
            return capture(model_runner=model_runner)

    return capture_few


def counts_rows_by_width(rows: Callable) -> Callable:
    """Wrap `ModelRunner.max_decode_logits_rows`: the most of any width, with the batches that use it."""

    @functools.wraps(rows)
    def most(self: ModelRunner) -> int:
        def rows_of(width: int) -> int:
            with captures_width(width, widths):
                return rows(self)

        widths = _adaptive_widths(self)
        return max(map(rows_of, widths)) if widths else rows(self)

    return most


def _adaptive_widths(runner: ModelRunner) -> tuple[int, ...]:
    config = None if runner.is_draft_worker or not runner.spec_algorithm.is_dflash() else draft_tree_config()
    return config.widths if config is not None and len(config.widths) > 1 else ()


def captures(runner: ModelRunner) -> bool:
    """Whether decode steps of `runner` replay CUDA graphs."""
    return hasattr(runner.decode_cuda_graph_runner, "captured_req_width")


def largest_batch() -> int:
    """Requests of the largest decode graph that is captured now."""
    return max(get_exec().graph.cuda_graph_config.decode.bs)


def another_backend(runner: ModelRunner) -> AttentionBackend:
    """An attention backend like that of `runner`, with buffers of its own."""
    kept = runner.init_new_workspace
    try:
        return runner._get_attention_backend(init_new_workspace=True)
    finally:
        runner.init_new_workspace = kept


@contextlib.contextmanager
def captures_width(width: int, widths: Sequence[int]) -> Iterator[None]:
    """Within, graphs are captured for verifies of `width`, one of `widths`."""
    with get_spec().override(speculative_num_draft_tokens=width), _batches_for(width, widths):
        yield


@contextlib.contextmanager
def _batches_for(width: int, widths: Sequence[int]) -> Iterator[None]:
    """Within, graphs are captured for the batch sizes that use `width`."""
    config = copy.deepcopy(get_exec().graph.cuda_graph_config)
    sizes = config.decode.bs
    config.decode.bs = sizes and ([bs for bs in sizes if width in widths_for(bs, widths)] or sizes[:1])
    with get_exec().graph.override(cuda_graph_config=config):
        yield
