"""Serves a model in several configurations and measures each: ``python -m benchmark.sweep CONFIG.yaml --out RESULTS``.

    config.py        the file that says what to measure, checked before anything starts
    plan.py          configurations x workloads x concurrency levels x repeats as cells, each with a digest of its setup
    prompts.py       prompts of a workload as token ids; prompts that repeat themselves are counted
    server.py        a configuration's server: started here, or attached to by URL
    load.py          one cell under upstream's load generator, with every request's own counts kept
    measures.py      requests of a cell to the numbers of its row
    rounds.py        what a server itself counts: verify width, stage times
    reference.py     what plain decoding says, how sure it is of each token, and how others compare
    gpu.py           memory and energy, where the driver tells them
    setup.py         versions, hardware and flags beside the numbers
    results.py       rows on disk, one JSON line each; what is there already is not measured again
    run.py           the whole sweep, in order

Conventions. A round is one verify of one request. Accept length counts the bonus token: 1 + accepted drafts / rounds,
both summed over the requests of the cell. The first token of a request comes from its prefill and belongs to no round.
Upstream's own figure, tokens / rounds, counts it and is kept beside it. ``user_tok_s`` is a request's decode speed, its
first token left out; ``output_tok_s`` is all tokens over the time from the first request's start to the last one's end.
"""
