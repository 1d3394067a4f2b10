"""The table of round costs: ``rounds.jsonl``, one JSON object per line, read by plots and by whoever plans a width.

A line's key is ``shape``, ``layers``, ``width``, ``batch``, ``context`` and ``forced_accept_length``; a later line of
the same key replaces an earlier one. Readers skip keys that they do not know.

    schema        3; in rows of schema 1 each width had a server of its own, and up to 2 the accept length was always 1
    status        "ok", or "failed" with ``reason``; a failed line of ``batch`` null is a whole width
    shape         name of the model shape; layers: of the measured cut; layers_of_model: of the whole model
    width         tokens of a request that a round verifies, the root included; 1 is plain decoding; null: the server
                  chose per round. Such rows have no round's cost, but share_by_width: of their rounds, by width
    forced_accept_length  tokens that a round was made to emit per request; of a narrower one, its width
    tok_s         output tokens per second of all requests together
    batch         requests at once; tokens = width x batch; context: tokens of each request before the tree
    round_ms      time between two tokens, milliseconds, median over ``repeats``; round_ms_all: each of them
    plain_server  at width 1, whether the server was one without speculation. Else a step also writes the draft's KV of
                  the token, at the end of its CUDA graph, as a server that may draft in the next round has to
    verify_ms     of it the target's forward, by the server; null at width 1; stage_ms: all stages by name, null
                  without speculation
    rounds        rounds behind one ``round_ms``; timed_rounds: rounds behind ``stage_ms``
    server_verify_width  tokens of a request that the server's rounds verified, by its own count: a row is "ok" only
                  where that is ``width`` in each of them; null without speculation
    accept_length by the server's count: 1 where every round emitted the bonus token alone
    floor_ms      least time by memory bandwidth, of floor.py; bytes: weights, kv and activations; operations
    distance      verify_ms / floor_ms, or round_ms / floor_ms at width 1
    bandwidth_gb_s, bandwidth_source    what the floor rests on: a measured copy, or as given; of all ranks together
    setup         versions, hardware, flags; digest: of everything that changes the numbers; time: UTC
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.command import BenchmarkError
from benchmark.sweep.results import append_row, read_rows, rewrite_rows

FILE = "rounds.jsonl"
SCHEMA = 3
Key = tuple[str, int, int | None, int | None, int, float | None]


def key_of(row: dict[str, Any]) -> Key:
    forced = row.get("forced_accept_length", 1.0)
    return row["shape"], row["layers"], row["width"], row["batch"], row["context"], forced


def text_of(width: int | None) -> str:
    """How people read a row's ``width``."""
    return "auto" if width is None else f"width {width}"


def read_table(folder: Path) -> list[dict[str, Any]]:
    """Returns the rows of ``folder``, the last of each key. Raises BenchmarkError: a broken line, a later schema."""
    rows = read_rows(folder, FILE)
    if later := [row["schema"] for row in rows if row["schema"] > SCHEMA]:
        raise BenchmarkError(f"{folder / FILE} has schema {max(later)}, known is {SCHEMA}: update the checkout")
    return [{"forced_accept_length": 1.0, **row} for row in {key_of(row): row for row in rows}.values()]


class Table:
    """The rows of one folder, read at the start and appended to."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.path = folder, folder / FILE
        self.rows = read_rows(folder, FILE)
        if self.path.is_file():  # a kill may have left part of a line
            rewrite_rows(self.path, self.rows)

    def is_done(self, key: Key, digest: str) -> bool:
        """True where ``key`` was measured with this setup, or its whole width failed with it."""
        keys = key, (*key[:3], None, key[4], None)
        return any(key_of(row) in keys and row["digest"] == digest for row in self.rows)

    def drop_failed(self) -> None:
        """Forgets failed rows, so that they are measured again."""
        self.rows = [row for row in self.rows if row["status"] == "ok"]
        rewrite_rows(self.path, self.rows)

    def add(self, row: dict[str, Any]) -> None:
        """Appends ``row``; it is on disk when this returns."""
        self.rows.append(row)
        append_row(self.path, row)


def at(rows: Sequence[dict[str, Any]], **fields: Any) -> list[dict[str, Any]]:
    """Returns the measured rows with these values."""
    return [row for row in rows if row["status"] == "ok" and all(row[name] == value for name, value in fields.items())]
