"""The sweep's configuration file: every key, its unit and its default; unknown keys are errors."""

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from benchmark.command import BenchmarkError

BUNDLED = "bundled"
SHAPE = "shape:"
Flag = str | int | float | bool | list[str | int | float]
Positive = Annotated[int, Field(ge=1)]


class SweepError(BenchmarkError):
    """The sweep cannot go on."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Workload(_Strict):
    """Requests of one kind; all levels of concurrency send the same ones."""

    name: str
    prompts: str
    """``chat`` (40 prompts, eight categories), ``humaneval``, ``random`` (random token ids), or a file: JSON lines of
    ``{"prompt", "category"}`` or SPEED-Bench's ``{"turns", "category"}``, or conversations in the ShareGPT shape."""
    requests: Positive = 40
    """Requests per cell at least; prompts are repeated in order where there are fewer."""
    requests_per_slot: Positive = 1
    """Requests per concurrent slot at least, so that a high level stays busy."""
    output_tokens: Positive = 256
    """Most new tokens of a request."""
    input_tokens: Positive = 512
    """Tokens of a prompt, for ``random`` alone."""
    ignore_eos: bool = False
    """Go on behind the end of the answer. Answers then tend to loop, which drafts guess easily."""
    chat_template_kwargs: dict[str, Any] = {}
    """For the target's chat template, such as ``{enable_thinking: false}``."""
    temperature: float = Field(0.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = -1
    min_p: float = Field(0.0, ge=0, le=1)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def requests_at(self, concurrency: int) -> int:
        """Number of requests at one level."""
        return max(self.requests, self.requests_per_slot * concurrency)

    def sampling_params(self) -> dict[str, Any]:
        """Every sampling field as sent: none is left to a default of the server or of the model's files."""
        fields = {"temperature", "top_p", "top_k", "min_p", "ignore_eos"}
        return {"max_new_tokens": self.output_tokens, **self.model_dump(include=fields)}


class Configuration(_Strict):
    """One way to serve the model."""

    name: str
    flags: dict[str, Flag] = {}
    """Flags of the server without their dashes: ``true`` gives the bare flag, ``false`` leaves it out."""
    env: dict[str, str] = {}
    python: str | None = None
    """Interpreter whose ``sglang`` is served, such as that of an environment with the unpatched release. Environment
    variables are expanded."""
    url: str | None = None
    """A running server to attach to; nothing is started, and ``flags``, ``env`` and ``python`` stay empty."""
    force_accept_length: float | None = Field(None, ge=1)
    """Accept length that the server is told to simulate: speed without regard to what is accepted, text is noise."""

    baseline: str | None = None
    """Name of the configuration that this one's speed is compared with; by default the sweep's reference."""

    @model_validator(mode="after")
    def _attached_is_as_it_is(self) -> "Configuration":
        if self.url and (self.flags or self.env or self.python or self.force_accept_length):
            raise ValueError("url attaches to a running server: leave out flags, env, python and force_accept_length")
        return self

    @property
    def tree_budget(self) -> int:
        """Draft nodes of every round; 0 for chains, and for trees whose width is chosen per round."""
        return 0 if self.chooses_width else int(self.flags.get("speculative-dflash-tree-budget", 0))

    @property
    def chooses_width(self) -> bool:
        """Whether the width is chosen per round, with rounds of plain decoding among them."""
        return self.flags.get("speculative-dflash-tree-budget") == "auto"

    @property
    def speculates(self) -> bool:
        return "speculative-algorithm" in self.flags


class SweepConfig(_Strict):
    """A whole sweep."""

    name: str
    model: str
    """Folder or hub name of the target, ``bundled`` for the pair that comes with the fork, or ``shape:NAME`` or
    ``shape:NAME:LAYERS`` for random weights of a shape that ``benchmark.round`` knows, with a draft like it: for
    ``random`` prompts and forced acceptance."""
    draft: str | None = None
    """Draft of the configurations that speculate and name none; ``bundled`` as above."""
    seed: int = 1
    flags: dict[str, Flag] = {}
    """Flags of every configuration; its own come after and win."""
    env: dict[str, str] = {}
    port: int | None = None
    """Port of the servers; by default a free one each time."""
    together: bool = False
    """Start all servers at once and keep them to the end, where they fit side by side: a sweep of many configurations
    then waits for one start. Servers without a request sleep, and rows say nothing of memory. Bound what each server
    takes, as with the flag ``max-total-tokens``."""
    startup_seconds: Positive = 1800
    cell_seconds: Positive = 3600
    """A cell that takes longer is ended, with its server, and becomes a failed row."""
    workloads: list[Workload] = Field(min_length=1)
    concurrency: list[Positive] = Field(min_length=1)
    repeats: Positive = 1
    reference: str | None = None
    """Name of the configuration with plain decoding, which greedy outputs are compared with."""
    tie_tolerance: float = Field(0.3, ge=0)
    """In nats. Where plain decoding's best token leads another by no more, rounding may choose the other: bfloat16
    logits between 16 and 32 lie 0.125 apart, and the default is two such steps and a little."""
    configurations: list[Configuration] = Field(min_length=1)

    @property
    def has_shape(self) -> bool:
        """Whether the target is a shape with random weights."""
        return self.model.startswith(SHAPE)

    @field_validator("workloads", "configurations")
    @classmethod
    def _names_differ(cls, items: list) -> list:
        names = [item.name for item in items]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"names must differ, {', '.join(twice)} stands there twice")
        return items

    @model_validator(mode="after")
    def _references_resolve(self) -> "SweepConfig":
        names = [configuration.name for configuration in self.configurations]
        if self.reference is not None and self.reference not in names:
            raise ValueError(f"reference {self.reference} is no configuration; there are {', '.join(names)}")
        if self.together and self.port is not None:
            raise ValueError("together starts several servers and port is one: leave out either")
        for configuration in self.configurations:
            if configuration.baseline not in (None, *names):
                raise ValueError(f"baseline {configuration.baseline} of {configuration.name} is no configuration")
            own = "speculative-draft-model-path" in {**self.flags, **configuration.flags}
            if configuration.speculates and self.draft is None and not (own or self.has_shape):
                raise ValueError(f"configuration {configuration.name} speculates: give the draft with the key draft")
        return self

    def in_order(self) -> list[Configuration]:
        """The configurations, the reference first: the others are compared with it."""
        return sorted(self.configurations, key=lambda configuration: configuration.name != self.reference)


def load_config(path: Path) -> SweepConfig:
    """Returns the checked configuration. Raises SweepError, in one line, for a file that is absent or wrong."""
    try:
        content = yaml.safe_load(path.read_text())
        return SweepConfig.model_validate(content)
    except OSError as error:
        raise SweepError(f"{path} cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise SweepError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise SweepError(f"{path}: {'; '.join(_say(problem) for problem in error.errors())}") from None


def _say(problem: Any) -> str:
    place = ".".join(map(str, problem["loc"])) or "the file"
    if problem["type"] == "extra_forbidden":
        return f"{place}: there is no such key"
    return f"{place}: {problem['msg'].removeprefix('Value error, ')}"
