"""Hidden states of layers on several stages reach the last one once each, in order, a row per token."""

import pytest
import torch
from torch import nn

from sglang.srt.layers.utils.common import PPMissingLayer
from sglang.srt.model_executor.forward_batch_info import PPProxyTensors
from sglang.srt.runtime_context import get_parallel
from sglang.srt.speculative.draft_tree.pipeline_capture import CARRIER, StageCapture, captures_by_stage

HIDDEN, LAYERS = 4, 6


class Layer(nn.Module):
    """Adds one, and hands its input to whoever asks, in one of the two ways of upstream's layers."""

    def forward(self, hidden, capture_output=None):
        if capture_output is not None:
            capture_output(hidden)
        return hidden + 1


class MoeLayer(nn.Module):
    def forward(self, hidden, captured_last_layer_outputs=None):
        if captured_last_layer_outputs is not None:
            captured_last_layer_outputs.append(hidden)
        return hidden + 1


class Output:
    def __init__(self, hidden):
        self.hidden_states = hidden


class Target(nn.Module):
    """One stage of a target whose i-th layer receives i in every place."""

    def __init__(self, start: int, end: int, layer: type = Layer):
        super().__init__()
        self.model = nn.Module()
        self.model.config = type("Config", (), {"hidden_size": HIDDEN})
        self.model.start_layer, self.model.end_layer = start, end
        self.model.layers = nn.ModuleList(layer() if start <= i < end else PPMissingLayer() for i in range(LAYERS))

    def forward(self, tokens, pp_proxy_tensors=None):
        hidden = torch.zeros(tokens, HIDDEN) if pp_proxy_tensors is None else pp_proxy_tensors["hidden_states"]
        for layer in self.model.layers[self.model.start_layer : self.model.end_layer]:
            hidden = layer(hidden)
        is_last = self.model.end_layer == LAYERS
        return Output(hidden) if is_last else PPProxyTensors({"hidden_states": hidden})


class Wrapper(nn.Module):
    """A vision-language model, which knows of no stages itself."""

    def __init__(self, start: int, end: int):
        super().__init__()
        self.language_model = Target(start, end)

    def forward(self, tokens, pp_proxy_tensors=None):
        return self.language_model(tokens, pp_proxy_tensors)


def run(ends: list[int], layer_ids: list[int], tokens: int, layer: type = Layer):
    stages = [Target(start, end, layer) for start, end in zip([0, *ends], [*ends, LAYERS], strict=True)]
    for stage in stages:
        StageCapture(stage, layer_ids).install()
    for _ in range(2):  # nothing is left of the forward before
        output = None
        for stage in stages:
            output = stage.forward(tokens, pp_proxy_tensors=output)
    return stages, output.hidden_states


@pytest.mark.parametrize("ends", [[3], [1], [5], [2, 4], [1, 2, 3]])
@pytest.mark.parametrize("layer_ids", [[0, 2, 4], [1], [0, 1]], ids=str)
@pytest.mark.parametrize("layer", [Layer, MoeLayer])
def test_each_state_arrives_once_and_in_order(ends, layer_ids, layer):
    _, states = run(ends, layer_ids, tokens=12, layer=layer)
    expected = torch.tensor([layer_id + 1.0 for layer_id in layer_ids]).repeat_interleave(HIDDEN)
    assert torch.equal(states, expected.expand(12, -1))


@pytest.mark.parametrize("model", [Target, Wrapper])
def test_the_capture_of_one_stage_is_replaced_where_there_are_several(model):
    asked = []
    configure = captures_by_stage(lambda **arguments: asked.append(arguments["dflash_target_layer_ids"]))
    stages, layers = [model(0, 3), model(3, LAYERS)], {"dflash_target_layer_ids": [0, 3]}
    with get_parallel().override(pp_size=2):
        for stage in stages:
            configure(model=stage, dflash_use_aux_hidden_state=True, is_dspark=False, **layers)
    output = stages[1].forward(7, pp_proxy_tensors=stages[0].forward(7))
    assert output.hidden_states.tolist() == 7 * [HIDDEN * [1.0] + HIDDEN * [4.0]] and not asked
    with get_parallel().override(pp_size=1):
        configure(model=stages[0], dflash_use_aux_hidden_state=True, is_dspark=False, **layers)
    assert asked == [[0, 3]]


def test_the_buffer_of_a_stage_has_the_width_of_what_it_receives():
    stages, _ = run([2, 4], [0, 2, 4], tokens=3)
    assert [stage.get_pp_proxy_dspark_hidden_size() for stage in stages] == [0, HIDDEN, 2 * HIDDEN]


def test_a_warm_up_without_states_gets_zeros_of_their_shape():
    stage = Target(3, LAYERS)
    StageCapture(stage, [0, 4]).install()
    output = stage.forward(5, pp_proxy_tensors=PPProxyTensors({"hidden_states": torch.ones(5, HIDDEN)}))
    assert output.hidden_states.shape == (5, 2 * HIDDEN) and not output.hidden_states[:, :HIDDEN].any()


def test_a_stage_before_the_first_of_the_layers_sends_none():
    stage = Target(0, 2)
    StageCapture(stage, [3]).install()
    assert CARRIER not in stage.forward(5).tensors


def test_the_last_layers_output_and_layers_that_capture_nothing_are_errors():
    with pytest.raises(ValueError, match="layer 5 of Target is its last"):
        StageCapture(Target(0, LAYERS), [LAYERS - 1])
    with pytest.raises(ValueError, match="Linear captures no hidden states"):
        StageCapture(Target(0, LAYERS, lambda: nn.Linear(1, 1)), [0]).install()
