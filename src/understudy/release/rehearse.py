"""A rehearsal of the schema's rules: rows of a model that knows nothing else."""

from __future__ import annotations

import numpy as np

from understudy.domain import Clique
from understudy.errors import InputError
from understudy.model.graphical import GraphicalModel
from understudy.schema import Schema
from understudy.schema.rules.honour import breaking

_ROWS = 2000


def rows_possible(schema: Schema, seed: int = 0) -> bool:
    """Whether rows that obey the rules can be drawn, codes and values.

    **Privacy.** Reads the schema alone.
    """
    domain = schema.domain
    names: Clique = domain.canonical({column for rule in domain.rules for column in rule.clique})
    rng = np.random.default_rng(seed)
    try:
        drawn = GraphicalModel(domain.project(names), {}, total=1.0).sample(_ROWS, rng)
    except InputError:
        return False
    rest = {column: np.zeros(_ROWS, np.uint8) for column in domain if column not in names}
    codes = {column: drawn.get(column, rest.get(column)) for column in domain}
    whole = {column: array for column, array in codes.items() if array is not None}
    return not bool(breaking(schema, whole, schema.decode(whole, rng)).all())
