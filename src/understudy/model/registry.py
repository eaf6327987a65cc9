"""The kinds of model a release can hold, by the name it stores."""

from __future__ import annotations

from understudy.model.gum import GumModel
from understudy.model.product import ProductModel
from understudy.model.protocol import Model

MODELS: dict[str, type[Model]] = {ProductModel.kind: ProductModel, GumModel.kind: GumModel}
