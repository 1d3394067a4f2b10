"""Rows as the sweep writes them, for tests of what reads them."""

from typing import Any


def row(configuration: str = "plain", concurrency: int = 1, output_tok_s: float = 100.0, **changes: Any) -> dict:
    """One measured row; ``changes`` replace its fields."""
    workload = {"prompts": "chat", "ignore_eos": False}
    setup = {
        **dict.fromkeys(("commit", "python_version", "torch", "driver", "cpu", "cores", "system", "url")),
        "sglang": "0.5.23",
        "gpus": [],
        "model": "target",
        "seed": 1,
        "flags": {"dtype": "float32"},
        "env": {},
        "workload": workload,
    }
    return {
        "configuration": configuration,
        "workload": "chat",
        "concurrency": concurrency,
        "repeat": 0,
        "digest": "d",
        "status": "ok",
        "reason": None,
        "plain": configuration == "plain",
        "baseline": "plain",
        "tree_budget": None,
        "verify_width": None if configuration == "plain" else 8,
        "forced_accept_length": None,
        "output_tok_s": output_tok_s,
        "user_tok_s": output_tok_s / concurrency,
        "requests": 4,
        "distinct_prompts": 4,
        "repeating_prompts": 0,
        "accept_length": None if configuration == "plain" else 2.0,
        "accept_length_by_category": {} if configuration == "plain" else {"coding": 3.0, "writing": 1.5},
        "accepted_at_depth": None if configuration == "plain" else [0.6, 0.4],
        "round_ms": None if configuration == "plain" else 12.0,
        "stage_ms": None,
        "text": "same",
        "text_reason": None,
        "text_same": 4,
        "text_near_tie": 0,
        "text_different": 0,
        "text_loops": 0,
        "text_loops_plain": 0,
        "setup": setup,
        **changes,
    }


def failed(configuration: str, reason: str) -> dict:
    """The row of a configuration that did not start."""
    empty = {"workload": None, "concurrency": None, "repeat": None}
    return {"configuration": configuration, **empty, "digest": "d", "status": "failed", "reason": reason}
