"""What one verify round costs by width and batch, beside what memory bandwidth allows: ``python -m benchmark.round``.

    shapes.py    model shapes with random weights: a config.json of the target and of a small draft, no weight file
    floor.py     bytes that a round must move, and from them the least time
    bandwidth.py what this machine's memory does, measured by a copy
    plan.py      what to measure, and the servers that it takes: one, or two
    server.py    the server's flags and memory
    pinned_width.py  a plugin of the server: width and accept length of its rounds, set from outside
    measure.py   cells in order, each a row
    cell.py      one cell
    table.py     the rows on disk and their schema
    plots.py     pictures of costs for ``benchmark.report``
    speeds.py    tokens per second over plain decoding, of each width and of the server's choice

A server verifies trees of ``width`` nodes per request, the root included, for ``batch`` requests at once, each with
``context`` tokens before; width 1 is plain decoding. One server measures all widths: it chooses its width per round,
and the choice is made from outside. Acceptance is forced to the bonus token alone, so every round
emits one token and all requests go on together. ``round_ms`` is the time between two tokens as a client sees it,
``verify_ms`` the server's own time of the target's forward: on a GPU the device's.

With ``--accept-lengths`` the same server says where speculation wins: acceptance is forced to each of these lengths,
every width is measured once more, and then the server's own choice of widths.
"""
