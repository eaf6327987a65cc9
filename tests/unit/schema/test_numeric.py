"""Heaped amounts: the census transforms of the MST paper (Algorithms 3, 9 and 10), and any other divisors."""

import numpy as np
import pyarrow as pa
import pytest

from understudy.errors import SchemaError
from understudy.schema import Schema
from understudy.schema.numeric import Heaps

PAPER = [100, 20, 50, 25, 10, 5, 2, 1]


def wages(maximum=5000, heaped=PAPER, required=True, **ours):
    field = {"name": "wage", "type": "integer", "constraints": {"minimum": 0, "maximum": maximum, "required": required}}
    ours |= {"heaped": heaped, "on_unknown": "drop_row"}
    return Schema.from_dict({"fields": [field | {"understudy": ours}], "understudy": {"privacy_unit": "row"}})


def algorithm_3(wage):
    """INCWAGE_A and INCWAGE_B, by the letter of the paper's "else if"."""
    return wage // 100, next(index for index, divisor in enumerate(PAPER) if wage % divisor == 0)


def algorithm_10(k):
    """The digits that class k may draw."""
    left, drawn = set(range(100)), set()
    for divisor in PAPER[: k + 1]:
        drawn = {digit for digit in left if digit % divisor == 0}
        left -= drawn
    return drawn


def test_the_domain_is_that_of_the_paper():
    assert dict(wages(missing={"9999998": "not_applicable"}).domain) == {"wage": 52, "wage.round": 8}


def test_encoding_is_algorithm_3():
    amounts = np.arange(5001)
    codes = wages().encode(pa.table({"wage": amounts})).codes
    assert [(int(a), int(b)) for a, b in zip(codes["wage"], codes["wage.round"], strict=True)] == [
        algorithm_3(int(amount)) for amount in amounts
    ]


@pytest.mark.parametrize("k", range(8))
def test_decoding_is_algorithms_9_and_10(k):
    rows = 4000
    codes = {"wage": np.full(rows, 12), "wage.round": np.full(rows, k)}
    drawn = np.array(wages().decode(codes, np.random.default_rng(k))["wage"])
    assert set(drawn - 1200) == algorithm_10(k)
    counts = np.bincount(drawn - 1200)
    counts = counts[counts > 0] / (rows / len(algorithm_10(k)))
    assert np.abs(counts - 1).max() < 0.6


def test_missing_wages_and_amounts_beyond_the_bounds():
    schema = wages(missing={"9999998": "not_applicable"})
    codes = schema.encode(pa.table({"wage": [9_999_998, 7777, 5000, 49]})).codes
    assert codes["wage"].tolist() == [51, 50, 50, 0]
    assert codes["wage.round"].tolist() == [0, 0, 0, 7]
    back = schema.decode({"wage": np.array([51]), "wage.round": np.array([3])}, np.random.default_rng(0))
    assert back["wage"].to_pylist() == [9_999_998]


def test_prices_with_decimals():
    field = {"name": "p", "type": "number", "constraints": {"minimum": 0, "maximum": 9.99}}
    ours = {"decimals": 2, "heaped": [1, 0.5, 0.1, 0.05]}
    schema = Schema.from_dict({"fields": [field | {"understudy": ours}], "understudy": {"privacy_unit": "row"}})
    codes = schema.encode(pa.table({"p": [3.0, 3.5, 3.2, 3.15, 3.99]})).codes
    assert codes["p"].tolist() == [3] * 5
    assert codes["p.round"].tolist() == [0, 1, 2, 3, 4]
    back = schema.decode({part: codes[part] for part in codes}, np.random.default_rng(0))["p"].to_pylist()
    assert back[:2] == [3.0, 3.5]
    assert schema.encode(pa.table({"p": back})).codes["p.round"].tolist() == [0, 1, 2, 3, 4]


def test_wider_coarse_bins_stay_in_their_bin_and_class():
    schema = wages(maximum=999, bins={"edges": [0, 100, 500, 999]})
    rng = np.random.default_rng(0)
    codes = {"wage": rng.integers(0, 3, 3000), "wage.round": rng.integers(0, 8, 3000)}
    again = schema.encode(schema.decode(codes, rng)).codes
    assert (again["wage"] == codes["wage"]).all()
    assert (again["wage.round"] == codes["wage.round"]).all()


def test_spikes_of_a_heaped_column():
    schema = wages(maximum=999, spikes=[0])
    codes = schema.encode(pa.table({"wage": [0, 100, 1]})).codes
    assert codes["wage"].tolist() == [0, 2, 1]
    assert schema.decode({"wage": np.array([0]), "wage.round": np.array([5])}, np.random.default_rng(0))[
        "wage"
    ].to_pylist() == [0]


def test_a_rest_that_no_divisor_divides_has_its_own_class():
    heaps = Heaps.of([10, 5])
    assert heaps.values == [10, 5, None]
    assert heaps.encode(np.array([20, 25, 23])).tolist() == [0, 1, 2]


def test_the_column_of_classes_cannot_hide_another_column():
    field = {"name": "wage.round", "type": "boolean"}
    content = wages().to_dict()
    content["fields"].append(field)
    with pytest.raises(SchemaError, match=r"wage\.round"):
        Schema.from_dict(content)
