"""A grammar that no token of the vocabulary can begin is invalid; one that some token can begin is served."""

import pytest

from harness.tiny_tokenizer import VOCAB_SIZE, build_tiny_tokenizer
from sglang.srt.constrained.base_grammar_backend import InvalidGrammarObject
from sglang.srt.constrained.xgrammar_backend import XGrammarGrammarBackend


@pytest.fixture(scope="module")
def backend():
    return XGrammarGrammarBackend(build_tiny_tokenizer(), vocab_size=VOCAB_SIZE, model_eos_token_ids=[2])


@pytest.mark.parametrize(
    "key", [("regex", "\u4e2d+"), ("regex", r"[^\s\S]"), ("ebnf", 'root ::= root "a"')], ids=["outside", "none", "loop"]
)
def test_grammar_that_nothing_can_begin(backend, key):
    grammar = backend._init_value_dispatch(key, False)
    assert isinstance(grammar, InvalidGrammarObject)
    assert "no token of this model" in grammar.error_message


@pytest.mark.parametrize("key", [("regex", "a+"), ("json", '{"type": "integer"}'), ("ebnf", 'root ::= "b" | "c"')])
def test_grammar_that_some_token_can_begin(backend, key):
    grammar = backend._init_value_dispatch(key, False)
    assert not isinstance(grammar, InvalidGrammarObject)
    assert not grammar.is_terminated()


def test_grammar_that_does_not_compile_keeps_its_own_message(backend):
    grammar = backend._init_value_dispatch(("regex", "("), False)
    assert isinstance(grammar, InvalidGrammarObject)
    assert "no token of this model" not in grammar.error_message
