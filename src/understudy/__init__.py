"""Understudy: differentially private stand-ins for sensitive tables.

```python
import understudy as us

schema = us.Schema.load("people.schema.yaml")
release = us.synthesize(people, schema, epsilon=1.0, delta=1e-9)
stand_in = release.sample()
release.save("people.release")
```
"""

from importlib.metadata import version as _version

from understudy import errors, testing
from understudy.domain import Clique, Domain
from understudy.evaluation import evaluate
from understudy.measurement import Measurement
from understudy.mechanism import MECHANISMS, Fit, Mechanism
from understudy.privacy import Book, Budget, PrivateTable, Receipt
from understudy.progress import Step
from understudy.release import Release
from understudy.schema import Schema
from understudy.source import Source
from understudy.synthesis import resume, synthesize

__version__ = _version("understudy")

__all__ = [
    "MECHANISMS",
    "Book",
    "Budget",
    "Clique",
    "Domain",
    "Fit",
    "Measurement",
    "Mechanism",
    "PrivateTable",
    "Receipt",
    "Release",
    "Schema",
    "Source",
    "Step",
    "errors",
    "evaluate",
    "resume",
    "synthesize",
    "testing",
]
