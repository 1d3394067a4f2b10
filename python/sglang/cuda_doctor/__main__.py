"""Command line: ``python -m sglang.cuda_doctor``; see ``--help``. Exit status 1 where something needs a hand."""

import sys
from pathlib import Path

if __package__:
    from .command import main
else:  # the folder itself was run, so that neither sglang nor what it needs is imported
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    from cuda_doctor.command import main

if __name__ == "__main__":
    sys.exit(main())
