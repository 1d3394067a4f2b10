"""Refuses requests of the text endpoints (detokenize, parsers) that would otherwise be HTTP 500."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from fastapi import HTTPException


def token_ids_error(tokens: Any, vocab_size: int, tokenizer_size: int) -> str | None:
    """What is wrong with the ids of a detokenize request, or None.

    ``tokens`` is a list of ids or of such lists; entries of other types are left to the endpoint. Ids end with the
    model's vocabulary, which may be padded, or the tokenizer's, which may have added tokens.
    """
    highest = max(vocab_size, tokenizer_size) - 1
    for entry in tokens if isinstance(tokens, list) else ():
        for token in entry if isinstance(entry, list) else (entry,):
            if isinstance(token, int) and not 0 <= token <= highest:
                return f"tokens contains token id {token}; the vocabulary is 0 to {highest}."
    return None


def check_parser_name(field: str, name: str, known: Iterable[str]) -> None:
    """Answer HTTP 400 for a parser ``name`` that is not among ``known``, listing these."""
    known = sorted(known)
    if name not in known:
        raise HTTPException(
            HTTPStatus.BAD_REQUEST, f"{field} {name!r} does not exist; give one of: {', '.join(known)}."
        )
