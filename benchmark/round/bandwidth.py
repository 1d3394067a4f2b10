"""Memory bandwidth of this machine, measured by a copy in a process of its own: read and write, the best of several."""

import json
import subprocess
import sys

from benchmark.command import BenchmarkError

_COPY = """
import json, time, torch
cuda = torch.cuda.is_available()
count = (4 << 30) if cuda else (1 << 28)
source = torch.zeros(count, dtype=torch.uint8, device="cuda" if cuda else "cpu")
target = torch.empty_like(source)
best = 0.0
for _ in range(10):
    if cuda:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    target.copy_(source)
    if cuda:
        torch.cuda.synchronize()
    best = max(best, 2 * count / (time.perf_counter() - begin))
print(json.dumps(best / 1e9))
"""


def copy_bandwidth_gb_s() -> float:
    """Returns 10^9 bytes per second of one device. Raises BenchmarkError where torch cannot say."""
    answer = subprocess.run([sys.executable, "-c", _COPY], capture_output=True, text=True)
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        raise BenchmarkError(f"the memory bandwidth cannot be measured ({last}): give it with --bandwidth GB_PER_S")
    return round(json.loads(answer.stdout), 1)
