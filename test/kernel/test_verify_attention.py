"""Attention of a verify on a GPU; on a CPU the interpreter runs the same, see test_dispatch.py."""

import pytest


@pytest.mark.gpu
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("nodes", [1, 6, 33])
def test_a_verify_attends_to_prefix_and_ancestors_whatever_the_mask_held_before(nodes, deterministic):
    from .verify_attention import compare_verify

    compare_verify("cuda", nodes, deterministic=deterministic)
