"""Every registered mechanism, and one of another package, passes the contract; and the contract refuses bad ones."""

from __future__ import annotations

import sys
import types
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from importlib import metadata
from operator import attrgetter
from typing import ClassVar

import numpy as np
import pytest

import understudy as us
from understudy.domain import Domain
from understudy.errors import SettingError
from understudy.mechanism import Fit, Footprint
from understudy.mechanism.independent import Independent
from understudy.mechanism.nist_mst import NistMST
from understudy.mechanism.registry import MECHANISMS, make_mechanism, mechanism_classes
from understudy.model.product import ProductModel, fit_product
from understudy.schema import Recoding
from understudy.testing import contract
from understudy.testing.contract import CHECKS, check_mechanism

BY_NAME = {check.__name__: check for check in CHECKS}


def instance(name, check):
    """A mechanism with settings under which it can run on the contract's tables."""
    if name == "nist-mst":  # its marginals come from a public table, or are given
        return NistMST(cliques=() if check == "check_extremes" else (("a", "b"), ("b", "c")))
    if name in ("dp-wgan", "gem", "rap"):
        return MECHANISMS[name](rounds=1)
    return MECHANISMS[name]()


@pytest.mark.parametrize("check", BY_NAME)
@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_ours_pass_the_contract(name, check):
    BY_NAME[check](instance(name, check))


GUM = sorted(name for name, kind in MECHANISMS.items() if "generator" in {field.name for field in fields(kind)})


def test_every_mechanism_of_tables_can_have_its_rows_made_by_gradual_updates():
    assert set(GUM) >= {"aim", "adaptive", "gaussian", "mst", "mwem", "nist-mst", "privbayes", "privsyn"}


@pytest.mark.parametrize("check", BY_NAME)
@pytest.mark.parametrize("name", GUM)
def test_ours_pass_the_contract_with_the_other_generator(name, check):
    usual = instance(name, check)
    for other in {"pgm": ["gum"], "gum": ["pgm"], "network": ["pgm", "gum"]}[usual.generator]:
        BY_NAME[check](replace(usual, generator=other))


@pytest.mark.parametrize("check", BY_NAME)
@pytest.mark.parametrize("name", ["gem", "privmrf", "rap"])
def test_paper_modes_that_ask_other_questions_pass_the_contract(name, check, monkeypatch):
    """Their training is short here: it asks nothing."""
    monkeypatch.setattr("understudy.model.relaxed._CELL_STEPS", 50)
    monkeypatch.setattr("understudy.model.network._PAPER_STEPS", 2)
    monkeypatch.setattr("understudy.model.network._PAPER_HIDDEN", 16)
    short = {} if name == "privmrf" else {"rounds": 1, "batch": 1}
    BY_NAME[check](MECHANISMS[name].as_published(**short))


PUBLISHED = sorted(name for name, kind in MECHANISMS.items() if kind.paper_settings() and name not in ("gem", "rap"))


@pytest.mark.parametrize("check", ["check_share", "check_extremes", "check_rules"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_paper_modes_keep_to_their_share_take_small_tables_and_obey_rules(name, check):
    given = {"cliques": instance(name, check).cliques} if name == "nist-mst" else {}
    BY_NAME[check](MECHANISMS[name].as_published(**given | ({"rounds": 1} if name == "dp-wgan" else {})))


@pytest.mark.parametrize("check", BY_NAME)
def test_relaxed_projection_passes_the_contract_as_the_generator_of_another_mechanism(check):
    BY_NAME[check](MECHANISMS["mst"](generator="rap"))


@pytest.mark.parametrize("name", GUM)
def test_the_generator_decides_about_the_model_also_where_a_run_is_finished(name):
    table = contract.PrivateTable(contract.CodedSource(contract.SIZES, contract._rows(60)), us.Budget.of(rho=7.0))
    for generator, kind in (("pgm", "graphical"), ("gum", "gum"), ("rap", "relaxed")):
        chosen = replace(instance(name, ""), generator=generator)
        fit = chosen.fit(table, rho=2.0)
        again = chosen.finish(table.domain, fit.measurements, recoding=fit.recoding)
        assert (fit.model.kind, again.model.kind) == (kind, kind)


# -- a mechanism of another package --


class Guest(us.Mechanism):
    """Measures one column at a time; what another package might offer."""

    name = "guest"
    share: float = 1.0

    def fit(self, table, *, rho, progress=lambda step: None):
        progress(us.Step("measure", None, "one by one"))
        columns = list(table.domain)
        measured = [m for c in columns for m in table.measure([(c,)], rho=rho * self.share / len(columns))]
        return self.finish(table.domain, measured, recoding=Recoding.identity(), total=table.rows_public)

    def finish(self, domain, measurements, *, recoding, groups=None, total=None, progress=lambda step: None):
        return Fit(fit_product(recoding.recode(domain), measurements, total=total), measurements, recoding)

    def footprint(self, domain):
        return Footprint(memory_bytes=1000, disk_bytes=1000)


@pytest.fixture
def offered(monkeypatch):
    """Installed packages that offer these mechanisms by entry point."""

    def offer(**classes):
        module = types.ModuleType("guest_package")
        vars(module).update(classes)
        monkeypatch.setitem(sys.modules, "guest_package", module)
        group = "understudy.mechanisms"
        points = [metadata.EntryPoint(name.replace("_", "-"), f"guest_package:{name}", group) for name in classes]
        monkeypatch.setattr("understudy.mechanism.registry.entry_points", lambda group: points)
        return points

    return offer


def test_a_guest_passes_the_contract_and_works_by_name(offered, tmp_path):
    offered(guest=Guest)
    check_mechanism(Guest())
    import polars as pl

    frame, schema = pl.DataFrame({"a": [0, 1, 1]}), us.Schema.from_domain({"a": 2})
    release = us.synthesize(frame, schema, rho=1.0, mechanism="guest", share=0.5, output=tmp_path / "r")
    assert (release.mechanism, release.settings) == ("guest", {"share": 0.5})
    assert us.Release.load(tmp_path / "r").mechanism == "guest"


def test_an_interrupted_run_of_a_guest_is_resumed_by_name(offered, tmp_path, monkeypatch):
    import polars as pl

    offered(guest=Guest)
    frame, schema = pl.DataFrame({"a": [0]}), us.Schema.from_domain({"a": 2})
    with monkeypatch.context() as patch:
        patch.setattr(us.Release, "save", lambda *_, **__: 1 / 0)
        with pytest.raises(us.errors.RunInterrupted):
            us.synthesize(frame, schema, rho=1.0, mechanism="guest", output=tmp_path / "r", dataset="d")
    (one,) = us.Ledger().reservations("d")
    with monkeypatch.context() as patch:
        patch.setattr("understudy.mechanism.registry.entry_points", lambda group: [])
        with pytest.raises(SettingError, match="mechanism 'guest' is unknown"):
            us.resume(one.run)
    assert us.Ledger().total("d").runs == 1
    assert us.resume(one.run).mechanism == "guest"


def test_ours_win_a_shared_name_and_broken_packages_are_left_out(offered, monkeypatch):
    points = offered(independent=Guest, guest=Guest)
    points.append(metadata.EntryPoint("broken", "no_such_module:Thing", "understudy.mechanisms"))
    points.append(metadata.EntryPoint("nothing", "guest_package:__name__", "understudy.mechanisms"))
    known = mechanism_classes()
    assert known["independent"] is Independent
    assert known["guest"] is Guest
    assert {"broken", "nothing"}.isdisjoint(known)
    with pytest.raises(SettingError, match="mechanism 'broken' is unknown; the choices are"):
        make_mechanism("broken")


# -- mechanisms that break the contract --


def broken(**changes):
    """A guest with one thing wrong."""
    return type("Broken", (Guest,), {"__doc__": "Wrong.", **changes})


def _greedy(self, table, *, rho, progress=lambda step: None):
    progress(us.Step("measure"))
    return Guest.fit(Guest(), table, rho=rho * 2, progress=progress)


def _peeking(self, table, *, rho, progress=lambda step: None):
    fit = Guest.fit(self, table, rho=rho, progress=progress)
    true = dict(table._counts([()]))[()].sum()
    return replace(fit, model=fit_product(table.domain, fit.measurements, total=float(true + 1)))


def _telling(self, table, *, rho, progress=lambda step: None):
    progress(us.Step("measure", None, f"{int(dict(table._counts([()]))[()].sum())} rows"))
    return Guest.fit(self, table, rho=rho)


def _printing(self, table, *, rho, progress=lambda step: None):
    print("hello")
    return Guest.fit(self, table, rho=rho, progress=progress)


def _global_state(self, table, *, rho, progress=lambda step: None):
    np.random.random()  # noqa: NPY002
    return Guest.fit(self, table, rho=rho, progress=progress)


def _ignoring_total(self, domain, measurements, *, recoding, groups=None, total=None, progress=lambda step: None):
    return Fit(fit_product(domain, measurements), measurements)


def _needing_all(self, domain, measurements, *, recoding, groups=None, total=None, progress=lambda step: None):
    by_column = {m.clique[0]: m for m in measurements}
    return Fit(fit_product(domain, [by_column[c] for c in domain], total=total), measurements)


class Unlisted(ProductModel):
    kind = "unlisted"


def _unlisted(self, domain, measurements, *, recoding, groups=None, total=None, progress=lambda step: None):
    model = fit_product(domain, measurements, total=total)
    return Fit(Unlisted(domain, model.total, model._shares), measurements)


def _forgetting_rules(self, domain, measurements, *, recoding, groups=None, total=None, progress=lambda step: None):
    return Fit(fit_product(Domain(dict(domain)), measurements, total=total), measurements)


BROKEN = {
    "forgets the rules": ({"finish": _forgetting_rules}, "check_rules"),
    "spends more than it was given": ({"fit": _greedy}, "check_share"),
    "is refused and goes on": ({"fit": lambda *a, **k: None}, "check_refusal"),
    "peeks at the number of rows": ({"fit": _peeking}, "check_twin"),
    "gives the number of rows": ({"fit": _telling}, "check_twin"),
    "prints": ({"fit": _printing}, "check_manners"),
    "uses global random state": ({"fit": _global_state}, "check_manners"),
    "ignores the declared rows": ({"finish": _ignoring_total}, "check_public_rows"),
    "cannot finish a part": ({"finish": _needing_all}, "check_finish"),
    "makes a model that no release can hold": ({"finish": _unlisted}, "check_extremes"),
    "has no footprint": ({"footprint": lambda *_: Footprint(0.5, -1)}, "check_footprint"),
    "has a setting that JSON loses": ({"share": object(), "__annotations__": {"share": object}}, "check_settings"),
    "is not registered": ({"name": "stranger"}, "check_settings"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_the_contract_refuses_a_mechanism_that(case, offered):
    changes, check = BROKEN[case]
    kind = broken(**changes)
    offered(guest=kind)
    with pytest.raises((AssertionError, KeyError)):
        BY_NAME[check](kind())


@pytest.mark.parametrize(
    "read",
    [lambda table: table.account.budget.pure, lambda table: table.neighbours, attrgetter("account")],
    ids=["account", "neighbours", "attrgetter"],
)
def test_the_contract_refuses_a_mechanism_that_works_out_sensitivities_itself(read, offered):
    def fit(self, table, *, rho, progress=lambda step: None):
        read(table)
        return Guest.fit(self, table, rho=rho, progress=progress)

    kind = broken(fit=fit)
    offered(guest=kind)
    with pytest.raises(AssertionError, match=r"read `table\.(account|neighbours)`: ask the gate"):
        BY_NAME["check_twin"](kind())


def test_settings_cannot_be_changed_and_are_given_by_name():
    with pytest.raises(FrozenInstanceError):
        Guest().share = 0.5
    with pytest.raises(TypeError):
        Guest(0.5)


def test_a_class_whose_settings_can_change_is_not_a_mechanism(offered):
    @dataclass(kw_only=True)
    class Loose:
        """Not a subclass of `Mechanism`, so not frozen."""

        name: ClassVar[str] = "loose"
        pure: ClassVar[bool] = True
        fit, finish, footprint = Guest.fit, Guest.finish, Guest.footprint

    offered(loose=Loose)
    assert "loose" not in mechanism_classes()
    with pytest.raises(AssertionError, match="frozen"):
        contract.CHECKS[0](Loose())
    with pytest.raises(SettingError, match="or a mechanism"):
        make_mechanism(Loose())


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("guest", {"share": "much"}, "guest.share: give a number"),
        ("guest", {"chair": 1}, "guest has no setting 'chair'; its settings are: share"),
        ("independent", {"chair": 1}, "independent has no setting 'chair'; its settings are: none"),
        ("mst", {"split": [1, 2]}, "mst.split: give three positive parts"),
        ("mst", {"max_cells": 3}, "mst.max_cells: give a whole number of at least 4"),
        ("aim", {"measured": 1.0}, "aim.measured: give a number above 0 and below 1"),
        ("aim", {"anneal": 1}, "aim.anneal: give true or false"),
        ("privsyn", {"generator": "gan"}, "privsyn.generator: give one of pgm, gum, rap"),
        ("nist-mst", {"calibration": None}, "nist-mst.calibration: give one of tight, paper"),
        ("nist-mst", {"cliques": [[]]}, "cliques: name the columns of each clique"),
        ("dpsyn", {"cliques": "a"}, "cliques: give a list of cliques"),
        ("mst", {"keep": [[]]}, "keep: name the columns of each clique"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_what_may_be_given(offered, name, settings, said):
    offered(guest=Guest)
    with pytest.raises(SettingError) as refused:
        make_mechanism(name, **settings)
    assert said in str(refused.value)


def test_numbers_of_numpy_and_lists_of_json_are_settings():
    made = make_mechanism("mst", max_cells=np.int64(50), threshold=np.float64(1), split=[1, 1, 2], keep=[["a", "b"]])
    assert (made.max_cells, made.threshold, made.split) == (50, 1.0, (0.25, 0.25, 0.5))
    assert made.keep == ((("a", "b"), 1.0),)
