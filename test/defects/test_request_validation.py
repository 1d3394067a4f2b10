"""Bad requests: what the patch answers with HTTP 400, upstream lets through to the model process.

The tests themselves stand with the code they are about; here they run on the fork without the patch. What the
requests do to a server there is told in the patch; `test/e2e/test_bad_requests.py` sends them to one.
"""

from pathlib import Path

UNIT = Path(__file__).resolve().parents[1] / "unit"
PATCH = "request-validation"
TESTS = {
    "managers/test_request_validation.py": ["test_lists_need_one_value_per_prompt", "test_number_of_samples"],
    "sampling/test_sampling_validation.py": ["test_values_out_of_range_are_named"],
    "constrained/test_dead_grammar.py": ["test_grammar_that_nothing_can_begin"],
}


def test_without_the_patch_bad_values_pass(trees):
    nodes = [f"{UNIT / file}::{test}" for file, tests in TESTS.items() for test in tests]
    failing = {name.partition("[")[0] for name in trees.failing_without(PATCH, *nodes)}
    assert failing == {test for tests in TESTS.values() for test in tests}
