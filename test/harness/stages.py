"""Pipeline stages as objects in one process: each model part is built as its rank would build it."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from sglang.srt.distributed import parallel_state
from sglang.srt.runtime_context import SpawnRanks, get_parallel, publish, reset_context
from sglang.srt.server_args import ServerArgs


@pytest.fixture(scope="module")
def one_process_groups() -> Iterator[None]:
    """Process groups of one rank, which layers ask for even when nothing is split."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    reset_context()
    publish(ServerArgs(model_path="dummy", device="cpu"), role="test", ranks=SpawnRanks(world_rank=0))
    parallel_state.init_distributed_environment(
        world_size=1, rank=0, local_rank=0, distributed_init_method=address, backend="gloo"
    )
    parallel_state.initialize_model_parallel(backend="gloo")
    yield
    parallel_state.destroy_model_parallel()
    parallel_state.destroy_distributed_environment()
    reset_context()


@contextmanager
def pipeline_stage(rank: int, stages: int) -> Iterator[SimpleNamespace]:
    """Inside, this process is pipeline rank ``rank`` of ``stages``; yields the group that models will read."""
    group = SimpleNamespace(
        world_size=stages, rank_in_group=rank, is_first_rank=rank == 0, is_last_rank=rank == stages - 1
    )
    with get_parallel().override(pp_group=group, pp_size=stages, pp_rank=rank):
        yield group
