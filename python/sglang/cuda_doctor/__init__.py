"""Says what stands between this machine and serving on its NVIDIA GPUs: ``python -m sglang.cuda_doctor``.

A run reads the machine once and then only thinks: ``probes`` turns the machine into ``facts.Facts``, ``findings`` turns
facts into findings, each with a fix, and ``report`` prints both. ``toolkits`` reads CUDA toolkits from disk and
``toolkit_rules`` says what one can build; the server chooses its toolkit by the same rules
(``sglang.srt.utils.flashinfer_toolchain``).

Every module imports the standard library alone, and ``early`` runs before ``sglang`` imports anything else, so that the
doctor answers where torch cannot be imported. Its folder is a command, too: ``python .../sglang/cuda_doctor``.
"""
