"""The target's word embedding on the last pipeline stage, where the draft runs that borrows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang.srt.layers.quantization.unquant import UnquantizedEmbeddingMethod
from sglang.srt.layers.vocab_parallel_embedding import VocabParallelEmbedding
from sglang.srt.runtime_context import get_parallel
from sglang.srt.speculative.draft_tree.pipeline_capture import decoder_of
from sglang.srt.utils.launch_error import LaunchError

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler


def share_embedding(scheduler: Scheduler) -> None:
    """Send the first stage's embedding to the last, which keeps it as its own.

    Every rank of the two stages calls it once, before the draft is built. Each tensor-parallel rank gets its own shard.
    It travels between the processes and not from the checkpoint, so any load format will do.
    """
    group, model = get_parallel().pp_group, scheduler.tp_worker.model_runner.model
    if group.is_first_rank:
        embedding = model.get_input_embeddings()
        if not isinstance(getattr(embedding, "quant_method", None), UnquantizedEmbeddingMethod):
            raise LaunchError(
                f"--pp-size {group.world_size} with DFLASH: the embedding of {type(model).__name__} is a "
                f"{type(embedding).__name__} that cannot be copied to the last stage. Serve a checkpoint whose "
                "embedding is not quantized, or leave --pp-size out."
            )
        group.send(embedding.weight.detach(), dst=group.world_size - 1)
    elif group.is_last_rank:
        decoder = decoder_of(model)
        if not isinstance(decoder.embed_tokens, VocabParallelEmbedding):
            config, runner = decoder.config, scheduler.tp_worker.model_runner
            embedding = VocabParallelEmbedding(config.vocab_size, config.hidden_size, params_dtype=runner.dtype)
            decoder.embed_tokens = embedding.to(scheduler.tp_worker.device)
        weight = decoder.embed_tokens.weight
        weight.data.copy_(group.recv(weight.shape, weight.dtype, src=0))
