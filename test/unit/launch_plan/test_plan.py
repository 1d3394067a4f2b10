"""The plan of a launch as a user reads it, made for machines that are not here."""

import dataclasses

from harness.launches import KIMI, asked
from harness.machines import several
from sglang.cuda_doctor.facts import Facts
from sglang.launch_plan.checkpoint import Tensor
from sglang.launch_plan.memory import GIB
from sglang.launch_plan.plan import as_text, make_plan


def test_kimi_on_eight_cards_with_experts_over_four_groups():
    plan = make_plan(KIMI, several(8), {})
    assert plan.problems == [] and plan.peers.check
    assert plan.layout[3] == ["3", "0", "3", "0 to 60", "whole (latent)", "96 to 191, 1/2 of each", "yes"]
    # 97887 MiB: 0.9 of them less 70 GiB of experts and 1 GiB of draft, at 61 * 1152 + 6 * 512 bytes a token.
    tokens = int((0.9 * 97887 * (1 << 20) - 71 * GIB) / (61 * 1152 + 6 * 512))
    assert plan.memory == [["0 to 7", "70.00 GiB", "1.00 GiB", "14.40 GiB", "0.63 GiB", "9.56 GiB", "95.59 GiB",
                            f"{tokens:,}", "71.6 KiB"]]  # fmt: skip
    text = as_text(plan)
    assert "3 batches (1, 2, 4) of width 8: up to 32 tokens" in text and text.endswith("Nothing stands in the way.")


def test_widths_that_are_chosen_per_round_are_listed():
    text = as_text(make_plan(asked(verify_width=17, verify_widths=[1, 4, 17]), several(8), {}))
    assert "3 batches (1, 2, 4) of widths 1, 4, 17; the widest for the smaller batches alone" in text


def test_weights_that_do_not_fit_stand_in_the_way():
    plan = make_plan(asked(layout=dataclasses.replace(KIMI.layout, tp_size=4)), several(4), {})
    assert len(plan.problems) == 1 and "140.00 GiB of weights and 2.00 GiB of draft per GPU" in plan.problems[0]
    assert "--tp-size 8 or --pp-size" in as_text(plan)
    loaded = asked(weights_as_stored=False, layout=dataclasses.replace(KIMI.layout, tp_size=4))
    assert make_plan(loaded, several(4), {}).problems == []


def test_every_reason_is_told():
    partial = several(2, peer="NS")
    plan = make_plan(asked(moe_a2a_backend="deepep"), partial, {})
    assert [problem.partition(":")[0] for problem in plan.problems] == [
        "--moe-a2a-backend deepep", "--tp-size 8 --pp-size 1",
    ]  # fmt: skip
    assert "8 GPUs are needed and there are 2" in plan.problems[1]


def test_no_gpu_judges_nothing_and_says_what_was_assumed():
    plan = make_plan(asked(device="cpu", fraction_assumed=True), Facts(), {})
    assert plan.problems == [] and plan.memory[0][3] == "?"
    assert any("--dry-run FACTS.json" in line for line in plan.assumed)
    assert any("--mem-fraction-static 0.9" in line for line in plan.assumed)


def test_backends_of_another_machine_are_not_promised():
    plan = make_plan(asked(device="cpu"), several(8), {})
    assert "backends are those of this machine (cpu); on the GPUs, defaults may be others" in plan.assumed


def test_unknown_sizes_are_told_by_path():
    plan = make_plan(asked(draft=dataclasses.replace(KIMI.draft, tensors=None)), several(8), {})
    assert plan.memory == [] and "the sizes of the weights of draft are unknown" in plan.assumed[0]


def test_stages_of_a_pipeline_have_memory_of_their_own():
    staged = dataclasses.replace(KIMI.layout, tp_size=1, ep_size=1, pp_size=2, layers=4, stages=((0, 2), (2, 4)),
                                 attention_tp_size=1)  # fmt: skip
    tensors = [Tensor(f"model.layers.{layer}.w", (), GIB) for layer in range(4)] + [Tensor("lm_head.weight", (), GIB)]
    target = dataclasses.replace(KIMI.target, tensors=tensors, layers=4)
    plan = make_plan(asked(layout=staged, target=target, experts=0), several(2), {})
    assert [row[:3] for row in plan.memory] == [["0", "2.00 GiB", "0.00 GiB"], ["1", "3.00 GiB", "8.00 GiB"]]
    assert [row[3] for row in plan.layout] == ["0 to 1", "2 to 3"]
