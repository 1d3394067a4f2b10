"""The bundled draft fits the size limit and comes back within the error that int8 groups promise."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sglang.bundled_pair.errors import PairError
from sglang.bundled_pair.packed_draft import GROUP_SIZE, dequantize, pack_draft, quantize, unpack_draft
from sglang.bundled_pair.prepare import PACKED_DRAFT, prepare_draft

MEGABYTE = 1_000_000


def test_hand_computed_groups():
    weight = torch.zeros(2, 2 * GROUP_SIZE)
    weight[0, :3] = torch.tensor([127.0, -64.0, 0.6])  # scale 1
    weight[0, GROUP_SIZE] = 0.5  # its own group: scale 0.5 / 127, in bfloat16 0.00393677
    stored, scale = quantize(weight)
    assert stored.dtype == torch.int8 and scale.shape == (2, 2)
    assert stored[0, :4].tolist() == [127, -64, 1, 0]
    assert stored[0, GROUP_SIZE].item() == 127
    assert stored[1].count_nonzero() == 0
    assert dequantize(stored, scale)[0, :4].tolist() == [127.0, -64.0, 1.0, 0.0]


@pytest.mark.parametrize("columns", [GROUP_SIZE, 8 * GROUP_SIZE, 72])  # 72: no multiple of 32, one group a row
def test_every_weight_comes_back_within_its_groups_step(columns):
    weight = torch.randn(64, columns, generator=torch.Generator().manual_seed(0)) * 0.02
    stored, scale = quantize(weight)
    restored = dequantize(stored, scale).float()
    step = scale.float().repeat_interleave(columns // scale.shape[1], dim=1)
    # Half a step of rounding; half more where bfloat16 rounded the scale down and the largest weight was cut (127 / 256
    # of a step); and the result's own bfloat16 rounding.
    assert ((restored - weight).abs() <= step + weight.abs() / 256).all()
    relative = ((restored - weight).norm() / weight.norm()).item()
    assert relative < 0.02


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "draft"
    folder.mkdir()
    generator = torch.Generator().manual_seed(1)
    tensors = {
        "fc.weight": torch.randn(32, 64, generator=generator).bfloat16(),
        "norm.weight": torch.randn(32, generator=generator).bfloat16(),
    }
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"block_size": 8, "dflash_config": {"mask_token_id": 4}}))
    return folder


def test_round_trip_keeps_names_shapes_vectors_and_config(tmp_path, checkpoint):
    size = pack_draft(checkpoint, tmp_path / "packed")
    restored_folder = tmp_path / "restored"
    restored_folder.mkdir()
    unpack_draft(tmp_path / "packed", restored_folder)

    original, restored = load_file(checkpoint / "model.safetensors"), load_file(restored_folder / "model.safetensors")
    assert {name: (t.shape, t.dtype) for name, t in restored.items()} == {
        name: (t.shape, torch.bfloat16) for name, t in original.items()
    }
    assert torch.equal(restored["norm.weight"], original["norm.weight"])
    difference = restored["fc.weight"].double() - original["fc.weight"].double()
    measured = (difference.norm() / original["fc.weight"].double().norm()).item()
    assert size.relative_error == pytest.approx(measured)
    assert 0 < measured < 0.01
    assert (restored_folder / "config.json").read_text() == (checkpoint / "config.json").read_text()


def test_packing_what_is_no_dflash_draft_is_refused(tmp_path, checkpoint):
    (checkpoint / "config.json").write_text("{}")
    with pytest.raises(PairError, match="has no dflash_config"):
        pack_draft(checkpoint, tmp_path / "packed")
    assert not (tmp_path / "packed").exists()


def test_another_format_is_refused_by_name(tmp_path, checkpoint):
    pack_draft(checkpoint, tmp_path / "packed")
    tensors = load_file(tmp_path / "packed" / "packed.safetensors")
    save_file(tensors, tmp_path / "packed" / "packed.safetensors", metadata={"format": "dflash-int3"})
    with pytest.raises(PairError, match=r"has the format 'dflash-int3', this release reads 'dflash-int8-groups-1'"):
        unpack_draft(tmp_path / "packed", tmp_path)


def test_the_bundled_draft_fits_16_megabytes_and_states_an_error_below_one_percent():
    packed = PACKED_DRAFT / "packed.safetensors"
    assert packed.stat().st_size + (PACKED_DRAFT / "config.json").stat().st_size <= 16 * MEGABYTE
    with safe_open(packed, "pt") as file:
        assert 0 < float(file.metadata()["relative_error"]) < 0.01


def test_the_bundled_draft_expands_to_the_z_lab_layout_of_its_config(tmp_path):
    folder = prepare_draft(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    hidden, captured = config["hidden_size"], len(config["dflash_config"]["target_layer_ids"])
    tensors = load_file(folder / "model.safetensors")
    assert tensors["fc.weight"].shape == (hidden, captured * hidden)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())
    layers = {name.split(".")[1] for name in tensors if name.startswith("layers.")}
    assert layers == {str(layer) for layer in range(config["num_hidden_layers"])}
    assert not any(name.endswith(".scale") for name in tensors)
