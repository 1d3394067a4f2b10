"""How long each draft-tree operation takes on this GPU, by batch and node budget, as Triton kernel and as torch.

    python benchmark/kernels/tree_ops.py --output tree_ops.json

Every operation is captured in a CUDA graph, several calls in a row, and the graph is replayed between two CUDA events;
a number is the median over the replays, in microseconds per call. The result file holds the setup beside the numbers,
and is written anew after every one of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from sglang.kernels.draft_tree.accept_walk import empty_path, walk
from sglang.kernels.draft_tree.candidates import top_candidates
from sglang.kernels.draft_tree.kept_probs import kept_probs
from sglang.kernels.draft_tree.kv_compact import RowMover, gather_accepted
from sglang.kernels.draft_tree.tree_build import build_tree, empty_tree
from sglang.kernels.draft_tree.tree_layout import compile_tree, empty_layout

WARM_UP = 3
# A call of a reference is many kernels: one is enough to hide what a replay costs.
CALLS_PER_GRAPH = {"triton": 10, "torch": 1}


def main() -> None:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        sys.exit("tree_ops: torch finds no CUDA device; the timings need one")
    result = {"setup": setup(arguments), "unit": "microseconds per call, median", "times": []}
    print(json.dumps(result["setup"], indent=2))
    for batch in arguments.batches:
        for budget in arguments.budgets:
            for backend in arguments.backends:
                for operation, call in operations(arguments, batch, budget, backend):
                    times = time_captured(call, CALLS_PER_GRAPH[backend], arguments.repeats)
                    row = {
                        "operation": operation,
                        "backend": backend,
                        "batch": batch,
                        "budget": budget,
                        "median": round(statistics.median(times), 2),
                        "p10": round(sorted(times)[len(times) // 10], 2),
                        "p90": round(sorted(times)[len(times) * 9 // 10], 2),
                    }
                    result["times"].append(row)
                    print(
                        f"{operation:22} {backend:7} batch {batch:3} budget {budget:4} {row['median']:10.2f}",
                        flush=True,
                    )
                    arguments.output.write_text(json.dumps(result, indent=1))
                torch.cuda.empty_cache()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="result file, JSON")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--budgets", type=int, nargs="+", default=[8, 32, 64, 128])
    parser.add_argument("--backends", nargs="+", choices=["triton", "torch"], default=["triton", "torch"])
    parser.add_argument("--depths", type=int, default=15, help="candidate depths: block size - 1")
    parser.add_argument("--topk", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=151936)
    parser.add_argument("--prefix", type=int, default=4096, help="tokens before the root")
    parser.add_argument("--layers", type=int, default=36, help="KV buffers are twice as many")
    parser.add_argument("--row", type=int, default=1024, help="numbers (bf16) of one KV row: heads x head size")
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=200)
    return parser.parse_args()


def setup(arguments: argparse.Namespace) -> dict:
    import triton

    values = {name: value for name, value in vars(arguments).items() if name != "output"}
    return {
        "gpu": torch.cuda.get_device_name(),
        "compute_capability": list(torch.cuda.get_device_capability()),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
        "calls_per_graph": CALLS_PER_GRAPH,
        **values,
    }


def operations(
    arguments: argparse.Namespace, batch: int, budget: int, backend: str
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Name and call of every operation, on random inputs of one seed."""
    torch.manual_seed(0)
    device, nodes, depth = torch.device("cuda"), 1 + budget, 1 + arguments.depths
    block = (batch, arguments.depths, arguments.topk)
    ids = torch.randint(arguments.vocab, block, device=device)
    roots = ids[:, 0, 0].clone()
    scores = torch.randn(block, device=device).log_softmax(-1).sort(dim=-1, descending=True).values
    pairs = torch.randn(batch, arguments.depths - 1, arguments.topk, arguments.topk, device=device).log_softmax(-1)
    tree = empty_tree(batch, budget, device)
    options = {"backend": backend}
    yield "build_tree", lambda: build_tree(roots, ids, scores, budget, out=tree, **options)
    yield "build_tree, pairs", lambda: build_tree(roots, ids, scores, budget, pairs, out=tree, **options)

    prefix_lens = torch.full((batch,), arguments.prefix, dtype=torch.int32, device=device)
    flat = torch.zeros(batch * nodes * (arguments.prefix + nodes), dtype=torch.bool, device=device)
    layout = empty_layout(batch, nodes, device)

    def layout_call(flat_mask: torch.Tensor | None, write_prefix: bool) -> Callable[[], object]:
        return lambda: compile_tree(
            tree.parents, tree.depths, prefix_lens, flat_mask, write_prefix=write_prefix, out=layout, **options
        )

    yield "compile_tree", layout_call(None, False)
    yield "compile_tree, columns", layout_call(flat, False)
    yield "compile_tree, flat", layout_call(flat, True)

    draws = torch.randint(arguments.vocab, (batch, nodes), device=device)
    # Every node wants its first child, so the walk goes as deep as the tree.
    draws = torch.where(layout.next_child >= 0, tree.tokens.gather(1, layout.next_child.clamp(min=0)), draws)
    path = empty_path(batch, min(depth, nodes), device)
    yield "walk", lambda: walk(tree.tokens, tree.parents, draws, min(depth, nodes), out=path, **options)

    window_slots = torch.randperm(batch * nodes, device=device).view(batch, nodes)
    shape = (2 * arguments.layers, batch * nodes, arguments.row)
    mover = RowMover(list(torch.zeros(shape, dtype=torch.bfloat16, device=device)), **options)
    hidden = torch.zeros(batch, nodes, arguments.hidden, dtype=torch.bfloat16, device=device)
    yield "RowMover.to_front", lambda: mover.to_front(window_slots, path.node_ids)
    yield "gather_accepted", lambda: gather_accepted(hidden, path.node_ids, **options)

    top_ks, top_ps, min_ps = (torch.full((batch * nodes,), value, device=device) for value in (1 << 30, 0.95, 0.0))
    probs = torch.randn(batch * nodes, arguments.vocab, device=device).mul_(3).softmax(-1)
    yield "kept_probs", lambda: kept_probs(probs, top_ks, top_ps, min_ps, **options)

    if budget == arguments.budgets[0]:  # its size is the block's, not the tree's
        logits = torch.randn(batch * arguments.depths, arguments.vocab, dtype=torch.bfloat16, device=device)
        yield "top_candidates", lambda: top_candidates(logits, arguments.topk, **options)


def time_captured(call: Callable[[], object], calls: int, repeats: int) -> list[float]:
    """Microseconds per call in each of `repeats` replays of a graph of `calls` calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            call()
    graph.replay()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in events:
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    return [1000 * start.elapsed_time(end) / calls for start, end in events]


if __name__ == "__main__":
    main()
