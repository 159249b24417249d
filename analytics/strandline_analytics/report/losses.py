"""What a window's lost committed records come to: how many, how large, and how many of them could be avoided.

Invariant: what is not known is None, and no sentence mentions it; a sum that leaves something out is called a lower
bound.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.units import bytes_text
from strandline_analytics.report.material import Material, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Records, bytes and avoidable records over all partitions (S7); each None where nothing is known of it.

    ``avoidable`` and ``min_bytes`` are lower bounds.
    """

    records: int | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    avoidable: int | None = None


def losses(material: Material) -> Losses:
    """The losses of a window, by the rows of S7."""
    found = material.results.get("s07")
    if found is None or found.trouble or not found.is_recorded("epochs_unknown"):
        return Losses()
    records = found.at_least("committed_lost_records", "epochs_unknown")
    if not records:
        return Losses(records=records, min_bytes=records, max_bytes=records, avoidable=records)
    most, is_whole = _of_lossy(found, "committed_lost_max_bytes")
    return Losses(
        records=records,
        min_bytes=_of_lossy(found, "committed_lost_min_bytes")[0],
        max_bytes=most if is_whole else None,
        avoidable=_of_lossy(found, "avoidable_lost_records")[0],
    )


def loss_parts(found: Losses) -> list[str]:
    """The size of what was lost, and how much of it another replica had; empty where neither is known."""
    if not found.records:
        return []
    parts = [size] if (size := _size_text(found)) else []
    if found.avoidable:
        parts.append(f"at least {found.avoidable:,} of them avoidable: another live replica had them")
    return parts


def _size_text(found: Losses) -> str:
    least, most = bytes_text(found.min_bytes), bytes_text(found.max_bytes)
    if found.max_bytes is None:
        return f"at least {least}" if found.min_bytes else ""
    if not found.min_bytes:
        return f"at most {most}"
    return most if most == least else f"{least} to {most}"


def _of_lossy(found: Result, name: str) -> tuple[int | None, bool]:
    """The sum over the partitions that lost records, None if it is 0 and one is not known; whether all are known."""
    values = [row.get(name) for row in found.rows if row.get("committed_lost_records")]
    known = sum(value for value in values if value is not None)
    is_whole = None not in values and not found.total("epochs_unknown")
    return (known if known or is_whole else None), is_whole
