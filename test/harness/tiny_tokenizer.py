"""A byte-level BPE tokenizer of exactly 128 tokens, so that chat, stop strings and grammars work on the tiny pair."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

VOCAB_SIZE = 128
SPECIAL_TOKENS = ("<unk>", "<s>", "</s>", "<mask>")
UNK_ID, BOS_ID, EOS_ID, MASK_ID = range(len(SPECIAL_TOKENS))

# Frequent English pairs: with them a stop string or a grammar terminal can begin in the middle of a token.
_PAIRS = (
    "th", "he", "in", "er", "an", "re", "on", "at", "en", "nd", "ti", "es", "or", "te", "of",
    "ed", "is", "it", "al", "ar", "st", "to", "nt", "ng", "se", "ha", "ou", "io",
)  # fmt: skip

# Each message is a line "role: content"; the assistant's turn is left open on the last line.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


def build_tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Returns a fast tokenizer: 4 special tokens, newline, printable ASCII, and 28 pairs of letters (128 in all)."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    characters = [byte_level.pre_tokenize_str(chr(code))[0][0] for code in (10, *range(32, 127))]
    tokens = [*SPECIAL_TOKENS, *characters, *_PAIRS]
    if len(tokens) != VOCAB_SIZE or len(set(tokens)) != VOCAB_SIZE:
        raise AssertionError(f"the tiny vocabulary must hold {VOCAB_SIZE} distinct tokens, it holds {len(set(tokens))}")
    backend = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[(pair[0], pair[1]) for pair in _PAIRS],
            unk_token="<unk>",
        )
    )
    backend.pre_tokenizer = byte_level
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>",
        mask_token="<mask>", clean_up_tokenization_spaces=False,
    )  # fmt: skip
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def read_vocabulary(folder: Path) -> dict[str, int]:
    """Returns token text (byte-level spelling) to id of the tokenizer saved in ``folder``."""
    return json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
