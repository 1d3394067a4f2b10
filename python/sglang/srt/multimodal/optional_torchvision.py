"""torchvision's transforms, imported when an image is first processed rather than when a text model starts.

Two of upstream's start-up modules import torchvision unconditionally, although text models never call it.
"""

from __future__ import annotations

import importlib


class _Deferred:
    """Stands for ``module.name`` (or the module itself) and imports it at the first attribute access."""

    def __init__(self, module: str, name: str | None = None):
        self._module = module
        self._name = name

    def __getattr__(self, attribute: str):
        try:
            target = importlib.import_module(self._module)
        except ImportError as error:
            raise ImportError(
                f"This model processes images with {self._module}, which could not be imported ({error}). "
                "Install the torchvision release that matches the installed torch: pip install torchvision"
            ) from error
        if self._name is not None:
            target = getattr(target, self._name)
        return getattr(target, attribute)


transforms = _Deferred("torchvision.transforms")
functional = _Deferred("torchvision.transforms.functional")
InterpolationMode = _Deferred("torchvision.transforms", "InterpolationMode")
