"""Attention of a verify on a GPU; on a CPU the interpreter runs the same, see test_dispatch.py."""

import pytest


@pytest.mark.gpu
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("nodes", [1, 6, 33])
@pytest.mark.parametrize("kernel", ["extend", "split"])
def test_a_verify_attends_to_prefix_and_ancestors_whatever_the_mask_held_before(
    nodes, deterministic, kernel, monkeypatch
):
    from .verify_attention import VARIABLE, compare_verify

    monkeypatch.setenv(VARIABLE, kernel)
    compare_verify("cuda", nodes, deterministic=deterministic)
