"""``python -m benchmark.draft_training.evaluate``: accept length of a draft, chain and trees, per prompt set.

The target continues every prompt greedily; the rounds of speculative decoding are then replayed on what it wrote. The
accept length is tokens emitted by rounds over rounds, bonus token included.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from .accept import Candidates, chain_matches, replay_rounds, tree_ranks
from .batches import Batch
from .checkpoints import read_draft
from .draft import ANCHORS_PER_GROUP, DraftModel
from .prompt_sets import PROMPT_SETS, load_prompts
from .target import Target
from .train import propose

BUDGETS = (8, 16, 32, 64, 128)
CANDIDATES = 8


@torch.no_grad()
def continue_greedily(
    target: Target, prompts: list[list[int]], new_tokens: int, end: int, rows: int
) -> list[list[int]]:
    """Returns the target's greedy continuations of token ids, up to and with ``end`` or ``new_tokens`` long."""
    device = target.embedding.device
    continuations = []
    for start in tqdm(range(0, len(prompts), rows), desc="the target continues"):
        part = prompts[start : start + rows]
        longest = max(map(len, part))
        ids = torch.full((len(part), longest), end, device=device)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(part):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        output = target.model.generate(
            input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=new_tokens, eos_token_id=end,
            pad_token_id=end,
        )  # fmt: skip
        for row in output[:, longest:].tolist():
            continuations.append(row[: row.index(end) + 1] if end in row else row)
    return continuations


@torch.no_grad()
def candidates_everywhere(
    draft: DraftModel, target: Target, prompt: list[int], continuation: list[int]
) -> list[Candidates]:
    """Returns the draft's candidates with every token of ``continuation`` as the anchor."""
    device = target.embedding.device
    tokens = torch.tensor([prompt + continuation], device=device)
    count = len(continuation)
    anchors = torch.arange(len(prompt), len(prompt) + count, device=device)
    padding = -count % ANCHORS_PER_GROUP
    anchors = torch.cat((anchors, anchors[-1:].expand(padding)))[None]
    batch = Batch(
        tokens, anchors, torch.ones_like(anchors, dtype=torch.bool), torch.tensor([len(tokens[0])]).to(device)
    )
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        hidden = propose(draft, target, batch)[0][0, :count]
    result = []
    for part in hidden.split(64):
        log_probs, places = torch.log_softmax((part.to(target.head.dtype) @ target.head.T).float(), -1).topk(CANDIDATES)
        result += [Candidates(*pair) for pair in zip(places.cpu().numpy(), log_probs.cpu().numpy(), strict=True)]
    return result


def accept_lengths(
    draft: DraftModel, target: Target, prompts: list[list[int]], continuations: list[list[int]]
) -> dict[str, Any]:
    """Returns the accept length of the chain and of every tree budget over all prompts, and what it was taken from."""
    budgets = (0, *BUDGETS)  # 0 is the chain
    emitted, rounds = dict.fromkeys(budgets, 0), dict.fromkeys(budgets, 0)
    pairs = [(prompt, text) for prompt, text in zip(prompts, continuations, strict=True) if len(text) > 1]
    for prompt, continuation in tqdm(pairs, desc="rounds"):
        candidates = candidates_everywhere(draft, target, prompt, continuation)
        known: dict[int, list[int]] = {}

        def matches(position: int, following: list[int], budget: int, candidates=candidates, known=known) -> int:
            if not budget:
                return chain_matches(candidates[position], following)
            if position not in known:
                known[position] = tree_ranks(candidates[position], following, max(BUDGETS))
            return sum(rank <= budget for rank in known[position])

        for budget in budgets:
            part = replay_rounds(continuation, lambda i, following, budget=budget: matches(i, following, budget))
            emitted[budget] += part[0]
            rounds[budget] += part[1]
    lengths = {budget: round(emitted[budget] / max(1, rounds[budget]), 4) for budget in budgets}
    return {
        "prompts": len(pairs),
        "tokens": int(np.sum([len(text) for _, text in pairs])),
        "chain": lengths[0],
        "tree": {str(budget): lengths[budget] for budget in BUDGETS},
    }


def table(results: dict[str, Any]) -> str:
    """Returns the results as a markdown table."""
    lines = [
        "| prompt set | prompts | tokens | chain | " + " | ".join(f"tree {budget}" for budget in BUDGETS) + " |",
        "| --- " * (4 + len(BUDGETS)) + "|",
    ]
    for name, part in results["prompt_sets"].items():
        trees = " | ".join(f"{part['tree'][str(budget)]:.2f}" for budget in BUDGETS)
        lines.append(f"| {name} | {part['prompts']} | {part['tokens']} | {part['chain']:.2f} | {trees} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    from transformers import AutoTokenizer

    options = _parser().parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    torch.backends.cuda.enable_cudnn_sdp(False)  # cuDNN may have no plan for an explicit mask
    device = torch.device(options.device)
    draft = read_draft(options.draft)[0].to(device)
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    target = Target(options.target, draft.config.target_layers, device, dtype)
    tokenizer = AutoTokenizer.from_pretrained(options.target, local_files_only=True)
    results: dict[str, Any] = {
        "block_size": draft.config.block_size, "new_tokens": options.new_tokens, "dtype": str(dtype),
        "torch": torch.__version__, "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "prompt_sets": {},
    }  # fmt: skip
    for name in options.prompt_sets:
        texts = load_prompts(name, tokenizer, options.human_eval)[: options.limit]
        prompts = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        continuations = continue_greedily(target, prompts, options.new_tokens, tokenizer.eos_token_id, options.rows)
        results["prompt_sets"][name] = accept_lengths(draft, target, prompts, continuations)
        (options.out / "evaluation.json").write_text(json.dumps(results, indent=1) + "\n")
        (options.out / "evaluation.md").write_text(table(results))
    print(table(results))
    try:
        from .curves import draw_evaluation
    except ImportError as error:
        print(f"no plot: {error}; draw it with python -m benchmark.draft_training.curves {options.out}")
    else:
        draw_evaluation(results, options.out / "evaluation.png")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmark.draft_training.evaluate", description=__doc__)
    parser.add_argument("--target", type=Path, required=True, help="the target's checkpoint folder")
    parser.add_argument("--draft", type=Path, required=True, help="the draft's checkpoint folder")
    parser.add_argument("--out", type=Path, required=True, help="folder of evaluation.json, .md and .png")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--prompt-sets", nargs="+", choices=PROMPT_SETS, default=list(PROMPT_SETS))
    parser.add_argument("--human-eval", type=Path, help="HumanEval.jsonl.gz (default: the package human-eval's)")
    parser.add_argument("--limit", type=int, help="of each set, the first prompts only")
    parser.add_argument("--new-tokens", type=int, default=256, help="most tokens of a continuation (%(default)s)")
    parser.add_argument("--rows", type=int, default=128, help="prompts that the target continues at once (%(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
