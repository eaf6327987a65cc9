"""The kinds of model a release can hold, by the name it stores."""

from __future__ import annotations

from understudy.model.graphical import GraphicalModel
from understudy.model.gum import GumModel
from understudy.model.product import ProductModel
from understudy.model.protocol import Model
from understudy.model.relaxed import RelaxedModel
from understudy.model.weighted import WeightedRows

MODELS: dict[str, type[Model]] = {
    model.kind: model for model in (ProductModel, GraphicalModel, GumModel, RelaxedModel, WeightedRows)
}
