"""The draft's config is read at the revision that was asked for, by every reader."""

import json
import shutil

import pytest

from harness.tiny_pair import make_tiny_pair
from sglang.srt.server_args import ServerArgs
from sglang.srt.utils import hf_transformers_utils

PATCH = "dflash-draft-revision"


@pytest.mark.parametrize("override", ["{}", '{"rope_theta": 5000.0}'])
def test_every_reader_asks_for_the_same_draft(override, tmp_path, monkeypatch):
    """A hub id stands for the draft; each read of its config is noted and answered from disk."""
    pair = make_tiny_pair(tmp_path)
    snapshot = shutil.copytree(pair.draft, tmp_path / "snapshot")
    original, asked = hf_transformers_utils.get_config, []

    def recorded(path, **arguments):
        if path != "owner/draft":
            return original(path, **arguments)
        asked.append((arguments.get("revision"), arguments.get("model_override_args")))
        return original(str(snapshot), **arguments)

    monkeypatch.setattr(hf_transformers_utils, "get_config", recorded)
    ServerArgs(
        model_path=str(pair.target),
        speculative_algorithm="DFLASH",
        speculative_draft_model_path="owner/draft",
        speculative_draft_model_revision="v2",
        json_model_override_args=override,
    ).resolve_once()
    assert len(asked) > 1
    assert all(read == ("v2", json.loads(override)) for read in asked), asked


def test_without_the_patch_one_reader_asks_for_the_default_revision(trees):
    failing = trees.failing_without(PATCH, f"{__file__}::test_every_reader_asks_for_the_same_draft[{{}}]")
    (reason,) = failing.values()
    assert "(None, None)" in reason
