"""The frozen target: what the draft reads of it, and the embedding and head that it borrows."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class TargetStates:
    """States of one forward: ``features`` [rows, length, layers * hidden], ``final`` [rows, length, hidden].

    ``features`` concatenates the outputs of the chosen layers, in their order; ``final`` is what the head reads.
    """

    features: Tensor
    final: Tensor


class Target:
    """A causal language model of transformers in ``dtype`` on ``device``; nothing of it is trained."""

    def __init__(self, folder: Path, layers: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> None:
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
        self.model.requires_grad_(False).eval().to(device)
        self.embedding: Tensor = self.model.get_input_embeddings().weight  # [vocabulary, hidden]
        self.head: Tensor = self.model.get_output_embeddings().weight  # [vocabulary, hidden]
        self._captured: dict[int, Tensor] = {}
        self._layers = layers
        blocks: nn.ModuleList = self.model.model.layers
        for layer in layers:
            if not 0 <= layer < len(blocks):
                raise ValueError(f"the draft reads layer {layer} of a target with {len(blocks)} layers")
            blocks[layer].register_forward_hook(self._capture(layer))

    def _capture(self, layer: int):
        def hook(module: nn.Module, arguments: object, output: Tensor | tuple[Tensor, ...]) -> None:
            self._captured[layer] = output if isinstance(output, Tensor) else output[0]

        return hook

    def last_layers(self, count: int) -> tuple[list[dict[str, Tensor]], Tensor]:
        """Returns the weights of the last ``count`` layers by name, and the last norm's weight."""
        layers = list(self.model.model.layers)[-count:]
        return [dict(layer.named_parameters()) for layer in layers], self.model.model.norm.weight

    @torch.no_grad()
    def states(self, tokens: Tensor) -> TargetStates:
        """Runs ``tokens`` int64 [rows, length]; padding must stand at the right, where causal attention hides it."""
        final = self.model.model(input_ids=tokens, use_cache=False).last_hidden_state
        features = torch.cat([self._captured[layer] for layer in self._layers], dim=-1)
        self._captured.clear()
        return TargetStates(features, final)
