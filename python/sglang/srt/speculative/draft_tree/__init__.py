"""The DFLASH decode round: draft -> tree_build -> verify -> accept -> commit.

A round verifies, per request, one tree of nodes. Node 0 is the root: the last emitted token, whose KV this round's
verify writes. Every other node is a draft token; it hangs below its parent and stands at the position of the root plus
its depth. A chain is the tree in which every node hangs below the one before it.

    draft        the draft model proposes tokens             upstream's worker
    tree_build   proposals become nodes with parents         upstream's worker: the chain
    verify       one target forward over all nodes           upstream's worker
                 node_adjustments.py, custom_processors.py   logits of a node as plain decoding would have them there
    accept       target_draw.py, kernels' accept_walk.py     the target's draw at every node, then a walk along them
    commit       KV and counts of what was emitted           upstream's worker; penalty_counts.py, emitted_tokens.py

Two tensors describe the trees of a batch, for every function here alike: `tokens` [bs, nodes] int64, and `parents`
[bs, nodes] int64 with `parents[:, 0] == -1` and every parent before its children. A node other than the root whose
parent is -1 is padding: it is never accepted, and it is nobody's ancestor.

Accepting by the target's own draws is exact for greedy and for sampled requests, for a chain and for a tree: the draw
at a node is the token that plain decoding would emit there, with the request's own filters and seed, whether or not a
draft token equals it. There is no ratio test, so nothing needs to be known about how the draft chose its tokens.

`chain_round.py` holds the seams between upstream's worker and these stages.
"""
