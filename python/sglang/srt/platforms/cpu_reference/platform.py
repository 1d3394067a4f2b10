"""What core needs to know about a machine without an accelerator."""

from __future__ import annotations

import gc
import logging
import os

import psutil
import torch

from sglang.srt.arg_groups import choices
from sglang.srt.arg_groups.resolution_hooks import register_resolution_hook
from sglang.srt.platforms.cpu_reference import ATTENTION_BACKEND, PLATFORM_NAME
from sglang.srt.platforms.cpu_reference.backend_choice import resolve_backends
from sglang.srt.platforms.device_mixin import DeviceCapability, PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform

logger = logging.getLogger(__name__)

SPECULATIVE_ALGORITHMS = frozenset({"DFLASH"})
DEFAULT_MEM_FRACTION = 0.5
DEFAULT_MAX_TOTAL_TOKENS = 32768
DEFAULT_MAX_RUNNING_REQUESTS = 32
_THREAD_BINDING = "SGLANG_CPU_OMP_THREADS_BIND"


def _stop_idle_threads_from_spinning() -> None:
    """Let OpenMP threads sleep soon after a kernel; the model processes inherit the setting.

    By default GNU's OpenMP spins at every barrier for longer than a kernel lasts. One other busy process on the same
    cores then makes each barrier wait for a time slice: two processes on two cores took 416 ms for a chain of matrix
    products that takes 12 ms with this setting alone and 23 ms with it in both (AMD EPYC, 2 cores, torch 2.13, bf16).
    """
    if not any(name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")):
        os.environ["GOMP_SPINCOUNT"] = "1000"


class CpuReferencePlatform(SRTPlatform):
    """Out-of-tree platform on ``torch.device("cpu")``; every operation is plain torch.

    The enum is OOT, not CPU: upstream's in-tree CPU path imports compiled kernels at module level, while the
    out-of-tree path asks this class.
    """

    _enum = PlatformEnum.OOT
    device_name = PLATFORM_NAME
    device_type = "cpu"
    capabilities = PlatformCapabilities()  # no Triton, no graph capture, no device kernels
    verify_attention_backends = (ATTENTION_BACKEND,)  # read by the DFLASH start-up checks
    tree_attention_backends = (ATTENTION_BACKEND,)

    def __init__(self) -> None:
        # The command line is parsed against these lists, long before the backend itself is imported.
        for names in (choices.ATTENTION_BACKEND_CHOICES, choices.DRAFT_ATTENTION_BACKEND_CHOICES):
            if ATTENTION_BACKEND not in names:
                names.append(ATTENTION_BACKEND)
        # Upstream's own step for device "cpu" assumes its compiled CPU kernels; this one takes its place.
        register_resolution_hook("handle_cpu_backends")(resolve_backends)

    # --- device ---------------------------------------------------------------------------------------------

    def get_device_total_memory(self, device_id: int = 0) -> int:
        return psutil.virtual_memory().total

    def get_current_memory_usage(self, device: torch.device | None = None) -> float:
        memory = psutil.virtual_memory()
        return float(memory.total - memory.available)

    def get_available_memory(self, device_id: int = 0) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def get_device(self, device_id: int = 0) -> str:
        return self.device_type

    def set_device(self, device: torch.device) -> None:
        torch.cpu.set_device(device)

    def get_device_name(self, device_id: int = 0) -> str:
        return f"cpu ({self.cpu_arch.name.lower()})"

    def get_device_capability(self, device_id: int = 0) -> DeviceCapability | None:
        return None

    def empty_cache(self) -> None:
        gc.collect()

    def synchronize(self) -> None:
        """Nothing runs asynchronously on this device."""

    def get_torch_distributed_backend_str(self) -> str:
        return "gloo"

    # --- server defaults -----------------------------------------------------------------------------------

    def apply_server_args_defaults(self, server_args) -> None:
        """Fill the server arguments that the user left open, and switch off what a CPU cannot do.

        Overlap scheduling hides host work behind a device; here both are one processor, and the scheduler's
        lag of one round would only cost.
        """
        server_args.disable_overlap_schedule = True
        server_args.disable_cuda_graph = True
        # An idle scheduler polls without a pause, which would keep one of the user's cores busy for nothing.
        server_args.sleep_on_idle = True
        # Upstream's defaults assume a device that nobody else uses, and fill it with KV slots (zeroed, page by
        # page, at start). A CPU shares its memory and serves a few requests at a time.
        if server_args.mem_fraction_static is None:
            server_args.mem_fraction_static = DEFAULT_MEM_FRACTION
        if server_args.max_total_tokens is None:
            server_args.max_total_tokens = DEFAULT_MAX_TOTAL_TOKENS
        if server_args.max_running_requests is None:
            server_args.max_running_requests = DEFAULT_MAX_RUNNING_REQUESTS
        _stop_idle_threads_from_spinning()
        self._bind_ranks_to_cores(server_args)

    @staticmethod
    def _bind_ranks_to_cores(server_args) -> None:
        """Give each rank its share of the cores, unless the user has done so.

        Upstream's default binding wants a NUMA node per rank, which most machines this platform meets lack.
        """
        ranks = server_args.tp_size * server_args.pp_size * server_args.dp_size
        if ranks == 1 or os.environ.get(_THREAD_BINDING):
            return
        cores = sorted(os.sched_getaffinity(0))
        ranks = max(1, ranks // server_args.nnodes)  # those of this machine
        share = max(1, len(cores) // ranks)
        groups = [cores[(rank * share) % len(cores) :][:share] for rank in range(ranks)]
        os.environ[_THREAD_BINDING] = "|".join(",".join(map(str, group)) for group in groups)
        logger.info("%s=%s (%d ranks on %d cores)", _THREAD_BINDING, os.environ[_THREAD_BINDING], ranks, len(cores))

    # --- what core builds ----------------------------------------------------------------------------------

    def init_backend(self) -> None:
        from sglang.srt.platforms.cpu_reference.attention import register

        register()

    def get_default_attention_backend(self) -> str:
        return ATTENTION_BACKEND

    def get_default_speculative_draft_attention_backend(self, algorithm: str) -> str:
        return ATTENTION_BACKEND

    def supports_speculative_algorithm(self, algorithm: str) -> bool:
        return algorithm.upper() in SPECULATIVE_ALGORITHMS

    def supports_speculative_draft_attention_backend(self, algorithm: str, backend: str) -> bool:
        return self.supports_speculative_algorithm(algorithm) and backend == ATTENTION_BACKEND

    def get_kv_pool_cls(self, *, kind: str) -> type | None:
        from sglang.srt.platforms.cpu_reference.kv_pool import POOLS

        return POOLS.get(kind)

    def get_speculative_cache_locs_fn(self):
        from sglang.srt.platforms.cpu_reference.cache_slots import window_slots

        return window_slots

    def get_compile_backend(self, mode: str | None = None) -> str:
        return "eager"

    def is_pin_memory_available(self, device=None) -> bool:
        return False

    def post_load_model(self, model: torch.nn.Module) -> None:
        """Steer model code that keys on dtype alone away from fused Triton kernels."""
        for module in model.modules():
            if getattr(module, "use_table_qk_norm_rope", False):
                module.use_table_qk_norm_rope = False
