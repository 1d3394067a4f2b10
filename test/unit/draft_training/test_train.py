"""Training on the tiny pair: a run resumed after a kill equals one that never stopped, and drafts learn texts."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmark.draft_training import checkpoints, train
from benchmark.draft_training.batches import Batches
from benchmark.draft_training.budget import Budget, learning_rate
from benchmark.draft_training.draft import DraftConfig, DraftModel
from benchmark.draft_training.target import Target
from benchmark.draft_training.texts import Text
from harness.tiny_tokenizer import MASK_ID, VOCAB_SIZE


class Clock:
    """Seconds that a test sets."""

    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture(autouse=True)
def one_thread():
    """The operations are tiny: threads that wait for each other cost more than they bring."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def target_folder(tiny_pair) -> Path:
    return tiny_pair().target


def random_texts(count: int) -> list[Text]:
    rng = np.random.default_rng(0)
    return [Text(number, 0, True, 4, rng.integers(4, VOCAB_SIZE, size=60)) for number in range(count)]


def make_trainer(target_folder: Path, out: Path, clock: Clock, texts: int = 8, **changes) -> train.Trainer:
    arguments = ["--target", str(target_folder), "--texts", "-", "--out", str(out), "--device", "cpu", "--minutes", "1"]
    options = train._parser().parse_args(arguments)
    vars(options).update(learning_rate=3e-3, **changes)
    out.mkdir(exist_ok=True)
    config = checkpoints.draft_json(target_folder, layers=1, block_size=4, mask_token=MASK_ID)
    config["dflash_config"]["target_layer_ids"] = [0, 2]
    draft = DraftModel(DraftConfig.from_json(config))
    target = Target(target_folder, draft.config.target_layers, torch.device("cpu"), torch.float32)
    draft.initialize(0, *target.last_layers(1))
    batches = Batches(random_texts(texts), 256, 64, torch.device("cpu"), seed=0)
    return train.Trainer(options, draft, config, target, batches, batches, clock)


def run_steps(trainer: train.Trainer, clock: Clock, steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        clock.seconds += 0.5
        trainer.budget.update()
        losses.append(trainer.train_step()[0].item())
    return losses


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_killed_after_a_checkpoint_goes_on_as_if_nothing_had_happened(target_folder, tmp_path, optimizer):
    clock = Clock()
    whole = make_trainer(target_folder, tmp_path / "whole", clock, optimizer=optimizer)
    losses = run_steps(whole, clock, 12)

    clock = Clock()
    first = make_trainer(target_folder, tmp_path / "cut", clock, optimizer=optimizer)
    run_steps(first, clock, 5)
    first.save()
    run_steps(first, clock, 3)  # lost with the kill
    clock.seconds += 1000  # between two processes
    second = make_trainer(target_folder, tmp_path / "cut", clock, optimizer=optimizer)
    assert second.step == 5
    assert second.budget.spent == pytest.approx(2.5)
    assert run_steps(second, clock, 7) == losses[5:]
    for name, weight in whole.average.state_dict().items():
        assert torch.equal(weight, second.average.state_dict()[name]), name


def test_a_draft_learns_texts_by_heart(target_folder, tmp_path):
    clock = Clock()
    trainer = make_trainer(target_folder, tmp_path / "run", clock, texts=2, average=0.9, soft=0.0)
    before = trainer.held_out_accept_length()
    run_steps(trainer, clock, 119)
    assert before < 1.5
    assert trainer.held_out_accept_length() > 3.0  # of 4


def test_a_finished_run_leaves_a_draft_that_reads_back(target_folder, tmp_path, monkeypatch):
    clock = Clock()
    trainer = make_trainer(target_folder, tmp_path / "run", clock)
    run_steps(trainer, clock, 2)
    train.finish(trainer, {})
    read, config = checkpoints.read_draft(tmp_path / "run" / "draft")
    assert config == trainer.config
    for name, weight in trainer.average.state_dict().items():
        assert torch.equal(read.state_dict()[name], weight.bfloat16().float()), name


def test_the_schedule_counts_the_time_of_the_processes_only():
    clock = Clock()
    budget = Budget(60.0, spent=30.0, now=clock)
    clock.seconds += 15
    assert budget.update() == pytest.approx(0.75)
    clock.seconds += 100
    assert budget.update() == 1.0


def test_the_rate_rises_then_falls_to_a_hundredth():
    assert learning_rate(0.015, 2.0) == pytest.approx(1.0)
    assert learning_rate(0.03, 2.0) == pytest.approx(2.0)
    assert learning_rate(1.0, 2.0) == pytest.approx(0.02)
