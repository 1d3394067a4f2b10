"""Round costs outlive the server, and a file that is of no use stops none."""

import logging

from sglang.srt.speculative.draft_tree.round_costs_file import RoundCostsFile

COSTS = {(1, 1): 0.002, (1, 8): 0.003, (32, 1): 0.004}


def test_costs_come_back_for_the_same_server_and_for_no_other(tmp_path):
    RoundCostsFile(tmp_path, {"device": "a", "model": "m"}).save(COSTS)
    assert RoundCostsFile(tmp_path, {"model": "m", "device": "a"}).load() == COSTS
    assert RoundCostsFile(tmp_path, {"device": "b", "model": "m"}).load() == {}


def test_a_broken_file_is_named_and_replaced(tmp_path, caplog):
    file = RoundCostsFile(tmp_path, {"device": "a"})
    file.path.write_text('{"seconds": [[1, 1')
    with caplog.at_level(logging.WARNING):
        assert file.load() == {}
    assert str(file.path) in caplog.text
    file.save(COSTS)
    assert file.load() == COSTS
    assert [path.name for path in tmp_path.iterdir()] == [file.path.name], "no temporary file is left"


def test_a_folder_that_takes_no_file_costs_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    file = RoundCostsFile(tmp_path / "file", {"device": "a"})
    with caplog.at_level(logging.WARNING):
        file.save(COSTS)
        assert file.load() == {}
    assert "not written" in caplog.text


def test_a_save_is_due_some_time_after_the_last(tmp_path, monkeypatch):
    file = RoundCostsFile(tmp_path, {})
    assert not file.is_due()
    monkeypatch.setattr("sglang.srt.speculative.draft_tree.round_costs_file.SAVE_SECONDS", 0.0)
    assert file.is_due()
