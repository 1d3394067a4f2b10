"""A DFLASH draft from scratch: the target writes the texts, the draft learns to continue them a block at a time.

    python -m benchmark.draft_training.generate   the target's own texts -> a folder of shards
    python -m benchmark.draft_training.train      shards -> a draft in the z-lab layout, curves, the packed form
    python -m benchmark.draft_training.evaluate   accept length of a draft, chain and trees, per prompt set

    prompts.py     openers that the target completes into prompts
    texts.py       shards on disk, loops cut short, duplicates dropped, texts held out by prompt
    batches.py     texts in fixed shapes on the device, random anchors
    target.py      the frozen target: context features, final hidden states, embedding and head
    draft.py       the draft model; its parameters are named as in a checkpoint
    loss.py        distillation through the target's head, a chunk of rows at a time
    budget.py      the schedule as a function of elapsed time
    checkpoints.py atomic checkpoints of a run, and the draft as a checkpoint that engines read
    accept.py      accept length on a known continuation: chain and best-first trees, round by round
    curves.py      plots, drawn from the CSV and JSON files that the commands write
    card.py        the model card, filled from the JSON files of one run
    prompt_sets.py prompts for evaluation only

Block and positions are those of serving. An anchor is the last emitted token, at position a of a text: the target has
computed the tokens before it, so the draft attends to the context features of positions 0..a-1. The block stands at
positions a..a+B-1 and holds the anchor followed by B-1 masks; the output at position a+d proposes the token there.
"""
