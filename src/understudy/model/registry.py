"""The kinds of model a release can hold, by the name it stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from understudy.model.protocol import Model

_CLASSES = {
    "product": "product.ProductModel",
    "graphical": "graphical.GraphicalModel",
    "gum": "gum.GumModel",
    "relaxed": "relaxed.RelaxedModel",
    "rows": "weighted.WeightedRows",
}


class _Models(Mapping[str, type[Model]]):
    """The classes of models by kind, each loaded at its first use: opening a release needs one of them."""

    def __getitem__(self, kind: str) -> type[Model]:
        module, _, name = _CLASSES[kind].partition(".")
        model: type[Model] = getattr(import_module(f"understudy.model.{module}"), name)
        return model

    def __contains__(self, kind: object) -> bool:
        return kind in _CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


MODELS: Mapping[str, type[Model]] = _Models()
