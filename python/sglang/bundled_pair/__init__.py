"""The pair that comes with the fork: SmolLM2-135M-Instruct and a DFLASH draft for it, on disk and behind a server.

    target.py          the target: found or fetched as GGUF by hash, dequantized to bfloat16 safetensors
    packed_draft.py    the draft: stored as int8, expanded to the bfloat16 z-lab layout
    cached_folder.py   a folder that is either complete or absent, whatever interrupts the work
    prepare.py         both checkpoints in the cache folder
    serve.py           prepare, start the server, send one chat request, keep serving
    server_process.py  a server as a child process: watched, and ended with all its children
    __main__.py        ``python -m sglang.bundled_pair prepare | serve | pack-draft``

The modules import each other only; torch and transformers are loaded where a checkpoint is made.
"""

from .prepare import BundledPair, prepare_pair

__all__ = ["BundledPair", "prepare_pair"]
