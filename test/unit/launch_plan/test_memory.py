"""Bytes of a checkpoint by rank, and whether KV fits beside them: counted by hand."""

import dataclasses
import json
import struct
from pathlib import Path

import pytest

from sglang.launch_plan.checkpoint import Tensor, read_tensors
from sglang.launch_plan.layout import Layout
from sglang.launch_plan.memory import GIB, Memory, gib, problem

LAYOUT = Layout(tp_size=4, pp_size=1, ep_size=2, attention_tp_size=4, layers=2, kv_heads=2)
STAGED = dataclasses.replace(LAYOUT, pp_size=2, stages=((0, 1), (1, 2)))


def write_checkpoint(path: Path, sizes: dict[str, int]) -> None:
    """A safetensors file with tensors of these bytes; their content is a hole of the file system."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, size in sizes.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)


def test_sizes_come_from_the_headers_of_all_files(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model-1.safetensors", {"a": 3 * GIB})
    write_checkpoint(tmp_path / "model-2.safetensors", {"b": 5})
    assert read_tensors(str(tmp_path), network=False) == [Tensor("a", (3 * GIB,), 3 * GIB), Tensor("b", (5,), 5)]


def test_checkpoint_without_readable_files_has_no_sizes(tmp_path: Path) -> None:
    assert read_tensors(str(tmp_path), network=False) is None
    assert read_tensors("some/name-on-a-hub", network=False) is None
    (tmp_path / "model.safetensors").write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match="is no safetensors file: copy it again"):
        read_tensors(str(tmp_path), network=False)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("model.layers.0.self_attn.q_proj.weight", 1 / 4),
        ("model.layers.0.self_attn.k_proj.weight", 1 / 2),  # two heads for four ranks: each is on two
        ("model.layers.0.input_layernorm.weight", 1),
        ("model.layers.0.mlp.gate.weight", 1),
        ("model.layers.0.mlp.gate_proj.weight", 1 / 4),
        ("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", 1),
        ("model.layers.0.mlp.experts.7.down_proj.weight", 1 / 4),  # half of the experts, half of each
        ("model.layers.2.mlp.down_proj.weight", 0),  # behind the last layer: for multi-token prediction
        ("lm_head.weight", 1 / 4),
    ],
)
def test_share_of_one_gpu_follows_the_name(name: str, share: float) -> None:
    assert LAYOUT.share(Tensor(name, (), 800), 0) == 800 * share


def test_stages_hold_their_layers_and_the_ends_of_the_model() -> None:
    names = ["model.embed_tokens.weight", "model.layers.0.a", "model.layers.1.a", "model.norm.weight", "lm_head.weight"]
    held = [[STAGED.share(Tensor(name, (), 4), rank) > 0 for name in names] for rank in (0, 1)]
    assert held == [[True, True, False, False, False], [False, False, True, True, True]]
    embeds_at_end = dataclasses.replace(STAGED, embeds_at_end=True)
    assert embeds_at_end.share(Tensor("model.embed_tokens.weight", (), 4), 1) == 1


def test_every_stage_holds_the_vision_tower() -> None:
    tower = Tensor("vision_tower.encoder.blocks.0.wqkv.weight", (), 4)
    assert STAGED.share(tower, 0) == STAGED.share(tower, 1) == 4 / STAGED.tp_size


def memory(**changes) -> Memory:
    """Of 32 GiB 0.75 are for 20 GiB of weights, 2 GiB of draft, and KV of 1.5 + 0.5 MiB a token: 2 GiB, 1024 tokens."""
    parts = {"weights": 20 * GIB, "draft": 2 * GIB, "kv_per_token": 1.5 * (1 << 20), "draft_kv_per_token": 1 << 19,
             "total": 32 * GIB, "fraction": 0.75}  # fmt: skip
    return Memory(**{**parts, **changes})


def test_what_is_left_is_for_kv_of_target_and_draft() -> None:
    assert memory().kv == 2 * GIB and memory().kv_tokens == 1024 and memory().reserve == 8 * GIB
    assert memory(weights=30 * GIB).kv_tokens == 0
    assert memory(total=None).kv_tokens is None


def test_kv_and_draft_that_do_not_fit_are_one_line_with_the_flags() -> None:
    asked = {"wanted": "--max-total-tokens 2048", "tp_size": 2, "gpu": "GPU0 (RTX 5090)"}
    assert problem(memory(), tokens=1024, **asked) is None
    said = problem(memory(), tokens=2048, **asked)
    assert said == (
        "--mem-fraction-static 0.75: 20.00 GiB of weights and 2.00 GiB of draft per GPU leave room for 1024 tokens of "
        "KV in 0.75 of 32.00 GiB on GPU0 (RTX 5090), and --max-total-tokens 2048 needs 2048. Please raise "
        "--mem-fraction-static to 0.814, or take --tp-size 4 or --pp-size, a quantized checkpoint, or a smaller "
        "--max-total-tokens."
    )
    assert "raise --mem-fraction-static" not in problem(memory(weights=40 * GIB), tokens=2048, **asked)
    assert problem(memory(total=None), tokens=2048, **asked) is None


def test_sizes_are_written_for_reading() -> None:
    assert gib(1.5 * GIB) == "1.50 GiB" and gib(1 << 20) == "1.00 MiB"
