"""R29: experts of other ranks in the release's mixture of experts on torch: an index error at the first request."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "unit" / "layers" / "test_local_experts.py"


def test_r29_without_the_patch_other_ranks_experts_are_taken_for_indices(trees):
    failing = trees.failing_without("expert-parallel-torch", str(TESTS))
    assert set(failing) == {f"test_r29_partial_sums_of_all_ranks_equal_one_rank[{ranks}]" for ranks in (2, 4)}
