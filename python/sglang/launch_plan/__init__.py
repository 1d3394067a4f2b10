"""What a launch will do, known before any weight is loaded: ``sglang serve ... --dry-run`` prints it.

    checkpoint.py   the tensors of a checkpoint and their bytes, from the headers of its files
    layout.py       who holds what: layers, heads and experts of each rank
    memory.py       bytes of each part on each GPU, and what is left for KV
    peers.py        peer access: what was asked for and cannot work, and a collective that must answer in time
    plan.py         all of it for one set of arguments, as findings and as text
    launch.py       the call in a launch: print the plan and end, or refuse what cannot work
    collective.py   the collective that peers.py tries

Facts about the machine are those of ``sglang.cuda_doctor``, so that a plan can be made for another machine:
``--dry-run FACTS.json`` takes the output of ``python -m sglang.cuda_doctor --json`` from there.
"""
