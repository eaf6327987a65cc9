"""Bundles for analysts: rows in several formats, a codebook, the report, and a README on what is safe to compute."""

from understudy.bundle.folder import Bundle
from understudy.bundle.make import FORMATS, make_bundle

__all__ = ["FORMATS", "Bundle", "make_bundle"]
