"""Bundles for analysts: rows in several formats, a codebook, the report, and a README on what is safe to compute."""

from understudy.bundle.make import FORMATS, Bundle, make_bundle

__all__ = ["FORMATS", "Bundle", "make_bundle"]
