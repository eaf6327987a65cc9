"""What a script wants to know about a release."""

from __future__ import annotations

from typing import Any

from understudy.release.artefact import Release


def facts(release: Release) -> dict[str, Any]:
    """Plain data about a release; public facts only."""
    receipt = release.receipt
    return {
        "mechanism": release.mechanism,
        "guarantee": receipt.guarantee(),
        "epsilon": receipt.epsilon,
        "delta": receipt.delta,
        "rho": receipt.rho,
        "insecure": receipt.insecure,
        "rehearsal": receipt.rehearsal,
        "default_rows": release.default_rows,
        "columns": list(release.schema.domain),
        "measurements": len(release.measurements),
        "charges": len(receipt.charges),
        "quality": None if release.quality is None else release.quality.to_dict_with_interval(),
    }
