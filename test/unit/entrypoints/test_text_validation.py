"""Ids to detokenize and names of parsers: what is refused, and that nothing else is."""

import pytest
from fastapi import HTTPException

from sglang.srt.entrypoints.text_validation import check_parser_name, token_ids_error


@pytest.mark.parametrize("tokens", [[], [0, 127], [[0], [127, 5]], [[]], "no list", [5.5], [129]])
def test_ids_of_model_or_tokenizer_and_what_the_endpoint_judges_itself_pass(tokens):
    assert token_ids_error(tokens, vocab_size=128, tokenizer_size=130) is None


@pytest.mark.parametrize(
    "tokens, found", [([-1], "-1"), ([5, 130], "130"), ([[5], [6, -7]], "-7"), ([2**70], str(2**70))]
)
def test_an_id_outside_the_vocabulary_is_named_with_the_range(tokens, found):
    error = token_ids_error(tokens, vocab_size=128, tokenizer_size=130)
    assert error == f"tokens contains token id {found}; the vocabulary is 0 to 129."


def test_an_unknown_parser_is_a_bad_request_that_lists_the_known_ones():
    check_parser_name("tool_call_parser", "b", {"b": 1, "a": 2})
    with pytest.raises(HTTPException) as raised:
        check_parser_name("tool_call_parser", "c", {"b": 1, "a": 2})
    assert raised.value.status_code == 400
    assert raised.value.detail == "tool_call_parser 'c' does not exist; give one of: a, b."
