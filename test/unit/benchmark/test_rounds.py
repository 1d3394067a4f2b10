"""What a server counts of its rounds: the difference of two moments, summed over its schedulers."""

from benchmark.sweep.rounds import STAGES, rounds_in, server_measures


def state(rounds: int, accept_rate: list[float], timed: int, draft_ms: float, verify_ms: float) -> dict:
    stages = {**dict.fromkeys(STAGES, 0.0), "draft": draft_ms, "verify": verify_ms}
    return {
        "avg_spec_accept_length": 9.9,  # a gauge of one scheduler, never read
        "spec_rounds": {
            "rounds": rounds,
            "verified_nodes": rounds * 17,
            "accept_rate_by_depth": accept_rate,
            "stage_milliseconds": stages if timed else {},
            "timed_rounds": timed,
        },
    }


def test_r38_rounds_are_the_difference_of_two_moments_over_all_schedulers():
    before = {"internal_states": [None, state(100, [0.5, 0.1], 10, 1.0, 2.0), state(0, [], 0, 0, 0)]}
    after = {"internal_states": [None, state(200, [0.6, 0.2], 20, 2.0, 2.0), state(100, [0.3], 10, 1.0, 8.0)]}
    row = server_measures(rounds_in(before), rounds_in(after))
    # 200 rounds; 120 - 50 + 30 reached depth 1, 40 - 10 depth 2.
    # 20 rounds timed: draft 40 - 10 + 10 ms, verify 40 - 20 + 80.
    assert row["server_rounds"] == 200 and row["server_verify_width"] == 17
    assert row["server_accepted_at_depth"] == [0.5, 0.15] and row["server_accept_length"] == 1.65
    assert row["timed_rounds"] == 20
    assert row["stage_ms"] == {"draft": 2.0, "tree_build": 0.0, "verify": 5.0, "accept": 0.0, "commit": 0.0}


def test_servers_without_counts_say_nothing():
    assert rounds_in({}) is None and rounds_in({"internal_states": [None, {"avg_spec_accept_length": 2.9}]}) is None
    assert set(server_measures(None, None).values()) == {None}


def test_cell_without_a_timed_round_has_no_stage_times():
    once = rounds_in({"internal_states": [state(10, [0.5], 1, 1.0, 1.0)]})
    later = rounds_in({"internal_states": [state(20, [0.5], 1, 1.0, 1.0)]})
    row = server_measures(once, later)
    assert row["stage_ms"] is None and row["timed_rounds"] is None and row["server_rounds"] == 10
