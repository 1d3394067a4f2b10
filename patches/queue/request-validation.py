"""Description: Answer bad requests with HTTP 400 instead of ending the server
  Token ids outside the vocabulary, empty prompts, embeddings of another width or sent as overrides, logit processors
  that cannot be read, stop ids, top_k and log-probability fields outside their ranges pass upstream's checks and are
  index errors, overflows or failed assertions in the model process. Lists of the wrong length, session fields, stop
  patterns, template arguments and grammars that nothing matches are HTTP 500.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/managers/io_struct.py :: GenerateReqInput.normalize_batch_and_arguments
Touches: sglang/srt/managers/tokenizer_manager.py :: TokenizerManager._validate_one_request
Touches: sglang/srt/managers/tokenizer_manager.py :: TokenizerManager._create_tokenized_object
Touches: sglang/srt/sampling/sampling_params.py :: SamplingParams.verify
Touches: sglang/srt/sampling/sampling_params.py :: get_max_seq_length
Touches: sglang/srt/constrained/base_grammar_backend.py :: BaseGrammarBackend._init_value_dispatch
Touches: sglang/srt/entrypoints/openai/serving_chat.py :: OpenAIServingChat._validate_request
Applies-To: ==0.5.23
Remove-When: upstream answers each request of test/e2e/test_bad_requests.py with 400
Last-Update: 2026-11-30
"""

from patches.transforms import Decorate, Insert, Replace, after, before, call

_REQUESTS = "sglang.srt.managers.request_validation"
_SAMPLING = "sglang.srt.sampling.sampling_validation"

EDITS = (
    Insert(
        "sglang/srt/managers/io_struct.py",
        "GenerateReqInput.normalize_batch_and_arguments",
        "check_embeddings_given(self)",
        module=_REQUESTS,
        name="check_embeddings_given",
        where=before(call("self._determine_batch_size")),
    ),
    Insert(
        "sglang/srt/managers/io_struct.py",
        "GenerateReqInput.normalize_batch_and_arguments",
        "check_batch_shape(self)",
        module=_REQUESTS,
        name="check_batch_shape",
        where=after(call("self._determine_batch_size")),
    ),
    Insert(
        "sglang/srt/managers/tokenizer_manager.py",
        "TokenizerManager._validate_one_request",
        "check_generate_request(obj, input_ids, self.model_config)",
        module=_REQUESTS,
        name="check_generate_request",
        # Behind upstream's checks: a logit processor is code, read only where the server allows it.
        where="end",
    ),
    Replace(
        "sglang/srt/managers/tokenizer_manager.py",
        "TokenizerManager._create_tokenized_object",
        call("SessionParams"),
        "session_parameters(obj.session_params)",
        module=_REQUESTS,
        name="session_parameters",
    ),
    Insert(
        "sglang/srt/sampling/sampling_params.py",
        "SamplingParams.verify",
        "check_sampling_values(self, vocab_size)",
        module=_SAMPLING,
        name="check_sampling_values",
        where="end",
    ),
    Decorate("sglang/srt/sampling/sampling_params.py", "get_max_seq_length", "report_bad_stop_regex", module=_SAMPLING),
    Decorate(
        "sglang/srt/constrained/base_grammar_backend.py",
        "BaseGrammarBackend._init_value_dispatch",
        "refuse_dead_grammar",
        module="sglang.srt.constrained.dead_grammar",
    ),
    Insert(
        "sglang/srt/entrypoints/openai/serving_chat.py",
        "OpenAIServingChat._validate_request",
        "if error := template_arguments_error(request.chat_template_kwargs):\n    return error",
        module=_REQUESTS,
        name="template_arguments_error",
    ),
)
