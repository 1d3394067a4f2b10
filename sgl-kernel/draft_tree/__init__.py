"""Operations on draft trees, batched: torch references and Triton kernels under one name each.

    candidates.py    logits to the top candidates of each depth and their log-probabilities
    tree_build.py    candidates to tree nodes, best first, under the node budget
    tree_layout.py   parents to ancestor mask, positions, child and sibling links, flat attention mask
    accept_walk.py   the target's draws to the accepted path and the bonus token
    kv_compact.py    KV rows and hidden states of the accepted nodes to the front
    kept_probs.py    the target's probabilities to those that top-k, top-p and min-p keep
    stamp.py         the device's time between them
    dispatch.py      the one rule that picks torch or Triton
    *_triton.py      the kernels, each with its launcher; imported when first launched

Trees of a batch are two tensors: `tokens` [bs, nodes] int64, and `parents` [bs, nodes] int64 with
`parents[:, 0] == -1` and every parent before its children. Node 0 is the root. Another node whose parent is -1 is
padding: nobody's ancestor, child or sibling.

Every operation on trees has shapes that depend on its arguments' shapes alone and reads nothing back to the host, so
each one can be captured in a CUDA graph. `out` takes preallocated results of the same shapes and dtypes.
"""
