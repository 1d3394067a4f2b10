"""The target's hidden states for the draft, under pipeline parallelism: captured by stage, carried forward.

The draft runs on the last stage and reads the inputs of a few target layers, which may stand on any stage. Each stage
captures those of its own layers and appends them to what the stage before it sent, so they arrive in the order of
layers: a row per token of the forward, prompt and verify alike.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from sglang.srt.layers.aux_hidden_states import AuxHiddenStateList
from sglang.srt.model_executor.forward_batch_info import PPProxyTensors
from sglang.srt.runtime_context import get_parallel

# Upstream's name for captured states between stages. With it, its graphs have a buffer for them.
CARRIER = "dspark_hidden_states"


def captures_by_stage(configure: Callable) -> Callable:
    """Wrap `configure_aux_hidden_state_capture`, which captures on the last stage alone."""

    @functools.wraps(configure)
    def choose(*, model: nn.Module, dflash_use_aux_hidden_state: bool, dflash_target_layer_ids: Any, **rest: Any):
        if not dflash_use_aux_hidden_state or rest["is_dspark"] or get_parallel().pp_size == 1:
            return configure(
                model=model,
                dflash_use_aux_hidden_state=dflash_use_aux_hidden_state,
                dflash_target_layer_ids=dflash_target_layer_ids,
                **rest,
            )
        return StageCapture(model, dflash_target_layer_ids).install()

    return choose


class StageCapture:
    """The hidden states that one stage captures of its layers.

    Args:
        model: this stage's part of a causal language model, or of a wrapper that has one as `language_model`: its
            decoder has `layers`, `start_layer`, `end_layer`.
        layer_ids: ascending ids of the target layers whose outputs the draft reads, of all stages.

    Raises ValueError for layers that capture nothing, and for the output of the last layer.
    """

    def __init__(self, model: nn.Module, layer_ids: Sequence[int]) -> None:
        self._model = model
        text_model = decoder_of(model)
        inputs_of = sorted(layer_id + 1 for layer_id in layer_ids)  # a layer's output is the next one's input
        if inputs_of[-1] >= len(text_model.layers):
            raise ValueError(f"layer {inputs_of[-1] - 1} of {type(model).__name__} is its last: no layer captures it")
        self._layers = [text_model.layers[i] for i in inputs_of if text_model.start_layer <= i < text_model.end_layer]
        self._carried_width = sum(i < text_model.start_layer for i in inputs_of) * int(text_model.config.hidden_size)
        self._captured = AuxHiddenStateList()

    def install(self) -> None:
        """Let the layers capture, and the model's forward carry what they captured."""
        for layer in self._layers:
            layer.register_forward_pre_hook(self._ask_for_capture(layer), with_kwargs=True)
        self._model.forward = self._carrying(self._model.forward)
        # What upstream sizes the graphs' incoming buffer by.
        self._model.get_pp_proxy_dspark_hidden_size = lambda: self._carried_width

    def _ask_for_capture(self, layer: nn.Module) -> Callable:
        parameters = inspect.signature(layer.forward).parameters
        if "capture_output" in parameters:
            request = {"capture_output": self._captured.capture}
        elif "captured_last_layer_outputs" in parameters:
            request = {"captured_last_layer_outputs": self._captured}
        else:
            raise ValueError(f"{type(layer).__name__} captures no hidden states")
        return lambda module, args, kwargs: (args, {**kwargs, **request})

    def _carrying(self, forward: Callable) -> Callable:
        @functools.wraps(forward)
        def carry(*args, pp_proxy_tensors: PPProxyTensors | None = None, **kwargs):
            self._captured.clear()
            output = forward(*args, pp_proxy_tensors=pp_proxy_tensors, **kwargs)
            states = self._states(pp_proxy_tensors, output)
            self._captured.clear()
            if isinstance(output, PPProxyTensors):
                if states is not None:
                    output[CARRIER] = states
            elif output.hidden_states is not None:
                output.hidden_states = states
            return output

        return carry

    def _states(self, received: PPProxyTensors | None, output: Any) -> torch.Tensor | None:
        """[tokens, layers so far * hidden size], or None before the first of the layers."""
        carried = []
        if self._carried_width:
            if CARRIER in received.tensors:
                carried.append(received[CARRIER])
            else:  # a warm-up without contents, which upstream makes without this tensor
                hidden = received["hidden_states"]
                carried.append(hidden.new_zeros(len(hidden), self._carried_width))
        states = carried + list(self._captured)
        return torch.cat(states, dim=-1) if states else None


def decoder_of(model: nn.Module) -> nn.Module:
    """The part of a causal language model, or of the one inside a wrapper, that has embedding and layers."""
    return getattr(model, "language_model", model).model
