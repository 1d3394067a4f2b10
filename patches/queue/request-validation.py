"""Description: Answer bad requests with HTTP 400 instead of ending the server
  Token ids outside the vocabulary, empty prompts, embeddings of another width or sent as overrides, logit processors
  that cannot be read, stop ids, top_k and log-probability fields outside their ranges pass upstream's checks and are
  index errors, overflows or failed assertions in the model process. Lists of the wrong length, session fields, stop
  patterns, template arguments, grammars that nothing matches, ids to detokenize and names of parsers are HTTP 500;
  images for a text model are dropped in silence.
Origin: vendor
Forwarded: no, to be reported
Touches: sglang/srt/managers/io_struct.py :: GenerateReqInput.normalize_batch_and_arguments
Touches: sglang/srt/managers/tokenizer_manager.py :: TokenizerManager._validate_one_request
Touches: sglang/srt/managers/tokenizer_manager.py :: TokenizerManager._create_tokenized_object
Touches: sglang/srt/sampling/sampling_params.py :: SamplingParams.verify
Touches: sglang/srt/sampling/sampling_params.py :: get_max_seq_length
Touches: sglang/srt/constrained/base_grammar_backend.py :: BaseGrammarBackend._init_value_dispatch
Touches: sglang/srt/entrypoints/openai/serving_chat.py :: OpenAIServingChat._validate_request
Touches: sglang/srt/entrypoints/openai/serving_tokenize.py :: OpenAIServingDetokenize._handle_non_streaming_request
Touches: sglang/srt/entrypoints/http_server.py :: parse_function_call_request
Touches: sglang/srt/entrypoints/http_server.py :: separate_reasoning_request
Applies-To: ==0.5.23
Remove-When: upstream answers each request of test/e2e/test_bad_requests.py with 400
Last-Update: 2026-11-30
"""

from patches.transforms import Decorate, Insert, Replace, after, before, call

_REQUESTS = "sglang.srt.managers.request_validation"
_SAMPLING = "sglang.srt.sampling.sampling_validation"
_TEXT = "sglang.srt.entrypoints.text_validation"


def _checks_parser(endpoint: str, field: str, name: str, parser: str, known: str) -> Insert:
    return Insert(
        "sglang/srt/entrypoints/http_server.py",
        endpoint,
        f"check_parser_name({field!r}, {name}, {known})",
        module=_TEXT,
        name="check_parser_name",
        # Not at the start: some models bring parsers of their own, which upstream looks for first.
        where=before(call(parser)),
    )


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
    Insert(
        "sglang/srt/entrypoints/openai/serving_tokenize.py",
        "OpenAIServingDetokenize._handle_non_streaming_request",
        "manager = self.tokenizer_manager\n"
        "if error := token_ids_error(request.tokens, manager.model_config.vocab_size, len(manager.tokenizer)):\n"
        "    return self.create_error_response(error)",
        module=_TEXT,
        name="token_ids_error",
    ),
    _checks_parser(
        "parse_function_call_request",
        "tool_call_parser",
        "obj.tool_call_parser",
        "FunctionCallParser",
        "FunctionCallParser.ToolCallParserEnum",
    ),
    _checks_parser(
        "separate_reasoning_request",
        "reasoning_parser",
        "obj.reasoning_parser.lower()",
        "ReasoningParser",
        "ReasoningParser.DetectorMap",
    ),
)
