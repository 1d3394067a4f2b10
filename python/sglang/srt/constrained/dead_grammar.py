"""Refuses a grammar that no output of this model can match."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from sglang.srt.constrained.base_grammar_backend import BaseGrammarObject


def refuse_dead_grammar(compile_grammar: Callable[..., BaseGrammarObject]) -> Callable[..., BaseGrammarObject]:
    """Wrap a grammar backend's compilation: a grammar whose first mask allows no token is an invalid one.

    With an empty mask every logit is minus infinity and the request ends with an internal error after its first
    token; as an invalid grammar it ends with HTTP 400. Only bit masks (int32, one bit a token) are judged.
    """

    @functools.wraps(compile_grammar)
    def wrapped(backend: Any, key: tuple[str, str], *args: Any, **kwargs: Any) -> BaseGrammarObject:
        from sglang.srt.constrained.base_grammar_backend import InvalidGrammarObject

        grammar = compile_grammar(backend, key, *args, **kwargs)
        vocab_size = getattr(backend, "vocab_size", None)
        if grammar is None or vocab_size is None or isinstance(grammar, InvalidGrammarObject):
            return grammar
        if _allows_no_token(grammar.copy(), vocab_size):
            return InvalidGrammarObject("no token of this model can begin an output that matches")
        return grammar

    return wrapped


def _allows_no_token(grammar: BaseGrammarObject, vocab_size: int) -> bool:
    mask = grammar.allocate_vocab_mask(vocab_size, 1, "cpu")
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.int32:
        return False
    grammar.fill_vocab_mask(mask, 0)
    whole_words, rest = divmod(vocab_size, 32)
    last_word = int(mask[0, whole_words]) & ((1 << rest) - 1) if rest else 0
    return not (bool(mask[0, :whole_words].any()) or last_word)
