"""Quantities as the API server spells them, so that what is read equals what is sent."""

from __future__ import annotations


def cpu(millicores: int) -> str:
    """CPU: `1500m`, but `2` for 2,000."""
    return _thousandths(millicores)


def memory(mebibytes: int) -> str:
    """Memory: `256Mi`, but `1Gi` for 1,024."""
    return f"{mebibytes // 1024}Gi" if mebibytes % 1024 == 0 else f"{mebibytes}Mi"


def ratio(percent: int) -> str:
    """A share as a quantity: `700m` for 70."""
    return _thousandths(percent * 10)


def thousandths(count: int) -> str:
    """A number given in thousandths."""
    return _thousandths(count)


def _thousandths(count: int) -> str:
    return str(count // 1000) if count % 1000 == 0 else f"{count}m"
