"""For tests only: seeded noise, marked everywhere it goes."""

from __future__ import annotations

from understudy.privacy.randomness import insecure

__all__ = ["insecure"]
