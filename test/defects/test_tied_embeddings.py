"""Tied embeddings under pipeline parallelism: the last stage has a head, and it holds the checkpoint's embedding."""

from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, Qwen3Config

from harness.stages import one_process_groups, pipeline_stage  # noqa: F401
from sglang.srt.layers.tied_head import load_tied_head
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from sglang.srt.model_loader.model_class_lookup import model_class

PATCH = "tied-embeddings-pp"
VOCAB_SIZE, HIDDEN_SIZE, LAYERS = 100, 16, 4
SIZES = dict(
    vocab_size=VOCAB_SIZE,
    hidden_size=HIDDEN_SIZE,
    intermediate_size=32,
    num_hidden_layers=LAYERS,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
)

pytestmark = pytest.mark.usefixtures("one_process_groups")


def checkpoint(embedding: str = "model.embed_tokens.weight") -> dict[str, torch.Tensor]:
    """A checkpoint of a tied model: no head under its own name."""
    generator = torch.Generator().manual_seed(0)
    names = {embedding: (VOCAB_SIZE, HIDDEN_SIZE), "model.norm.weight": (HIDDEN_SIZE,)}
    return {name: torch.rand(*shape, generator=generator) for name, shape in names.items()}


def build(architecture: str, config_class, rank: int, stages: int, *, tied: bool = True):
    config = config_class(**SIZES, tie_word_embeddings=tied)
    with pipeline_stage(rank, stages):
        return model_class(architecture)(config)


FAMILIES = {
    "Llama": ("LlamaForCausalLM", LlamaConfig),
    "Mistral": ("MistralForCausalLM", LlamaConfig),
    "InternLM3": ("InternLM3ForCausalLM", LlamaConfig),
    "Qwen3": ("Qwen3ForCausalLM", Qwen3Config),
}


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_stage_projects_onto_the_embedding(family, stages):
    model = build(*FAMILIES[family], rank=stages - 1, stages=stages)
    weights = checkpoint()
    model.load_weights(weights.items())
    assert isinstance(model.lm_head, ParallelLMHead)
    assert hasattr(model.lm_head, "quant_method"), "the logits processor asks for it"
    assert torch.equal(model.lm_head.weight[:VOCAB_SIZE], weights["model.embed_tokens.weight"])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_first_stage_embeds_with_it(family):
    model = build(*FAMILIES[family], rank=0, stages=2)
    weights = checkpoint()
    model.load_weights(weights.items())
    assert isinstance(model.model.embed_tokens, VocabParallelEmbedding)
    assert torch.equal(model.model.embed_tokens.weight[:VOCAB_SIZE], weights["model.embed_tokens.weight"])


def test_one_stage_keeps_one_matrix():
    model = build(*FAMILIES["Llama"], rank=0, stages=1)
    assert model.lm_head is model.model.embed_tokens


def test_a_stage_in_the_middle_has_neither():
    model = build(*FAMILIES["Llama"], rank=1, stages=3)
    assert not [name for name, _ in model.named_parameters() if "embed_tokens" in name or "lm_head" in name]


def test_an_untied_model_loads_its_own_head():
    model = build(*FAMILIES["Llama"], rank=1, stages=2, tied=False)
    own = torch.rand(VOCAB_SIZE, HIDDEN_SIZE)
    model.load_weights({**checkpoint(), "lm_head.weight": own}.items())
    assert torch.equal(model.lm_head.weight[:VOCAB_SIZE], own)


class StubModel:
    """A last stage that keeps what it was given to load."""

    def __init__(self, config):
        self.config = config
        self.pp_group = SimpleNamespace(world_size=2, is_last_rank=True)
        self.lm_head = ParallelLMHead(VOCAB_SIZE, HIDDEN_SIZE)

    @load_tied_head
    def load_weights(self, weights):
        self.loaded = [name for name, _ in weights]


@pytest.mark.parametrize(
    "name",
    ["model.embed_tokens.weight", "backbone.embeddings.weight", "model.language_model.embed_tokens.weight"],
)
def test_the_embedding_is_found_under_the_names_of_every_family(name):
    model = StubModel(SimpleNamespace(text_config=SimpleNamespace(tie_word_embeddings=True)))
    weights = checkpoint(name)
    model.load_weights(weights.items())
    assert torch.equal(model.lm_head.weight[:VOCAB_SIZE], weights[name])
    assert model.loaded == list(weights)


def test_a_head_beside_the_embedding_is_left_out():
    model = StubModel(SimpleNamespace(tie_word_embeddings=True))
    weights = {**checkpoint(), "lm_head.weight": torch.zeros(VOCAB_SIZE, HIDDEN_SIZE)}
    model.load_weights(weights.items())
    assert torch.equal(model.lm_head.weight[:VOCAB_SIZE], weights["model.embed_tokens.weight"])
    assert "lm_head.weight" not in model.loaded


@pytest.mark.parametrize("name", ["model.visual.embeddings.weight", "mtp.embed_tokens.weight"])
def test_embeddings_of_other_parts_are_not_taken(name):
    model = StubModel(SimpleNamespace(tie_word_embeddings=True))
    torch.nn.init.zeros_(model.lm_head.weight)  # it is made of uninitialized memory, where not a number may stand
    model.load_weights({name: torch.ones(VOCAB_SIZE, HIDDEN_SIZE)}.items())
    assert not model.lm_head.weight.any()


@pytest.mark.parametrize(
    "architecture",
    ["LlamaForCausalLM", "DeepseekV3ForCausalLM", "MiMoV2ForCausalLM", "NanbeigeForCausalLM", "NemotronHForCausalLM"],
)
def test_every_family_with_the_gap_loads_its_head(architecture):
    assert hasattr(model_class(architecture).load_weights, "__wrapped__")


def test_without_the_patch_the_last_stage_of_llama_has_no_head(trees):
    test = f"{__file__}::test_the_last_stage_projects_onto_the_embedding"
    failing = trees.failing_without(PATCH, f"{test}[Llama-2]", f"{test}[Mistral-3]", f"{test}[Qwen3-2]")
    assert set(failing) == {
        "test_the_last_stage_projects_onto_the_embedding[Llama-2]",
        "test_the_last_stage_projects_onto_the_embedding[Mistral-3]",
    }
    assert all("PPMissingLayer" in reason for reason in failing.values())
