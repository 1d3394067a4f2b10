"""What a sweep consists of: cells, each measured once and found again by its key and the digest of its setup."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from .config import Configuration, SweepConfig, Workload


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    configuration: Configuration
    workload: Workload
    concurrency: int
    repeat: int
    digest: str

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.configuration.name, self.workload.name, self.concurrency, self.repeat

    @property
    def slug(self) -> str:
        """The key as the name of a file."""
        text = "-".join(map(str, self.key))
        return "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in text)


def cells_of(config: SweepConfig, configuration: Configuration) -> Iterator[Cell]:
    """Yields the cells of one configuration, repeats innermost."""
    for workload in config.workloads:
        setup = cell_setup(config, configuration, workload)
        digest = digest_of(setup)
        for concurrency in config.concurrency:
            for repeat in range(config.repeats):
                yield Cell(configuration, workload, concurrency, repeat, digest)


def cell_setup(config: SweepConfig, configuration: Configuration, workload: Workload) -> dict:
    """Everything that changes what a cell measures, its level and repeat aside."""
    own = configuration.model_dump(exclude={"name", "flags", "env", "baseline"})
    return {
        "model": config.model,
        "draft": config.draft if configuration.speculates else None,
        "seed": config.seed,
        "flags": {**config.flags, **configuration.flags},
        "env": {**config.env, **configuration.env},
        **own,
        "workload": workload.model_dump(exclude={"name"}),
    }


def digest_of(setup: dict) -> str:
    """Returns 16 hexadecimal digits, the same for equal setups on every machine."""
    return hashlib.sha256(json.dumps(setup, sort_keys=True).encode()).hexdigest()[:16]
