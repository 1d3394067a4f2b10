"""Description: Give the last pipeline stage of tied models an output head, and load it
  With tie_word_embeddings Llama takes the embedding for its head, which the last of several stages does not have: the
  first request ends the server ('PPMissingLayer' object has no attribute 'quant_method'). The other families build a
  head there and load it only if the checkpoint of the tied model holds one under its own name, or not at all.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/models/llama.py :: LlamaForCausalLM.__init__
Touches: sglang/srt/models/llama.py :: LlamaForCausalLM.load_weights
Touches: sglang/srt/models/deepseek_v2.py :: DeepseekV2ForCausalLM.load_weights
Touches: sglang/srt/models/glm5_next.py :: Glm5NextForConditionalGeneration.load_weights
Touches: sglang/srt/models/mimo_v2.py :: MiMoV2ForCausalLM.load_weights
Touches: sglang/srt/models/nanbeige.py :: NanbeigeForCausalLM.load_weights
Touches: sglang/srt/models/nemotron_h.py :: NemotronHForCausalLM.load_weights
Applies-To: ==0.5.23
Remove-When: upstream's tied models have a loaded head on their last stage
Last-Update: 2026-11-30
"""

from patches.transforms import Decorate, Replace, expression

_TIED_HEAD = "sglang.srt.layers.tied_head"


def _loads_head(file: str, model: str) -> Decorate:
    return Decorate(f"sglang/srt/models/{file}.py", f"{model}.load_weights", "load_tied_head", module=_TIED_HEAD)


EDITS = (
    Replace(
        "sglang/srt/models/llama.py",
        "LlamaForCausalLM.__init__",
        expression("self.model.embed_tokens"),
        "tied_output_head({match}, config, quant_config, prefix)",
        module=_TIED_HEAD,
        name="tied_output_head",
    ),
    _loads_head("llama", "LlamaForCausalLM"),
    _loads_head("deepseek_v2", "DeepseekV2ForCausalLM"),
    _loads_head("glm5_next", "Glm5NextForConditionalGeneration"),
    _loads_head("mimo_v2", "MiMoV2ForCausalLM"),
    _loads_head("nanbeige", "NanbeigeForCausalLM"),
    _loads_head("nemotron_h", "NemotronHForCausalLM"),
)
