"""Plain data with arrays inside, as JSON plus named arrays; and measurements in that form."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ReleaseError
from understudy.measurement import Measurement, Query, Scaling, SparseQuery

_REFERENCE = "@array"


def pack(value: Any, arrays: MutableMapping[str, NDArray[Any]], name: str) -> Any:
    """The value with every array moved to `arrays` under a name that starts with `name`.

    >>> arrays = {}
    >>> pack({"a": [np.arange(2), 3]}, arrays, "x"), list(arrays)
    ({'a': [{'@array': 'x/a/0'}, 3]}, ['x/a/0'])
    """
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {_REFERENCE: name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): pack(item, arrays, f"{name}/{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [pack(item, arrays, f"{name}/{i}") for i, item in enumerate(value)]
    return value


def unpack(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """What `pack` was given, tuples as lists.

    Raises:
        ReleaseError: when an array is missing.
    """
    if isinstance(value, dict):
        if set(value) == {_REFERENCE}:
            if value[_REFERENCE] not in arrays:
                raise ReleaseError("an array that the release mentions is missing; ask for a fresh copy")
            return arrays[value[_REFERENCE]]
        return {key: unpack(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [unpack(item, arrays) for item in value]
    return value


def measurement_data(measurement: Measurement) -> dict[str, Any]:
    """A measurement as plain data with arrays."""
    return {
        "clique": list(measurement.clique),
        "values": measurement.values,
        "sigma": measurement.sigma,
        "noise": measurement.noise,
        "query": None if measurement.query is None else _query_data(measurement.query),
    }


def measurement_from(data: Mapping[str, Any]) -> Measurement:
    """What `measurement_data` wrote."""
    query = None if data["query"] is None else _query_from(data["query"])
    return Measurement(tuple(data["clique"]), data["values"], data["sigma"], query, data["noise"])


def _query_data(query: Query) -> dict[str, Any]:
    if isinstance(query, Scaling):
        return {"factors": query.factors}
    entries = query if isinstance(query, SparseQuery) else SparseQuery.of(query)
    return {"shape": list(entries.shape), "rows": entries.rows, "columns": entries.columns, "values": entries.values}


def _query_from(data: Mapping[str, Any]) -> Query:
    if data.get("factors") is not None:
        return Scaling(_numbers(data["factors"]))
    rows, columns, values = data["rows"], data["columns"], _numbers(data["values"])
    shape = tuple(data["shape"])
    for places, most in zip((rows, columns), shape, strict=True):
        if places.shape != values.shape or places.dtype.kind not in "iu" or not ((places >= 0) & (places < most)).all():
            raise ValueError("entries outside of the query")
    return SparseQuery(rows, columns, values, shape)


def _numbers(array: NDArray[Any]) -> NDArray[Any]:
    if array.ndim != 1 or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise ValueError("a query of other things than numbers")
    return array
