"""The DFLASH decode round: draft -> tree_build -> verify -> accept -> commit.

A round verifies, per request, one tree of nodes. Node 0 is the root: the last emitted token, whose KV this round's
verify writes. Every other node is a draft token; it hangs below its parent and stands at the position of the root plus
its depth. A chain is the tree in which every node hangs below the one before it.

    draft        the draft model scores candidates per depth    worker.py, lattice.py
    tree_build   the best candidates under the budget           worker.py; sglang/kernels/draft_tree
    verify       one target forward over all nodes              worker.py, verify.py, capture.py
                 logits of a node as in plain decoding          node_adjustments.py, custom_processors.py
    accept       the target's draw at every node, then a walk   target_draw.py; sglang/kernels/draft_tree
                 a set length instead, for measurements         forced_acceptance.py
    commit       KV and counts of what was emitted              worker.py; penalty_counts.py, emitted_tokens.py

`DraftTreeWorker._decode` is that round, a call a stage. On GPUs `round_graph.py` holds all that need not wait for the
host in two CUDA graphs, before and after the draws, and `_decode` replays them. Without a tree budget upstream's own
worker drafts, verifies and commits the chain, and `chain_round.py` holds the seams between it and the stages here.

`config.py` says how wide trees are, `launch.py` what is refused or falls back to the chain, `worker_choice.py` which
worker serves, and `kv_reserve.py` how many KV slots a round may need ahead of the prefix. `round_metrics.py` and
`stage_times.py` report what the rounds accept and where their time goes.

Where the width is chosen per round, `adaptive_worker.py` is the worker: `round_measures.py` says what finished rounds
cost and accepted, `width_controller.py` chooses from that, `width_choice.py` joins the two on one rank and lets all
follow, `width_relay.py` brings the choice to them, `width_graphs.py` keeps backends and graphs of each width, and
`round_costs_file.py` the costs for the next start. A round of width one is a step of plain decoding, on the constants
of `root_only.py`. `verify_buffers.py` lets all widths share what triton's graphs read.

Over pipeline stages the round starts with the verify, on all stages, and ends with the draft, on the last one:

    pipeline_worker.py     the last stage's round
    pipeline_stage.py      every stage's part of it; pipeline_seams.py: where upstream's scheduler calls it
    pipeline_relay.py      trees that wait for their round, on every stage
    pipeline_widths.py     how much of them a round verifies, and what the first stage learns from it
    pipeline_capture.py    hidden states for the draft, from the stages that own their layers
    pipeline_embedding.py  the embedding that the draft borrows; pipeline_draft.py: how it is built
    pipeline_launch.py     what is refused

Two tensors describe the trees of a batch, for every function here alike: `tokens` [bs, nodes] int64, and `parents`
[bs, nodes] int64 with `parents[:, 0] == -1` and every parent before its children. A node other than the root whose
parent is -1 is padding: it is never accepted, and it is nobody's ancestor.

Accepting by the target's own draws is exact for greedy and for sampled requests, for a chain and for a tree: the draw
at a node is the token that plain decoding would emit there, with the request's own filters and seed, whether or not a
draft token equals it. There is no ratio test, so nothing needs to be known about how the draft chose its tokens.
"""
