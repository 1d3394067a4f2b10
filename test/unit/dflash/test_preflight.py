"""A DFLASH launch that cannot work ends with one line: the flag, what was found, what to do. No weights, no server."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.tiny_pair import make_tiny_pair
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative import dflash_preflight
from sglang.srt.speculative.dflash_preflight import check_attention_backends, check_dflash_launch
from sglang.srt.speculative.verify_backends import check_draft_backend, check_verify_backend
from sglang.srt.utils.launch_error import LaunchError, exit_on_launch_error

TARGET = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 8,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
}
DRAFT = {
    **TARGET,
    "architectures": ["DFlashDraftModel"],
    "num_hidden_layers": 2,
    "num_target_layers": 8,
    "block_size": 8,
    "layer_types": ["full_attention", "full_attention"],
    "dflash_config": {"target_layer_ids": [1, 4], "mask_token_id": 999},
}
REMOVED = object()


def changed(config: dict, **changes) -> dict:
    return {key: value for key, value in {**config, **changes}.items() if value is not REMOVED}


def dflash_config(**changes) -> dict:
    return changed(DRAFT["dflash_config"], **changes)


def write_model(folder: Path, config: dict | None, *, weights: bool = True) -> Path:
    folder.mkdir(parents=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    if weights:
        (folder / "model.safetensors").touch()
    return folder


def launch_arguments(tmp_path: Path, *, target: dict | None = None, draft: dict | None = None, **flags) -> ServerArgs:
    """Arguments of a launch of TARGET and DRAFT, with some of their config entries and some flags changed."""
    defaults = {
        "model_path": str(write_model(tmp_path / "target", changed(TARGET, **(target or {})))),
        "speculative_algorithm": "DFLASH",
        "speculative_draft_model_path": str(write_model(tmp_path / "draft", changed(DRAFT, **(draft or {})))),
    }
    return ServerArgs(**{**defaults, **flags})


def refusal(server_args: ServerArgs) -> str:
    with pytest.raises(LaunchError) as caught:
        check_dflash_launch(server_args)
    message = str(caught.value)
    assert "\n" not in message and message.endswith("."), "a refusal is one line of whole sentences"
    return message


# Each case: changes of the target's config, of the draft's, of the flags; parts of the message (flag, found, fix).
REFUSED = {
    "language model given as draft": (
        {}, {"architectures": ["Qwen3ForCausalLM"]}, {},
        ("--speculative-draft-model-path", "['Qwen3ForCausalLM']", "DFlashDraftModel", "DFlash2DraftModel"),
    ),
    "draft without architectures": (
        {}, {"architectures": REMOVED}, {}, ("--speculative-draft-model-path", "missing", "DFlashDraftModel")
    ),
    "another hidden size": (
        {}, {"hidden_size": 48}, {}, ("--speculative-draft-model-path", "hidden size 48", "has 64", "Give the draft")
    ),
    "another vocabulary": (
        {}, {"vocab_size": 800}, {}, ("--speculative-draft-model-path", "800 tokens", "of 1000", "Give the draft")
    ),
    "a head of its own with fewer tokens (R10)": (
        {}, {"draft_vocab_size": 320}, {}, ("draft_vocab_size", "320 tokens", "1000", "full vocabulary")
    ),
    "a selector table without rows for some target tokens": (
        {}, {"vocab_size": 995, "dflash_config": dflash_config(selector_rank=4, selector_top_k=2)}, {},
        ("995 tokens", "of 1000", "Give the draft"),
    ),
    "captured layer behind the last": (
        {}, {"dflash_config": dflash_config(target_layer_ids=[1, 8])}, {},
        ("dflash_config.target_layer_ids", "[8]", "layers 0 to 7", "Give the draft"),
    ),
    "captured last layer of a class that cannot hand it out (R12)": (
        {}, {"dflash_config": dflash_config(target_layer_ids=[1, 7])}, {},
        ("last target layer 7", "Qwen3ForCausalLM", "earlier layers"),
    ),
    "captured layer below zero": (
        {}, {"dflash_config": dflash_config(target_layer_ids=[-1, 3])}, {}, ("target_layer_ids", "[-1]", "0 to 7")
    ),
    "no captured layers named and too few to choose from": (
        {"num_hidden_layers": 3}, {"dflash_config": dflash_config(target_layer_ids=REMOVED)}, {},
        ("no target_layer_ids", "3 layers", "4 are needed"),
    ),
    "captured layers that are no list": (
        {}, {"dflash_config": dflash_config(target_layer_ids=5)}, {},
        ("--speculative-draft-model-path", "must be a list", "config.json"),
    ),
    "target class without the hook (R12)": (
        {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}, {}, {},
        ("--speculative-algorithm DFLASH", "Qwen2ForCausalLM", "set_dflash_layers_to_capture", "without"),
    ),
    "block of one in the draft's config": (
        {}, {"block_size": 1}, {}, ("--speculative-draft-model-path", "block size 1", "2 or more")
    ),
    "block of one asked for": (
        {}, {}, {"speculative_num_draft_tokens": 1}, ("--speculative-num-draft-tokens 1", "block size 1", "2 or more")
    ),
    "block of zero asked for": (
        {}, {}, {"speculative_dflash_block_size": 0}, ("--speculative-dflash-block-size 0", "block size 0", "2 or more")
    ),
    "mask token behind the vocabulary": (
        {}, {"dflash_config": dflash_config(mask_token_id=1000)}, {},
        ("--speculative-draft-model-path", "id 1000", "ends at id 999", "dflash_config.mask_token_id"),
    ),
    "mask token without id and no tokenizer": (
        {}, {"dflash_config": dflash_config(mask_token_id=REMOVED)}, {"skip_tokenizer_init": True},
        ("--skip-tokenizer-init", "'<|MASK|>'", "mask_token_id"),
    ),
    "context beyond the draft's positions (R13)": (
        {}, {"max_position_embeddings": 256}, {}, ("--context-length", "512", "256", "SGLANG_ALLOW_OVERWRITE")
    ),
    "adaptive mode": ({}, {}, {"speculative_adaptive": True}, ("--speculative-adaptive", "Leave the flag out")),
    "a target backend without verification": (
        {}, {}, {"attention_backend": "torch_native"}, ("--attention-backend torch_native", "cannot verify", "Leave")
    ),
    "a prefill backend without verification": (
        {}, {}, {"prefill_attention_backend": "flex_attention", "decode_attention_backend": "triton"},
        ("--prefill-attention-backend flex_attention", "one of"),
    ),
    "a draft backend that is causal only": (
        {}, {}, {"speculative_draft_attention_backend": "torch_native"},
        ("--speculative-draft-attention-backend torch_native", "both directions", "one of"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusal_names_flag_finding_and_fix(case, tmp_path, monkeypatch):
    monkeypatch.delenv("SGLANG_IS_IN_CI", raising=False)
    target, draft, flags, parts = REFUSED[case]
    message = refusal(launch_arguments(tmp_path, target=target, draft=draft, **flags))
    for part in parts:
        assert part in message


ACCEPTED = {
    "plain draft": ({}, {}, {}),
    "lower-case algorithm": ({}, {}, {"speculative_algorithm": "dflash"}),
    "block size from the command line": ({}, {}, {"speculative_num_draft_tokens": 16}),
    "block size in dflash_config": ({}, {"block_size": REMOVED, "dflash_config": dflash_config(block_size=4)}, {}),
    "no block size at all": ({}, {"block_size": REMOVED}, {}),
    "last layer but one captured": ({}, {"dflash_config": dflash_config(target_layer_ids=[0, 6])}, {}),
    "last layer captured, by a class that can": (
        {"architectures": ["GptOssForCausalLM"]}, {"dflash_config": dflash_config(target_layer_ids=[0, 7])}, {}
    ),
    "more captured layers than draft layers": ({}, {"dflash_config": dflash_config(target_layer_ids=[1, 3, 5, 6])}, {}),
    "settings at the top level": (
        {}, {"dflash_config": REMOVED, "target_layer_ids": [1, 4], "mask_token_id": 999}, {}
    ),
    "layers chosen by count": ({}, {"dflash_config": {"mask_token_id": 0}}, {}),
    "target of another depth": ({"num_hidden_layers": 6}, {}, {}),
    "padded vocabulary": ({"vocab_size": 1008}, {}, {}),
    "draft without a vocabulary": ({}, {"vocab_size": REMOVED, "model_type": "llama"}, {}),
    "selector draft (DFlash2)": (
        {}, {"architectures": ["DFlash2DraftModel"], "dflash_config": dflash_config(selector_rank=4, selector_top_k=2)},
        {},
    ),
    "Domino draft": (
        {},
        {
            "dflash_config": dflash_config(
                projector_type="domino", shift_label=True, pure_draft_prefix_len=1, gru_hidden_dim=8, emb_dim=8
            )
        },
        {},
    ),
    "LiLiCorr draft": ({}, {"architectures": ["LiLiCorrDraftModel"]}, {}),
    "Laguna draft": ({}, {"architectures": ["DFlashLagunaForCausalLM"]}, {}),
    "mixture-of-experts target": (
        {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 4}, {}, {}
    ),
    "vision wrapper with a nested text config": (
        {
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "model_type": "qwen3_vl",
            "num_hidden_layers": REMOVED,
            "hidden_size": REMOVED,
            "vocab_size": REMOVED,
            "text_config": {**TARGET, "model_type": "qwen3_vl_text"},
            "vision_config": {"hidden_size": 32, "depth": 1, "num_heads": 2, "out_hidden_size": 64},
        },
        {},
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_pair_that_upstream_loads_passes(case, tmp_path):
    target, draft, flags = ACCEPTED[case]
    check_dflash_launch(launch_arguments(tmp_path, target=target, draft=draft, **flags))


def test_the_tiny_pair_passes(tmp_path):
    pair = make_tiny_pair(tmp_path)
    check_dflash_launch(
        ServerArgs(
            model_path=str(pair.target),
            speculative_algorithm="DFLASH",
            speculative_draft_model_path=str(pair.draft),
        )
    )


def test_nothing_is_checked_without_dflash(tmp_path):
    check_dflash_launch(ServerArgs(model_path=str(tmp_path / "absent")))
    check_dflash_launch(ServerArgs(model_path=str(tmp_path / "absent"), speculative_algorithm="NGRAM"))


def test_missing_draft_path(tmp_path):
    message = refusal(launch_arguments(tmp_path, speculative_draft_model_path=None))
    assert "--speculative-draft-model-path is not given" in message and "hub id" in message


@pytest.mark.parametrize("path", ["/absent/draft", "./absent", "~/absent-draft", "a/b/c"])
def test_local_draft_path_that_does_not_exist(path, tmp_path):
    message = refusal(launch_arguments(tmp_path, speculative_draft_model_path=path))
    assert path in message and "no such folder" in message


def test_draft_folder_without_config_lists_what_is_there(tmp_path):
    folder = write_model(tmp_path / "elsewhere", None)
    message = refusal(launch_arguments(tmp_path, speculative_draft_model_path=str(folder)))
    assert "no config.json" in message and "model.safetensors" in message


def test_draft_config_that_is_no_json(tmp_path):
    folder = write_model(tmp_path / "elsewhere", None)
    (folder / "config.json").write_text("{")
    message = refusal(launch_arguments(tmp_path, speculative_draft_model_path=str(folder)))
    assert str(folder) in message and "cannot be read" in message


def test_draft_folder_without_weights(tmp_path):
    folder = write_model(tmp_path / "elsewhere", DRAFT, weights=False)
    message = refusal(launch_arguments(tmp_path, speculative_draft_model_path=str(folder)))
    assert "no weights" in message and "git lfs pull" in message
    (tmp_path / "again").mkdir()
    check_dflash_launch(
        launch_arguments(tmp_path / "again", speculative_draft_model_path=str(folder), load_format="dummy")
    )


def test_unreachable_hub_id_says_what_was_tried(tmp_path, monkeypatch):
    def unreachable(path, **_):
        raise OSError("We could not\nconnect")

    monkeypatch.setattr("sglang.srt.utils.hf_transformers_utils.get_config", unreachable)
    message = refusal(
        launch_arguments(tmp_path, speculative_draft_model_path="owner/draft", speculative_draft_model_revision="v2")
    )
    assert "owner/draft" in message and "'v2'" in message and "OSError: We could not connect" in message
    assert "HF_TOKEN" in message


def test_draft_config_is_read_at_the_revision_that_was_asked_for(tmp_path, monkeypatch):
    from sglang.srt.utils import hf_transformers_utils

    draft_folder = str(write_model(tmp_path / "snapshot", DRAFT))
    original, asked = hf_transformers_utils.get_config, []

    def recorded(path, **arguments):
        if path != "owner/draft":
            return original(path, **arguments)
        asked.append((arguments["revision"], arguments["model_override_args"]))
        return original(draft_folder, **arguments)

    monkeypatch.setattr(hf_transformers_utils, "get_config", recorded)
    check_dflash_launch(
        launch_arguments(
            tmp_path,
            speculative_draft_model_path="owner/draft",
            speculative_draft_model_revision="v2",
            json_model_override_args='{"rope_theta": 5000.0}',
        )
    )
    assert asked == [("v2", {"rope_theta": 5000.0})]


def test_mask_token_without_id_gets_the_id_that_the_tokenizer_would_give_it(tmp_path):
    pair = make_tiny_pair(tmp_path)
    config = json.loads((pair.draft / "config.json").read_text())

    def arguments(name: str, mask_token: str) -> ServerArgs:
        changes = {"dflash_config": {"target_layer_ids": [0, 2], "mask_token": mask_token}}
        folder = write_model(tmp_path / name, {**config, **changes})
        return ServerArgs(
            model_path=str(pair.target),
            speculative_algorithm="DFLASH",
            speculative_draft_model_path=str(folder),
        )

    check_dflash_launch(arguments("known", "<mask>"))
    message = refusal(arguments("unknown", "<|MASK|>"))
    assert "id 128" in message and "ends at id 127" in message


def test_context_beyond_the_draft_is_a_warning_where_it_was_allowed(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "1")
    check_dflash_launch(launch_arguments(tmp_path, draft={"max_position_embeddings": 256}))
    (warning,) = [record.getMessage() for record in caplog.records if "positions of the draft" in record.getMessage()]
    assert "512" in warning and "256" in warning


def test_a_shorter_context_fits_the_draft(tmp_path):
    check_dflash_launch(launch_arguments(tmp_path, draft={"max_position_embeddings": 256}, context_length=256))


def test_target_of_another_depth_is_a_warning(tmp_path, caplog):
    check_dflash_launch(launch_arguments(tmp_path, target={"num_hidden_layers": 6}))
    assert any("trained on a target of 8 layers" in record.getMessage() for record in caplog.records)


def test_a_class_that_forwards_attributes_is_not_judged_before_it_is_built():
    class Forwarding:
        def __getattr__(self, name):
            raise AttributeError(name)

    class Plain:
        pass

    assert dflash_preflight._has_capture_hook(Forwarding)
    assert not dflash_preflight._has_capture_hook(Plain)


class FakePlatform:
    """An in-tree platform, or an out-of-tree one with one backend of its own."""

    device_type = "cuda"

    def __init__(self, own_backend: str | None = None):
        self.own_backend = own_backend
        if own_backend:
            self.verify_attention_backends = (own_backend,)

    def is_out_of_tree(self) -> bool:
        return self.own_backend is not None

    def is_rocm(self) -> bool:
        return False

    def supports_speculative_draft_attention_backend(self, algorithm: str, backend: str) -> bool:
        return backend == self.own_backend

    def get_default_speculative_draft_attention_backend(self, algorithm: str) -> str:
        return self.own_backend


@pytest.mark.parametrize("backend", ["triton", "flashinfer", "fa3", "fa4", "trtllm_mla", "cutedsl_mla", "aiter", "dsa"])
def test_backends_that_verify_are_accepted(backend):
    check_verify_backend(backend, backend, "prefill", FakePlatform())


@pytest.mark.parametrize("mode, refused", [("prefill", True), ("decode", False)])
def test_only_the_phase_that_verifies_is_judged(mode, refused):
    if not refused:
        check_verify_backend("torch_native", "triton", mode, FakePlatform())
        return
    with pytest.raises(LaunchError, match="--prefill-attention-backend torch_native"):
        check_verify_backend("torch_native", "triton", mode, FakePlatform())


def test_an_out_of_tree_platform_names_its_own_backends():
    platform = FakePlatform("cpu_reference")
    check_verify_backend("cpu_reference", "cpu_reference", "prefill", platform)
    check_draft_backend("cpu_reference", [], platform)
    with pytest.raises(LaunchError, match="one of: cpu_reference"):
        check_verify_backend("triton", "triton", "prefill", platform)
    with pytest.raises(LaunchError, match="one of: cpu_reference"):
        check_draft_backend("triton", [], platform)


def test_backends_not_chosen_yet_are_left_to_the_platform(tmp_path):
    check_attention_backends(launch_arguments(tmp_path))


def test_command_ends_with_the_message_and_status_one(capsys):
    @exit_on_launch_error
    def run():
        raise LaunchError("--flag: found. Fix.")

    with pytest.raises(SystemExit) as caught:
        run()
    assert caught.value.code == "error: --flag: found. Fix."


def test_other_errors_keep_their_stack_trace():
    @exit_on_launch_error
    def run():
        raise ValueError("not ours")

    with pytest.raises(ValueError, match="not ours"):
        run()


@pytest.mark.parametrize(
    "command",
    [["-m", "sglang.launch_server"], ["-c", "from sglang.cli.main import main; main()", "serve"]],
    ids=["module", "serve"],
)
def test_launch_with_a_bad_draft_ends_at_once_with_the_message_last(command, tmp_path):
    target = write_model(tmp_path / "target", TARGET)
    draft = write_model(tmp_path / "draft", changed(DRAFT, hidden_size=48))
    arguments = ["--model-path", target, "--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", draft]
    started = time.monotonic()
    finished = subprocess.run(
        [sys.executable, *command, *map(str, arguments)], capture_output=True, text=True, timeout=120, env=os.environ
    )
    assert finished.returncode == 1
    last = finished.stderr.strip().splitlines()[-1]
    assert last.startswith("error: --speculative-draft-model-path") and "hidden size 48" in last
    assert "Traceback" not in finished.stderr
    assert time.monotonic() - started < 60
