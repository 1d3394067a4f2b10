"""A custom logit processor that raises: upstream lets it end the server."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "unit" / "sampling" / "test_processor_failures.py"


def test_without_the_patch_the_exception_leaves_the_sampler(trees):
    failing = trees.failing_without("processor-failures", str(TESTS))
    assert {
        "test_one_of_three_requests_fails_without_parameters",
        "test_every_node_of_a_failing_request_stays_as_it_was",
        "test_a_result_of_another_shape_is_a_failure_that_shows_both",
    } <= set(failing)
