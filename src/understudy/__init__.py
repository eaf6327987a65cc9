"""Understudy: differentially private stand-ins for sensitive tables.

```python
import understudy as us

schema = us.Schema.load("people.schema.yaml")
release = us.synthesize(people, schema, epsilon=1.0, delta=1e-9)
stand_in = release.sample()
release.save("people.release")
```

Names are loaded at their first use, so that `import understudy` and commands that need little of it start at once.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from understudy import errors, testing
    from understudy.accounting import Budget, Receipt
    from understudy.bundle import make_bundle
    from understudy.comparison import compare
    from understudy.domain import Clique, Domain
    from understudy.evaluation import attack, evaluate, write_report
    from understudy.gate import PrivateTable
    from understudy.ledger import Ledger
    from understudy.measurement import Measurement
    from understudy.mechanism import MECHANISMS, Fit, Mechanism
    from understudy.planning import plan
    from understudy.progress import Step, progress_bar
    from understudy.release import Release
    from understudy.release.inference import combine
    from understudy.run.pipeline import resume, synthesize
    from understudy.schema import Schema
    from understudy.sink.spark import write_spark
    from understudy.source import Source
    from understudy.source.draft import draft
    from understudy.testing.audit import audit

_HOMES = {
    "domain": ("Clique", "Domain"),
    "comparison": ("compare",),
    "evaluation": ("attack", "evaluate", "write_report"),
    "measurement": ("Measurement",),
    "mechanism": ("MECHANISMS", "Fit", "Mechanism"),
    "accounting": ("Budget", "Receipt"),
    "gate": ("PrivateTable",),
    "ledger": ("Ledger",),
    "progress": ("Step", "progress_bar"),
    "planning": ("plan",),
    "source.draft": ("draft",),
    "bundle": ("make_bundle",),
    "release": ("Release",),
    "release.inference": ("combine",),
    "schema": ("Schema",),
    "sink.spark": ("write_spark",),
    "source": ("Source",),
    "testing.audit": ("audit",),
    "run.pipeline": ("resume", "synthesize"),
}
"""Which module each name comes from; a new name goes here, above, and into `__all__`."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "MECHANISMS",
    "Budget",
    "Clique",
    "Domain",
    "Fit",
    "Ledger",
    "Measurement",
    "Mechanism",
    "PrivateTable",
    "Receipt",
    "Release",
    "Schema",
    "Source",
    "Step",
    "attack",
    "audit",
    "combine",
    "compare",
    "draft",
    "errors",
    "evaluate",
    "make_bundle",
    "plan",
    "progress_bar",
    "resume",
    "synthesize",
    "testing",
    "write_report",
    "write_spark",
]


def __getattr__(name: str) -> _typing.Any:
    """Return a name of the facade, or one of the package's modules, loaded now."""
    if name == "__version__":
        from importlib.metadata import version

        return version("understudy")
    if name in _HOME_OF:
        value = getattr(_import_module(f"understudy.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("_"):
        try:
            return _import_module(f"understudy.{name}")
        except ModuleNotFoundError:
            pass
    raise AttributeError(f"module 'understudy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
