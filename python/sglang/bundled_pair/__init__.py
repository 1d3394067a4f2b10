"""The pair that comes with the fork: SmolLM2-135M-Instruct and a DFLASH draft for it.

``prepare`` makes both checkpoints on disk, ``serve`` puts a server around them.
"""
