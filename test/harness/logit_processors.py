"""Custom logit processors for tests; a server under test imports them from here, by name."""

from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor


class ForbidRepeats(CustomLogitProcessor):
    """Forbids what the request has emitted so far; as strict as a processor can be about seeing every token."""

    def __call__(self, logits, custom_param_list):
        for row, params in zip(logits, custom_param_list, strict=True):
            row[list(params["__req__"].output_ids)] = float("-inf")
        return logits


class FailsAt(CustomLogitProcessor):
    """Raises once a request has emitted ``custom_params["tokens"]``, and for a request without them at once."""

    def __call__(self, logits, custom_param_list):
        for params in custom_param_list:
            if len(params["__req__"].output_ids) >= params["tokens"]:
                raise ArithmeticError("as it was told")
        return logits


class ReturnsOneRow(CustomLogitProcessor):
    """Forgets that it works on a batch."""

    def __call__(self, logits, custom_param_list):
        return logits[0]
