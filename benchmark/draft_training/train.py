"""``python -m benchmark.draft_training.train``: a DFLASH draft from the target's own texts.

The schedule follows elapsed time, so ``--minutes`` is what a run takes on any machine. A run that was killed goes on
from its last checkpoint, at most ``--checkpoint-seconds`` back; ``--call-seconds`` ends this process earlier, the run
goes on in the next one.
"""

import argparse
import copy
import csv
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from . import checkpoints
from .batches import Batch, Batches, gather_positions
from .budget import Budget, learning_rate
from .draft import DraftConfig, DraftModel
from .loss import chunk_loss, depth_weights, distillation_loss
from .target import Target
from .texts import HELD_OUT_SHARE, read_shards, split_texts, summarize

COLUMNS = ("step", "seconds", "learning_rate", "loss", "accept_length", "held_out_accept_length")
HELD_OUT_BATCHES = 4
LOG_STEPS = 20


class Trainer:
    """One run: draft, optimizer, average of the weights, schedule; all of it is in its checkpoint."""

    def __init__(
        self, options: argparse.Namespace, draft: DraftModel, config: dict[str, Any], target: Target,
        batches: Batches, held_out: Batches, now: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.options, self.config, self.target, self.batches, self.held_out = options, config, target, batches, held_out
        self.device = torch.device(options.device)
        self.draft = draft.to(self.device)
        self.average = copy.deepcopy(self.draft).requires_grad_(False)
        self.optimizers = make_optimizers(self.draft, options.optimizer)
        self.step = 0
        self.rows: list[dict[str, Any]] = []
        self.chunk = _compiled_chunk() if options.compile else chunk_loss
        self.weights = depth_weights(draft.config.block_size - 1, options.decay).to(self.device)
        state = checkpoints.load_state(options.out / "state.pt", self.device)
        self.budget = Budget(60 * options.minutes, 0.0 if state is None else state["spent"], now)
        if state is not None:
            self.draft.load_state_dict(state["draft"])
            self.average.load_state_dict(state["average"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            self.step, self.rows = state["step"], state["rows"]

    def save(self) -> None:
        """Writes the checkpoint and the curve up to it."""
        state = {
            "draft": self.draft.state_dict(),
            "average": self.average.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "spent": self.budget.spent,
            "rows": self.rows,
        }
        checkpoints.save_state(self.options.out / "state.pt", state)
        with (self.options.out / "curve.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(self.rows)

    def train_step(self) -> tuple[Tensor, Tensor]:
        """One update at the current learning rate; returns the loss and the accept length at the batch's anchors."""
        rate = learning_rate(self.budget.progress, 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * self.options.learning_rate * group["rate_factor"]
            optimizer.zero_grad(set_to_none=True)
        loss, accept_length = self._loss(self.draft, self.batches.batch(self.step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.draft.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        # early on the average follows quickly, or it would hold on to the first weights
        keep = min(self.options.average, (1 + self.step) / (10 + self.step))
        torch._foreach_lerp_(list(self.average.parameters()), list(self.draft.parameters()), 1 - keep)
        return loss.detach(), accept_length

    @torch.no_grad()
    def held_out_accept_length(self, draft: DraftModel | None = None) -> float:
        """Returns the mean accept length at random anchors of held-out greedy texts, of the averaged weights."""
        lengths = [
            self._loss(draft or self.average, self.held_out.batch(number))[1] for number in range(HELD_OUT_BATCHES)
        ]
        return torch.stack(lengths).mean().item()

    def _loss(self, draft: DraftModel, batch: Batch) -> tuple[Tensor, Tensor]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.options.device == "cuda"):
            hidden, final, labels, valid = propose(draft, self.target, batch)
        loss, correct = distillation_loss(
            hidden.flatten(0, -2), final.flatten(0, -2), labels.flatten(), (valid * self.weights).flatten(),
            self.target.head, self.options.soft, self.chunk,
        )  # fmt: skip
        whole = valid.all(-1)  # near the end of a text there are not enough tokens to tell
        accepted = correct.view_as(labels).long().cumprod(-1).sum(-1) + 1
        return loss, (accepted * whole).sum() / whole.sum().clamp(min=1)


def propose(draft: DraftModel, target: Target, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Runs target and draft at a batch's anchors.

    Returns the draft's hidden states at depths 1..B-1, the target's where it chooses the same tokens, both
    [rows, anchors, B-1, hidden], the text's tokens there (int64) and whether the text goes that far (bool).
    """
    states = target.states(batch.tokens)
    size = draft.config.block_size
    positions, labels, valid = batch.labels(size)
    block = target.embedding[draft.config.mask_token].expand(*batch.anchors.shape, size, -1).clone()
    block[:, :, 0] = target.embedding[gather_positions(batch.tokens, batch.anchors)]
    hidden = draft(states.features, batch.anchors, block)[:, :, 1:]
    return hidden, gather_positions(states.final, positions - 1), labels, valid


def make_optimizers(draft: DraftModel, name: str) -> list[torch.optim.Optimizer]:
    """Returns AdamW for everything, or Muon for the layers' matrices and AdamW for the rest."""
    matrices = [weight for key, weight in draft.named_parameters() if weight.dim() == 2 and key.startswith("layers.")]
    if name == "adamw":
        matrices = []
    known = {id(weight) for weight in matrices}
    others = [weight for weight in draft.parameters() if id(weight) not in known]
    optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.01)]
    if matrices:
        optimizers.append(torch.optim.Muon(matrices, weight_decay=0.01, momentum=0.95, adjust_lr_fn="match_rms_adamw"))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["rate_factor"] = 1.0
    return optimizers


def _compiled_chunk() -> Callable[..., Any]:
    """``chunk_loss`` compiled where that works: it reads logits once instead of several times."""
    compiled = torch.compile(chunk_loss, dynamic=False)
    failed = False

    def chunk(*arguments: Any) -> Any:
        nonlocal failed
        if not failed:
            try:
                return compiled(*arguments)
            except Exception as error:  # whatever the compiler stumbles over, the run goes on without it
                failed = True
                print(f"the loss is not compiled: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
        return chunk_loss(*arguments)

    return chunk


def run(trainer: Trainer, call_seconds: float, started: float) -> bool:
    """Trains until the schedule's end, the end of this call or a signal to end; returns False after a signal."""
    options, stop = trainer.options, {"asked": False}
    signal.signal(signal.SIGTERM, lambda *_: stop.update(asked=True))
    saved = evaluated = time.monotonic()
    pending: list[tuple[Tensor, Tensor]] = []
    with tqdm(
        total=round(60 * options.minutes), initial=round(trainer.budget.spent), unit="s",
        mininterval=options.progress_seconds, desc="training",
    ) as progress:  # fmt: skip
        while trainer.budget.update() < 1.0:
            pending.append(trainer.train_step())
            now = time.monotonic()
            evaluate = now - evaluated > options.evaluate_seconds
            if len(pending) >= LOG_STEPS or evaluate:
                loss, accept_length = (torch.stack(part).mean().item() for part in zip(*pending, strict=True))
                pending.clear()
                held_out = round(trainer.held_out_accept_length(), 4) if evaluate else ""
                evaluated = time.monotonic() if evaluate else evaluated
                values = (
                    trainer.step, round(trainer.budget.spent, 2), trainer.optimizers[0].param_groups[0]["lr"],
                    round(loss, 4), round(accept_length, 4), held_out,
                )  # fmt: skip
                trainer.rows.append(dict(zip(COLUMNS, values, strict=True)))
                progress.n = round(trainer.budget.spent)
                progress.set_postfix(step=trainer.step, loss=round(loss, 3), accept=round(accept_length, 3))
                if held_out:
                    tqdm.write(f"step {trainer.step}: loss {loss:.3f}, held-out accept length {held_out}")
            if now - saved > options.checkpoint_seconds:
                trainer.save()
                saved = time.monotonic()
            if stop["asked"] or now - started > call_seconds:
                break
    trainer.save()
    return not stop["asked"]


def finish(trainer: Trainer, data: dict[str, Any]) -> None:
    """Writes the averaged weights as a checkpoint and packed, and what both accept; a run may go on after it."""
    from sglang.bundled_pair.packed_draft import pack_draft, unpack_draft

    out = trainer.options.out
    checkpoints.write_draft(out / "draft", trainer.average.state_dict(), trainer.config)
    size = pack_draft(out / "draft", out / "packed")
    expanded = out / "expanded"
    expanded.mkdir(exist_ok=True)
    unpack_draft(out / "packed", expanded)
    results = {
        "complete": trainer.budget.progress >= 1.0,
        "data": data,
        "steps": trainer.step,
        "seconds": round(trainer.budget.spent, 1),
        "tokens_per_batch": trainer.batches.tokens_per_batch,
        "parameters": sum(weight.numel() for weight in trainer.draft.parameters()),
        "held_out_accept_length": {
            "float32": trainer.held_out_accept_length(),
            "bfloat16": trainer.held_out_accept_length(checkpoints.read_draft(out / "draft")[0].to(trainer.device)),
            "int8": trainer.held_out_accept_length(checkpoints.read_draft(expanded)[0].to(trainer.device)),
        },
        "packed_bytes": size.bytes,
        "packed_relative_error": size.relative_error,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if trainer.device.type == "cuda" else "cpu",
        "options": {key: str(value) for key, value in vars(trainer.options).items()},
    }
    (out / "training.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def main(arguments: list[str] | None = None) -> int:
    started = time.monotonic()
    options = _parser().parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_cudnn_sdp(False)  # cuDNN may have no plan for an explicit mask
    if options.initial_draft is not None:
        draft, config = checkpoints.read_draft(options.initial_draft)
    else:
        config = checkpoints.draft_json(
            options.target, layers=options.layers, block_size=options.block_size, mask_token=options.mask_token_id,
            intermediate_size=options.intermediate_size,
        )  # fmt: skip
        draft = DraftModel(DraftConfig.from_json(config))
    device = torch.device(options.device)
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    target = Target(options.target, draft.config.target_layers, device, dtype)
    if options.initial_draft is None:
        draft.initialize(options.seed, *target.last_layers(draft.config.layers))
    training, held_out = split_texts(read_shards(options.texts), options.held_out_share)
    greedy = [text for text in held_out if text.greedy]
    data = {"training": summarize(training), "held_out_greedy": summarize(greedy)}
    print(json.dumps(data))
    batches = Batches(training, options.tokens_per_batch, options.longest, device, options.seed)
    fixed = Batches(greedy, options.tokens_per_batch, options.longest, device, options.seed + 1)
    trainer = Trainer(options, draft, config, target, batches, fixed)
    if run(trainer, options.call_seconds, started):
        finish(trainer, data)
        _draw(options.out)
    return 0


def _draw(out: Path) -> None:
    try:
        from .curves import draw_training
    except ImportError as error:
        print(f"no plot: {error}; draw it from {out / 'curve.csv'} with python -m benchmark.draft_training.curves")
        return
    draw_training(out / "curve.csv", out / "curve.png")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmark.draft_training.train", description=__doc__)
    parser.add_argument("--target", type=Path, required=True, help="the target's checkpoint folder")
    parser.add_argument("--texts", type=Path, required=True, help="folder of the shards that generate wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run: checkpoint, curve, draft")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--minutes", type=float, default=12.0, help="of the whole schedule (%(default)s)")
    parser.add_argument("--call-seconds", type=float, default=float("inf"), help="end this process after so long")
    parser.add_argument("--layers", type=int, default=3, help="draft layers (%(default)s)")
    parser.add_argument("--block-size", type=int, default=8, help="positions of a block, root included (%(default)s)")
    parser.add_argument("--intermediate-size", type=int, help="of the draft's MLPs (default: the target's)")
    parser.add_argument("--mask-token-id", type=int, default=4, help="a token no text holds (%(default)s)")
    parser.add_argument("--initial-draft", type=Path, help="start from this draft; its config.json replaces the flags")
    parser.add_argument("--optimizer", choices=("adamw", "muon"), default="adamw")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="peak (%(default)s)")
    parser.add_argument("--tokens-per-batch", type=int, default=16384, help="text tokens of a batch (%(default)s)")
    parser.add_argument("--longest", type=int, default=640, help="texts are cut to this many tokens (%(default)s)")
    parser.add_argument(
        "--held-out-share", type=float, default=HELD_OUT_SHARE, help="of the prompts, for evaluation only (%(default)s)"
    )
    parser.add_argument("--soft", type=float, default=0.5, help="share of the target's distribution in the label")
    parser.add_argument("--decay", type=float, default=4.0, help="depths over which a row's weight falls to 1/e")
    parser.add_argument("--average", type=float, default=0.999, help="decay of the average of the weights")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=False, help="compile the loss")
    parser.add_argument("--checkpoint-seconds", type=float, default=60.0)
    parser.add_argument("--evaluate-seconds", type=float, default=30.0)
    parser.add_argument("--progress-seconds", type=float, default=1.0, help="between two updates of the progress bar")
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
