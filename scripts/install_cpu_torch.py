"""install_cpu_torch.py REQUIREMENT [--index URL]: installs a CPU build of torch into the running environment.

The default package index serves a CUDA build of several GB for Linux on x86-64. PyTorch's own index has CPU builds,
whose local version (``2.13.0+cpu``) pip prefers to the plain one. That index is asked for a few seconds first: where it
cannot be reached, pip uses what it is configured with, such as a folder of wheels.
"""

import argparse
import subprocess
import sys
import urllib.error
import urllib.request

PROBE_SECONDS = 5


def main() -> int:
    """Returns pip's exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requirement", help="for example torch==2.13.0")
    parser.add_argument("--index", help="a package index with CPU builds, asked beside the default one")
    options = parser.parse_args()

    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", options.requirement]
    if options.index:
        problem = find_problem(options.index)
        if problem is None:
            command += ["--extra-index-url", options.index]
        else:
            print(f"{options.index} cannot be used ({problem}): asking pip's configured sources only", flush=True)
    return subprocess.run(command).returncode


def find_problem(index: str) -> str | None:
    """Returns why ``index`` does not answer within five seconds, or None if it does."""
    try:
        urllib.request.urlopen(urllib.request.Request(index, method="HEAD"), timeout=PROBE_SECONDS).close()
    except (urllib.error.URLError, OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
    return None


if __name__ == "__main__":
    sys.exit(main())
