"""``collective.py RANKS BACKEND``: one all-reduce between processes; ends with 0 if every rank got the sum."""

import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

_NUMBERS = 1 << 18


def main() -> None:
    ranks, backend = int(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory(prefix="sglang-collective-") as folder:
        mp.spawn(_rank, args=(ranks, backend, str(Path(folder) / "rendezvous")), nprocs=ranks)


def _rank(rank: int, ranks: int, backend: str, rendezvous: str) -> None:
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, init_method=f"file://{rendezvous}", rank=rank, world_size=ranks)
    values = torch.full((_NUMBERS,), float(rank + 1), device=device)
    dist.all_reduce(values)
    expected = ranks * (ranks + 1) / 2
    if not bool((values == expected).all()):
        raise RuntimeError(f"rank {rank}: the sum over {ranks} ranks is {values[0].item()} and not {expected}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
