"""What a launch with a tree budget is refused for, what falls back to the chain, and what the rest resolves to."""

import logging
from types import SimpleNamespace

import pytest

from sglang.srt.speculative.draft_tree import launch
from sglang.srt.speculative.draft_tree.launch import BUDGET_FLAG, chain_reason, refuse_trees_without_dflash
from sglang.srt.utils.launch_error import LaunchError


class Arguments(SimpleNamespace):
    """Server arguments and upstream's view of them in one."""


def arguments(**changes) -> Arguments:
    defaults = dict(
        speculative_algorithm="DFLASH",
        speculative_dflash_tree_budget=32,
        speculative_dflash_tree_topk=8,
        speculative_dflash_widths=None,
        speculative_num_draft_tokens=8,
        speculative_dflash_block_size=None,
        speculative_draft_window_size=None,
        speculative_draft_model_path=None,
        speculative_use_block_verification=False,
        speculative_accept_threshold_single=1.0,
        speculative_accept_threshold_acc=1.0,
        speculative_attention_mode="prefill",
        enable_dp_attention=False,
        enable_unified_memory=False,
        enable_two_batch_overlap=False,
        enable_hisparse=False,
        enable_return_routed_experts=False,
        enable_return_indexer_topk=False,
        dcp_size=1,
        pp_size=1,
        attention_backend=None,
        prefill_attention_backend=None,
        decode_attention_backend=None,
    )
    return Arguments(**{**defaults, **changes})


def target(**changes) -> SimpleNamespace:
    """A dense Qwen3 as far as the rules look."""
    text = SimpleNamespace(use_sliding_window=False, architectures=["Qwen3ForCausalLM"], model_type="qwen3")
    text.get_text_config = lambda: text
    defaults = dict(
        hf_config=text,
        hf_text_config=text,
        is_hybrid_swa=False,
        sliding_window_size=None,
        attention_chunk_size=None,
        is_encoder_decoder=False,
        vocab_size=1000,
    )
    return SimpleNamespace(**{**defaults, **changes})


@pytest.fixture
def resolve(monkeypatch):
    """`resolve(arguments, backend=..., mla=..., target=..., platform=...)`: the arguments as they are resolved."""

    def run(cfg, *, backend="triton", mla=False, model=None, tree_backends=None):
        model = model or target()
        platform = SimpleNamespace(is_out_of_tree=lambda: tree_backends is not None)
        platform.tree_attention_backends = tree_backends
        monkeypatch.setattr(launch, "current_platform", platform)
        monkeypatch.setattr(launch, "resolving_view", lambda server_args: server_args)
        monkeypatch.setattr(launch, "model_config_of", lambda server_args: model)
        monkeypatch.setattr("sglang.srt.configs.hybrid_arch.mambaish_config", lambda config: None)
        monkeypatch.setattr(launch, "declare_resolution", lambda args, source, **fields: vars(args).update(fields))
        view = SimpleNamespace(
            attention_backends_of=lambda args: (backend, backend),
            resolved_view=lambda args: args,
            use_mla_backend=lambda args: mla,
        )
        monkeypatch.setattr(launch, "overrides", view)
        launch.resolve_draft_tree(cfg)
        return cfg

    return run


def test_a_tree_keeps_the_drafts_block_and_widens_the_verify(resolve):
    cfg = resolve(arguments())
    assert (cfg.speculative_dflash_block_size, cfg.speculative_num_draft_tokens) == (8, 33)
    assert (cfg.speculative_dflash_tree_budget, cfg.speculative_dflash_tree_topk) == (32, 8)


def test_without_a_budget_the_verify_is_the_block(resolve):
    cfg = resolve(arguments(speculative_dflash_tree_budget=0), backend="fa3")
    assert (cfg.speculative_dflash_block_size, cfg.speculative_num_draft_tokens) == (8, 8)


def test_auto_takes_the_widths_given_or_those_by_default(resolve):
    cfg = resolve(arguments(speculative_dflash_tree_budget="auto"))
    assert cfg.speculative_dflash_widths == [1, 4, 8, 16, 32, 64]
    assert (cfg.speculative_dflash_tree_budget, cfg.speculative_num_draft_tokens) == (63, 64)
    cfg = resolve(arguments(speculative_dflash_tree_budget="auto", speculative_dflash_widths=[24, 1, 24]))
    assert cfg.speculative_dflash_widths == [1, 24] and cfg.speculative_num_draft_tokens == 24


@pytest.mark.parametrize(
    "budget, widths, parts",
    [
        (32, [1, 8], ["--speculative-dflash-widths", "--speculative-dflash-tree-budget 32", "auto"]),
        (0, [8], ["--speculative-dflash-widths", "--speculative-dflash-tree-budget 0"]),
        ("auto", [0, 8], ["--speculative-dflash-widths 0", "1 and 256"]),
        ("auto", [257], ["--speculative-dflash-widths 257", "1 and 256"]),
        ("auto", [1], ["--speculative-dflash-widths 1", "plain decoding alone"]),
    ],
)
def test_widths_that_are_no_choice_are_refused(resolve, budget, widths, parts):
    with pytest.raises(LaunchError) as caught:
        resolve(arguments(speculative_dflash_tree_budget=budget, speculative_dflash_widths=widths))
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_auto_falls_back_to_the_chain_where_a_tree_would(resolve, caplog):
    model = target(is_encoder_decoder=True)
    with caplog.at_level(logging.WARNING):
        cfg = resolve(arguments(speculative_dflash_tree_budget="auto"), model=model)
    assert (cfg.speculative_dflash_tree_budget, cfg.speculative_dflash_widths) == (0, None)
    assert f"{BUDGET_FLAG} auto" in caplog.text


def test_over_stages_a_chain_is_the_tree_of_one_candidate_per_depth(resolve):
    cfg = resolve(arguments(speculative_dflash_tree_budget=0, pp_size=2))
    assert (cfg.speculative_dflash_tree_budget, cfg.speculative_dflash_tree_topk) == (7, 1)
    assert (cfg.speculative_dflash_block_size, cfg.speculative_num_draft_tokens) == (8, 8)
    with pytest.raises(LaunchError, match="^--pp-size 2 with DFLASH.*attention backend fa3.*or --pp-size 1"):
        resolve(arguments(speculative_dflash_tree_budget=0, pp_size=2), backend="fa3")


def test_over_stages_nothing_falls_back_to_a_chain(resolve):
    with pytest.raises(LaunchError, match="--pp-size 2 with DFLASH: --speculative-draft-window-size"):
        resolve(arguments(speculative_draft_window_size=64, pp_size=2))


def test_candidates_are_no_more_than_the_vocabulary(resolve):
    assert resolve(arguments(), model=target(vocab_size=5)).speculative_dflash_tree_topk == 5


@pytest.mark.parametrize(
    "field, value, parts",
    [
        ("speculative_dflash_tree_budget", -1, ["--speculative-dflash-tree-budget -1", "0 and 255"]),
        ("speculative_dflash_tree_budget", 256, ["--speculative-dflash-tree-budget 256", "0 and 255"]),
        ("speculative_dflash_tree_topk", 0, ["--speculative-dflash-tree-topk 0", "1 and 16"]),
        ("speculative_dflash_tree_topk", 17, ["--speculative-dflash-tree-topk 17", "1 and 16"]),
        ("enable_dp_attention", True, ["--enable-dp-attention", BUDGET_FLAG]),
        ("enable_unified_memory", True, ["--enable-unified-memory", BUDGET_FLAG]),
        ("enable_two_batch_overlap", True, ["--enable-two-batch-overlap", BUDGET_FLAG]),
        ("enable_hisparse", True, ["--enable-hisparse", BUDGET_FLAG]),
        ("enable_return_routed_experts", True, ["--enable-return-routed-experts", BUDGET_FLAG]),
        ("enable_return_indexer_topk", True, ["--enable-return-indexer-topk", BUDGET_FLAG]),
        ("dcp_size", 2, ["--dcp-size", BUDGET_FLAG]),
        ("speculative_use_block_verification", True, ["--speculative-use-block-verification", BUDGET_FLAG]),
        ("speculative_accept_threshold_acc", 0.9, ["--speculative-accept-threshold-acc", BUDGET_FLAG]),
    ],
)
def test_a_combination_that_cannot_serve_is_refused_by_its_flag(resolve, field, value, parts):
    with pytest.raises(LaunchError) as caught:
        resolve(arguments(**{field: value}))
    assert all(part in str(caught.value) for part in parts), str(caught.value)


@pytest.mark.parametrize(
    "backend, mla, named",
    [
        ("fa3", False, "triton or flashinfer"),
        ("trtllm_mha", False, "triton or flashinfer"),
        ("flashinfer", True, "triton"),
        ("fa3", True, "triton"),
    ],
)
def test_a_backend_that_takes_no_tree_mask_is_refused_with_those_that_do(resolve, backend, mla, named):
    with pytest.raises(LaunchError, match=f"attention backend {backend}.*--attention-backend {named},"):
        resolve(arguments(), backend=backend, mla=mla)


def test_an_out_of_tree_platform_names_its_own_tree_backends(resolve):
    resolve(arguments(), backend="its_own", tree_backends=("its_own",))
    with pytest.raises(LaunchError, match="its_own"):
        resolve(arguments(), backend="other", tree_backends=("its_own",))


@pytest.mark.parametrize(
    "changes, model, reason",
    [
        ({}, {"is_hybrid_swa": True}, "sliding-window"),
        ({}, {"hf_text_config": SimpleNamespace(use_sliding_window=True), "sliding_window_size": 64}, "sliding-window"),
        ({}, {"attention_chunk_size": 8192}, "chunks"),
        ({}, {"is_encoder_decoder": True}, "cross attention"),
        ({"speculative_draft_window_size": 64}, {}, "--speculative-draft-window-size"),
    ],
)
def test_what_a_user_rather_has_as_a_chain_falls_back_with_one_warning(resolve, caplog, changes, model, reason):
    with caplog.at_level(logging.WARNING, logger=launch.__name__):
        cfg = resolve(arguments(**changes), model=target(**model))
    assert (cfg.speculative_dflash_tree_budget, cfg.speculative_num_draft_tokens) == (0, 8)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert reason in warning and "as a chain instead" in warning


def test_a_window_that_the_target_does_not_use_is_no_window(monkeypatch):
    monkeypatch.setattr("sglang.srt.configs.hybrid_arch.mambaish_config", lambda config: None)
    assert chain_reason(arguments(), target(sliding_window_size=4096)) is None


def test_recurrent_targets_are_verified_as_chains(monkeypatch):
    monkeypatch.setattr("sglang.srt.configs.hybrid_arch.mambaish_config", lambda config: object())
    assert "recurrent" in chain_reason(arguments(), target())


@pytest.mark.parametrize("algorithm", [None, "EAGLE"])
def test_a_budget_without_dflash_is_refused(algorithm):
    with pytest.raises(LaunchError, match=BUDGET_FLAG):
        refuse_trees_without_dflash(arguments(speculative_algorithm=algorithm))
    refuse_trees_without_dflash(arguments(speculative_algorithm=algorithm, speculative_dflash_tree_budget=0))
    refuse_trees_without_dflash(arguments(speculative_algorithm="dflash"))


def test_a_request_for_sampling_masks_is_refused_with_trees_alone(monkeypatch):
    check = launch.refuses_sampling_masks(lambda req, algorithm: None)
    monkeypatch.setattr(launch, "draft_tree_config", lambda: None)
    assert check(None, None) is None
    monkeypatch.setattr(launch, "draft_tree_config", lambda: object())
    assert BUDGET_FLAG in check(None, None)
