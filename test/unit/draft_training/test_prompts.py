"""Openers: the same for the same seed, complete prompts around what the target adds."""

import pytest

from benchmark.draft_training.prompts import CONTENT, KINDS, chat_frames, make_opener


def render(messages: list[dict[str, str]]) -> str:
    return "".join(f"<{m['role']}>{m['content']}</>" for m in messages) + "<assistant>"


FRAMES = chat_frames(render)


def test_openers_depend_on_number_and_seed_alone():
    first = [make_opener(index, 0, FRAMES, "</>") for index in range(50)]
    assert first == [make_opener(index, 0, FRAMES, "</>") for index in range(50)]
    assert first != [make_opener(index, 1, FRAMES, "</>") for index in range(50)]


def test_every_kind_comes_up():
    assert {make_opener(index, 0, FRAMES, "</>").kind for index in range(500)} == set(KINDS)


@pytest.mark.parametrize("index", range(100))
def test_the_prompt_holds_what_the_target_saw_and_added_up_to_the_stop(index):
    opener = make_opener(index, 0, FRAMES, "</>")
    prompt = opener.prompt(f" some words{opener.stop} more") if opener.stop else opener.prompt("")
    assert CONTENT not in prompt and "{" not in prompt
    assert opener.body.rstrip() + (" some words" if opener.stop else "") in prompt
    assert " more" not in prompt
    assert prompt.endswith("<assistant>") or opener.kind == "code"
    assert not opener.body.endswith(" ")


@pytest.mark.parametrize(
    ("continuation", "kept"),
    [
        ("One. Two? Thr", "One. Two?"),
        ("3.14 is it. Yes! 2.7", "3.14 is it. Yes!"),
        ("first line\nsecond", "first line"),
        ("no end", None),
        ("\n", None),
    ],
)
def test_a_continuation_without_the_stop_ends_with_its_last_whole_part(continuation, kept):
    opener = next(o for o in (make_opener(i, 0, FRAMES, "</>") for i in range(50)) if o.kind == "invented")
    found = opener.prompt(continuation)
    assert found == (None if kept is None else opener.template.replace(CONTENT, kept))


def test_a_template_that_hides_the_message_is_refused():
    with pytest.raises(ValueError, match="0 times"):
        chat_frames(lambda messages: "nothing")
