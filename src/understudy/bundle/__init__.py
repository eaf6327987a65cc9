"""What analysts get: rows in files that their tools open, a codebook, the report, and a page that says what is safe."""

from understudy.bundle.make import FORMATS, Bundle, make_bundle

__all__ = ["FORMATS", "Bundle", "make_bundle"]
