"""The HTML report of a release: one self-contained file, public without the real rows, for the custodian with them."""

from understudy.report.page import custodian_report, public_report

__all__ = ["custodian_report", "public_report"]
