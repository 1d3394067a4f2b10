"""Targets of a known shape with random weights, for measurements that need no text: ``model: shape:qwen3-8b``.

``shape:kimi-k2.6:16`` has 16 layers, in the place of as many as fit one GPU.
"""

from pathlib import Path

from benchmark.round.shapes import LEAST_LAYERS, SHAPES, write_pair

from .config import SHAPE, SweepError

# The ids that the shapes' configurations name.
_UNKNOWN, _BOS, _EOS = range(3)
_SPECIAL = {_UNKNOWN: "<unk>", _BOS: "<s>", _EOS: "</s>"}


def shape_pair(model: str, folder: Path) -> tuple[str, str]:
    """Returns the folders of target and draft, written below ``folder``: configurations and a tokenizer, no weights.

    ``model`` is ``shape:NAME`` or ``shape:NAME:LAYERS``; the server makes the weights itself (``--load-format dummy``).
    Raises SweepError.
    """
    name, _, layers = model.removeprefix(SHAPE).partition(":")
    if name not in SHAPES:
        raise SweepError(f"model {model}: there is no such shape; there are {', '.join(SHAPES)}")
    shape = SHAPES[name]
    if layers:
        if not layers.isdecimal() or not LEAST_LAYERS <= int(layers) <= shape.layers_of_model:
            raise SweepError(f"model {model}: {name} has {LEAST_LAYERS} to {shape.layers_of_model} layers")
        shape = shape.cut(int(layers))
    target, draft = write_pair(shape, folder / f"{name}-{shape.layers}")
    if not (target / "tokenizer_config.json").is_file():
        _write_tokenizer(target, shape.config["vocab_size"])
    return str(target), str(draft)


def _write_tokenizer(folder: Path, vocab_size: int) -> None:
    """A word for each id, as many as the model has, so that answers are text of the same number of tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {_SPECIAL.get(token, f"w{token}"): token for token in range(vocab_size)}
    words = Tokenizer(models.WordLevel(vocab, unk_token=_SPECIAL[_UNKNOWN]))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"unk_token": _SPECIAL[_UNKNOWN], "bos_token": _SPECIAL[_BOS], "eos_token": _SPECIAL[_EOS]}
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)
