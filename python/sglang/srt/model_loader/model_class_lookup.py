"""Find the class that serves an architecture without importing every model.

Importing upstream's registry imports all of its model modules. The launching process needs one or two of them, and it
needs them before the first weight is read.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import sglang.srt.models
from sglang.srt.environ import envs

_REGISTRY_MODULE = "sglang.srt.models.registry"


def model_class(architecture: str) -> type | None:
    """The class registered for ``architecture``, or None if there is none or its module cannot be imported here.

    A module that fails to import is the model process's error to report: it has the same environment and knows more.
    """
    if _REGISTRY_MODULE in sys.modules or envs.SGLANG_EXTERNAL_MODEL_PACKAGE.get():
        return registered_classes().get(architecture)
    for module_name in _modules_defining(architecture):
        try:
            module = importlib.import_module(module_name)
        except Exception:
            continue
        for entry in _entry_classes(module):
            if entry.__name__ == architecture:
                return entry
    return registered_classes().get(architecture)


def registered_classes() -> dict[str, type]:
    """Every architecture that this installation can load, by name. Imports all model modules."""
    from sglang.srt.models.registry import ModelRegistry

    return {name: ModelRegistry.models[name] for name in ModelRegistry.get_supported_archs()}


def _modules_defining(class_name: str) -> list[str]:
    definition = re.compile(rf"^class {re.escape(class_name)}\b", re.MULTILINE)
    package = sglang.srt.models
    return [
        f"{package.__name__}.{path.stem}"
        for folder in package.__path__
        for path in sorted(Path(folder).glob("*.py"))
        if definition.search(path.read_text(encoding="utf-8"))
    ]


def _entry_classes(module) -> list[type]:
    entry = getattr(module, "EntryClass", [])
    return list(entry) if isinstance(entry, (list, tuple)) else [entry]
