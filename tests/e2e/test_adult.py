"""The Adult table from its CSV, where the data folder is at hand: one-way errors are what the noise predicts."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

import understudy as us
from understudy.source import read_table

ROOT = Path(__file__).resolve().parents[2]
ADULT = ROOT.parent / "shared" / "data" / "raw" / "adult_raw.csv.gz"
SCHEMA = ROOT / "examples" / "adult" / "schema.yaml"
FALSE_ALARM = 1e-7


@pytest.mark.tables
def test_one_way_errors_of_adult_are_what_the_noise_predicts(tmp_path: Path):
    release = us.synthesize(
        ADULT, SCHEMA, epsilon=1.0, delta=1e-9, mechanism="independent", output=tmp_path / "adult.release"
    )
    schema = release.schema
    codes = schema.encode(read_table(ADULT, schema)).codes
    errors = [
        (m.values - np.bincount(codes[m.clique[0]], minlength=len(m.values))) / m.sigma for m in release.measurements
    ]
    flat = np.concatenate(errors)
    low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], len(flat))
    assert low < float(flat @ flat) < high
    assert not low < float(flat @ flat) / 1.5**2 < high  # noise of another scale would be noticed
    assert len(release.measurements) == len(schema.domain)
