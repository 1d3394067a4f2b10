"""Openers: beginnings of prompts that the target itself completes, so that the texts are the target's own.

Half of them are nothing but the header of a chat, after which the target invents what a user might say. The others give
the first words, filled at random, so that code, arithmetic, questions and stories are well represented.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

CONTENT = "\x00content\x00"
DOCSTRING_QUOTES = ('"""', "'''")
_WHOLE_PARTS = re.compile(r".*(?:[.?!](?=\s)|\n)", re.DOTALL)

_SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a careful assistant. Answer briefly.",
    "You are an experienced programmer. Explain your code.",
    "You are a patient teacher.",
    "You are a creative writer.",
)
_VERBS = (
    "count", "find", "filter", "merge", "split", "reverse", "sort", "remove", "replace", "sum", "compute", "convert",
    "check", "group", "rotate", "flatten", "compare", "parse", "encode", "format", "rank", "select", "validate", "join",
    "shift", "normalize", "collect", "search", "pair", "scale",
)  # fmt: skip
_NOUNS = (
    "words", "numbers", "vowels", "digits", "intervals", "matrix", "strings", "pairs", "duplicates", "brackets",
    "dates", "primes", "scores", "files", "characters", "lists", "nodes", "edges", "prices", "names", "grid",
    "tokens", "lines", "divisors", "palindromes", "temperatures", "items", "keys", "sequence", "fractions", "points",
)  # fmt: skip
_ARGUMENTS = (
    ("numbers: List[int]", "int"),
    ("values: List[float]", "float"),
    ("text: str", "str"),
    ("text: str", "List[str]"),
    ("words: List[str]", "Dict[str, int]"),
    ("a: int, b: int", "int"),
    ("n: int", "List[int]"),
    ("n: int", "bool"),
    ("first: str, second: str", "bool"),
    ("numbers: List[int], limit: int", "List[int]"),
    ("matrix: List[List[int]]", "List[int]"),
    ("n", ""),
    ("s", ""),
    ("lst", ""),
    ("array, k", ""),
    ("x, y", ""),
    ("words", ""),
    ("d", ""),
)
_DOCSTRING_STARTS = (
    "", "", " ", "\n    ", "Return ", "Given ", " Given a ", "Check if ", "\n    Write a function that ", "Find the ",
    "\n    Return ", "\n    You are given ", " For a given ", "Compute ", "\n    Given two ", " Return a list of ",
    "Count ", "\n    This function ", "Create a function that ", " Take ",
)  # fmt: skip
_CODE_REQUESTS = (
    "Complete the following Python function:\n\n```python\n{code}\n```",
    "Complete this function.\n\n{code}",
    "Write a solution to the following problem in Python:\n```python\n{code}\n```",
    "Please implement this Python function.\n```\n{code}\n```",
    "{code}",
    "Finish the code below and explain it.\n\n```python\n{code}\n```",
)
_CODE_TASKS = (
    "Write a Python function that ", "Write a Python program to ", "Implement a class in Python that ",
    "How do I {verb} {noun} in Python", "Write a function to {verb} the {noun} ", "Write a Java method that ",
    "Write a SQL query to ", "Write a bash script that ", "Write a JavaScript function that ", "Fix this code:\n",
    "Explain what this Python code does:\n", "Write a C program that ", "Write unit tests for ", "Write a regular ",
    "Using Python, {verb} all {noun} ", "Create an HTML page with ", "What is the time complexity of ",
)  # fmt: skip
_ARITHMETIC = (
    "What is {a} + {b}?", "What is {a} - {b}?", "What is {c} times {d}?", "Calculate {c} * {d} + {a}.",
    "What is {a} divided by {d}?", "Solve for x: {d}x + {c} = {a}", "What is {c}% of {a}?", "Simplify {c}/{e}.",
    "A train travels {a} km in {d} hours. ", "{name} has {c} apples and buys {d} more. ", "Is {a} a prime number?",
    "A rectangle is {c} cm long and {d} cm wide. ", "{name} earns ${c} an hour and works {d} hours. ",
    "The sum of two numbers is {a} and ", "Convert {a} minutes to hours.", "Find the average of {a}, {b} and {c}.",
    "A box holds {c} pencils. How many pencils are in {d} boxes?", "If {c} workers need {d} days to ",
    "What is the area of a circle with radius {d}?", "List the factors of {c}.", "Round {a}.{c} to ",
    "What is the next number in the sequence {d}, {c}, ", "Solve the equation x^2 - {e}x + {d} = 0.",
)  # fmt: skip
_QUESTIONS = (
    "What is ", "What are the ", "Why ", "Why do ", "How does ", "How do I ", "How can I ", "Who was ", "When did ",
    "Where is ", "Explain ", "Explain the difference between ", "Can you ", "Describe ", "What happens when ", "List ",
    "Summarize ", "Compare ", "Name three ", "Tell me about ", "What is the capital of ", "Is it ", "Should I ",
    "Translate ", "Give me ", "What would happen if ", "Define ", "Which ", "Extract ", "Classify ", "Rewrite ",
    "Correct the grammar: ", "What is the meaning of ", "Give an example of ", "Identify ", "Based on the text ",
)  # fmt: skip
_STORIES = (
    "Write a short story about ", "Write a poem about ", "Write an email to ", "Write a letter to ", "Imagine ",
    "Pretend you are ", "You are a {role}. ", "Write a dialogue between a {role} and ", "Write a blog post about ",
    "Tell me a story about a {role} who ", "Write a speech ", "Write a product description for ", "Describe a day in ",
    "Write a review of ", "Continue this story: ", "Write the opening paragraph of ", "Write a haiku about ",
    "Act as a {role} and ", "Write an essay on ", "Compose a song about ", "Create a character ", "Draft a ",
)  # fmt: skip
_ROLES = (
    "pirate", "doctor", "teacher", "detective", "robot", "king", "farmer", "scientist", "traveler", "chef", "wizard",
    "lawyer", "sailor", "gardener", "musician", "historian", "tour guide", "librarian", "coach", "judge",
)  # fmt: skip
_NAMES = ("Anna", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Hugo", "Ines", "Jonas", "Kim", "Lena", "Omar")
_CODE_PREAMBLES = (
    "",
    "",
    "\n\n",
    "from typing import List\n\n\n",
    "from typing import List, Dict\n\n\n",
    "import math\n\n\n",
)


@dataclass(frozen=True)
class ChatFrame:
    """The target's chat template around a user message: ``header`` + message + ``footer``."""

    header: str
    footer: str


@dataclass(frozen=True)
class Opener:
    """The beginning of a prompt.

    The target sees ``lead + body`` and continues it up to ``stop``, or not at all where ``stop`` is None. ``body`` and
    the continuation are the content, which takes the place of ``CONTENT`` in ``template``.
    """

    kind: str
    lead: str
    body: str
    stop: str | None
    template: str

    def prompt(self, continuation: str) -> str | None:
        """Returns the whole prompt, the continuation cut before ``stop``.

        One that never came to ``stop`` is cut after its last whole sentence or line; None where it has none.
        """
        content = self.body
        if self.stop is not None:
            added, stop, _ = continuation.partition(self.stop)
            if not stop:
                whole = _WHOLE_PARTS.match(added)
                if whole is None or not whole[0].strip():
                    return None
                added = whole[0]
            content += added
        return self.template.replace(CONTENT, content.rstrip())


def chat_frames(render: Callable[[list[dict[str, str]]], str]) -> list[ChatFrame]:
    """Returns the frame without a system prompt of ours first, then one per system prompt.

    ``render`` is the target's chat template: messages in, text with the generation prompt out. Raises ValueError if it
    does not keep the message as it is.
    """
    user = {"role": "user", "content": CONTENT}
    frames = []
    for system in (None, *_SYSTEM_PROMPTS):
        messages = [user] if system is None else [{"role": "system", "content": system}, user]
        parts = render(messages).split(CONTENT)
        if len(parts) != 2:
            raise ValueError(f"the chat template shows the user's message {len(parts) - 1} times, once was expected")
        frames.append(ChatFrame(*parts))
    return frames


def make_opener(index: int, seed: int, frames: list[ChatFrame], end_of_turn: str) -> Opener:
    """Returns opener number ``index``, the same for the same seed; ``end_of_turn`` ends a user's message."""
    rng = random.Random(f"{seed}:{index}")
    frame = frames[0] if rng.random() < 0.75 else rng.choice(frames)
    kind = rng.choices(list(_KINDS), weights=[weight for weight, _ in _KINDS.values()])[0]
    make = _KINDS[kind][1]
    if kind in ("code", "code-chat"):
        return make(rng, frame)
    body = make(rng).rstrip(" ")  # a token of its own at the end would be followed by words without their space
    complete = body.endswith(("?", ".")) and rng.random() < 0.7
    return Opener(kind, frame.header, body, None if complete else end_of_turn, frame.header + CONTENT + frame.footer)


def _invented(rng: random.Random) -> str:
    return ""


def _code_task(rng: random.Random) -> str:
    return rng.choice(_CODE_TASKS).format(verb=rng.choice(_VERBS), noun=rng.choice(_NOUNS))


def _arithmetic(rng: random.Random) -> str:
    return rng.choice(_ARITHMETIC).format(
        a=rng.randint(2, 999), b=rng.randint(2, 999), c=rng.randint(2, 99), d=rng.randint(2, 20),
        e=rng.randint(2, 60), name=rng.choice(_NAMES),
    )  # fmt: skip


def _question(rng: random.Random) -> str:
    return rng.choice(_QUESTIONS)


def _story(rng: random.Random) -> str:
    return rng.choice(_STORIES).format(role=rng.choice(_ROLES))


def _function_header(rng: random.Random) -> str:
    arguments, result = rng.choice(_ARGUMENTS)
    arrow = f" -> {result}" if result else ""
    name = f"{rng.choice(_VERBS)}_{rng.choice(_NOUNS)}"
    quotes = rng.choice(('"""', '"""', '"""', "'''"))
    start = rng.choice((*_DOCSTRING_STARTS, f" >>> {name}(", f"\n    >>> {name}("))
    header = f"{rng.choice(_CODE_PREAMBLES)}def {name}({arguments}){arrow}:\n    {quotes}{start}"
    return header.rstrip(" ")


def _code(rng: random.Random, frame: ChatFrame) -> Opener:
    header = _function_header(rng)
    quotes = '"""' if '"""' in header else "'''"
    break_line = rng.choice(("", "\n    "))
    return Opener("code", "", header, quotes, f"{CONTENT}{break_line}{quotes}\n")


def _code_chat(rng: random.Random, frame: ChatFrame) -> Opener:
    bare = _code(rng, frame)
    code = bare.template.rstrip("\n")
    request = rng.choice(_CODE_REQUESTS).replace("{code}", code)
    return Opener("code-chat", "", bare.body, bare.stop, frame.header + request + frame.footer)


_KINDS = {
    "invented": (40, _invented),
    "code": (12, _code),
    "code-chat": (14, _code_chat),
    "code-task": (7, _code_task),
    "arithmetic": (7, _arithmetic),
    "question": (11, _question),
    "story": (9, _story),
}
KINDS = tuple(_KINDS)
