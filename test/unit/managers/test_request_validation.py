"""What a request may say: each refusal names the field, what was sent and what is allowed."""

from types import SimpleNamespace

import pytest
import torch

from sglang.srt.managers.embed_types import PositionalEmbeds
from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput
from sglang.srt.managers.request_validation import (
    check_generate_request,
    session_parameters,
    template_arguments_error,
)

MODEL = SimpleNamespace(vocab_size=128, hidden_size=64, context_len=512, is_multimodal=False)
VISION_MODEL = SimpleNamespace(**{**vars(MODEL), "is_multimodal": True})


def check(input_ids, model=MODEL, **fields):
    request = GenerateReqInput(input_ids=input_ids, **fields)
    request.normalize_batch_and_arguments()
    check_generate_request(request, input_ids, model)


@pytest.mark.parametrize("input_ids", [[0], [127], [0, 127, 64]])
def test_ids_of_the_vocabulary_pass(input_ids):
    check(input_ids)


@pytest.mark.parametrize("input_ids, named", [([128], "128"), ([5, -1], "-1"), ([10**12, 3], "1000000000000")])
def test_ids_outside_the_vocabulary_are_named(input_ids, named):
    with pytest.raises(ValueError, match=rf"token id {named}; .* 0 to 127"):
        check(input_ids)


def test_an_adapter_may_bring_tokens_of_its_own():
    check([128], lora_path="adapter")
    with pytest.raises(ValueError, match="token id -1"):
        check([-1], lora_path="adapter")


def test_placeholders_of_images_are_no_token_ids():
    check([-200, 5], VISION_MODEL, image_data="image")


@pytest.mark.parametrize("field", ["image_data", "video_data", "audio_data"])
def test_a_text_model_is_sent_text_only(field):
    with pytest.raises(ValueError, match="reads text only"):
        check([5], **{field: "file"})


def test_empty_prompt():
    request = GenerateReqInput(text="")
    with pytest.raises(ValueError, match="no tokens"):
        check_generate_request(request, [], MODEL)


def test_a_session_may_supply_the_prompt():
    request = GenerateReqInput(input_ids=[], session_params={"id": "conversation"})
    check_generate_request(request, [], MODEL)


@pytest.mark.parametrize("count", [0, 1, 128])
def test_top_logprobs_within_the_vocabulary_pass(count):
    check([5], return_logprob=True, top_logprobs_num=count)


@pytest.mark.parametrize(
    "field, value, allowed",
    [
        ("top_logprobs_num", 129, "between 0 and 128"),
        ("top_logprobs_num", -1, "between 0 and 128"),
        ("logprob_start_len", -2, "at least -1"),
    ],
)
def test_log_probability_fields_outside_their_range(field, value, allowed):
    with pytest.raises(ValueError, match=f"{field} must be {allowed}, got {value}"):
        check([5], return_logprob=True, **{field: value})


@pytest.mark.parametrize(
    "embeddings, message",
    [
        ([[0.5] * 3] * 2, "rows of \\[3\\] values; the model's hidden size is 64"),
        ([[0.5] * 64, [0.5] * 3], "rows of \\[3, 64\\] values"),
        ([[0.5] * 64] * 512, "512 rows; the model's context length is 512"),
    ],
)
def test_embeddings_that_the_model_cannot_take(embeddings, message):
    request = GenerateReqInput(input_embeds=embeddings)
    with pytest.raises(ValueError, match=message):
        check_generate_request(request, None, MODEL)


def test_embeddings_of_the_model_pass():
    check_generate_request(GenerateReqInput(input_embeds=[[0.5] * 64] * 511), None, MODEL)


@pytest.mark.parametrize("embeddings", [[], [[]], [[[]]]])
def test_empty_embeddings(embeddings):
    with pytest.raises(ValueError, match="input_embeds is empty"):
        GenerateReqInput(input_embeds=embeddings).normalize_batch_and_arguments()


def test_embedding_overrides_from_json():
    request = GenerateReqInput(input_ids=[5], positional_embed_overrides={"positions": [0]})
    with pytest.raises(ValueError, match="positional_embed_overrides must be PositionalEmbeds, got dict"):
        check_generate_request(request, [5], MODEL)


def test_embedding_overrides_of_the_engine_pass():
    overrides = PositionalEmbeds(embeds=torch.zeros(1, 64), positions=[0])
    check_generate_request(GenerateReqInput(input_ids=[5], positional_embed_overrides=overrides), [5], MODEL)


@pytest.mark.parametrize("serialized", ["garbage", "[1]", '{"callable": "zz"}', '{"callable": "80049500000000"}'])
def test_logit_processor_that_cannot_be_read(serialized):
    with pytest.raises(ValueError, match="custom_logit_processor cannot be read"):
        check([5], custom_logit_processor=serialized)


def test_embedding_requests_are_not_judged():
    check_generate_request(EmbeddingReqInput(text="a"), [999], MODEL)


BATCH = [[5], [6]]


@pytest.mark.parametrize(
    "fields",
    [
        {"return_logprob": [True]},
        {"top_logprobs_num": [1, 2, 3]},
        {"logprob_start_len": [0]},
        {"sampling_params": [{"max_new_tokens": 2}]},
        {"custom_logit_processor": ["x"]},
        {"lora_path": ["x"]},
        {"token_ids_logprob": [[1]]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_lists_need_one_value_per_prompt(fields):
    with pytest.raises(ValueError, match=rf"{next(iter(fields))} has \d (values|lists) for 2 prompts"):
        GenerateReqInput(input_ids=BATCH, **fields).normalize_batch_and_arguments()


@pytest.mark.parametrize("field", ["top_logprobs_num", "logprob_start_len", "sampling_params"])
def test_a_single_prompt_takes_single_values(field):
    value = [{}] if field == "sampling_params" else [1]
    with pytest.raises(ValueError, match=f"{field} is a list of 1 for a single prompt"):
        GenerateReqInput(input_ids=[5], **{field: value}).normalize_batch_and_arguments()


def test_lists_with_one_value_per_prompt_pass():
    request = GenerateReqInput(
        input_ids=BATCH,
        sampling_params=[{"max_new_tokens": 2}, {"max_new_tokens": 3}],
        return_logprob=[True, False],
        top_logprobs_num=[1, 0],
        token_ids_logprob=[[1], [2]],
    )
    request.normalize_batch_and_arguments()
    assert request[1].sampling_params == {"max_new_tokens": 3}


@pytest.mark.parametrize("samples", [0, -1, 1.5, "x"])
def test_number_of_samples(samples):
    with pytest.raises(ValueError, match="n must be an integer of at least 1"):
        GenerateReqInput(input_ids=[5], sampling_params={"n": samples}).normalize_batch_and_arguments()


def test_session_parameters_that_do_not_exist_are_named():
    with pytest.raises(ValueError, match="session_params must be an object with the fields id, .*'identity'"):
        session_parameters({"identity": "x"})
    with pytest.raises(ValueError, match="session_params must be an object"):
        session_parameters("x")
    assert session_parameters({"id": "x"}).id == "x"


def test_template_arguments_of_the_server_cannot_be_set():
    assert "tokenize" in template_arguments_error({"tokenize": False, "enable_thinking": True})
    assert template_arguments_error({"enable_thinking": True}) is None
    assert template_arguments_error(None) is None
