"""The figures that a collector's export gives, their precision, and why it lacks others (KAFKA.md#a-running-cluster).

Invariant: a figure in none of these tables is exact at each observation. A bounded figure has a sentence with the
reason and what is known of its other bound; an unavailable one is null in every result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

EVERYTHING = "*"
_NO_CHANGES = {EVERYTHING: "a collector sees states and not the changes between them; import the metadata log"}
_NO_GROUPS = {EVERYTHING: "a collector asks nothing about consumer groups"}
_NO_TRANSACTIONS = {EVERYTHING: "a collector asks nothing about transactions"}

UNAVAILABLE: Mapping[str, Mapping[str, str]] = {
    **{name: {} for name in ("s01", "s02", "s03", "s06", "s10")},
    "s04": {EVERYTHING: "Kafka does not say at which byte an offset is"},
    "s05": {EVERYTHING: "what producers were acknowledged is not recorded; S1 is an upper bound of it"},
    "s07": {EVERYTHING: "neither starts of epochs nor cuts of logs are seen; broker logs have them"},
    "s11": {"activation_gap_us": "when a leader took up its epoch is not seen"},
    "s18": dict.fromkeys(("ended_by_epoch", "censored"), "what ended a stall is not seen"),
    "s20": {EVERYTHING: "a follower does not answer its high watermark"},
    **dict.fromkeys(("s08", "s09", "s12", "s13", "s14", "s15", "s16", "s17", "s19", "s28"), _NO_CHANGES),
    **dict.fromkeys(("s21", "s22", "s23", "s24", "s25"), _NO_GROUPS),
    **dict.fromkeys(("s26", "s27"), _NO_TRANSACTIONS),
    "s29": {EVERYTHING: "a collector says nothing of who was refused"},
}
"""Why a figure is unknown, by statistic and figure; `EVERYTHING` means all. A statistic that is missing has none."""

BOUNDED: Mapping[str, Mapping[str, str]] = {
    "s01": dict.fromkeys(
        ("mean_records", "p50_records", "p95_records", "p99_records", "max_records"),
        "upper bound, by the HW before the log's end was read; {hw}",
    ),
    "s02": dict.fromkeys(
        ("mean_records", "p50_records", "p95_records", "p99_records", "max_records"),
        "upper bound while a replica's broker does not answer and its last end is used; else exact at the looks",
    ),
    "s03": dict.fromkeys(
        ("mean_us", "max_us", "waiting_us"),
        "estimated: a record above the HW cannot be read, so the first look at it is taken as its append time, "
        "at most one period later; {hw}",
    ),
    "s06": dict.fromkeys(
        ("clean_worst_mean_records", "clean_worst_max_records", "unclean_committed_max_records"),
        "upper bound while a replica's broker does not answer; else exact at the looks",
    ),
    "s10": {EVERYTHING: "each change is seen at the next look: a period or less too late, and unseen if taken back"},
    "s11": dict.fromkeys(
        ("write_unavailable_us", "read_unavailable_us"),
        "each change is seen at the next look: a period or less too late, and unseen if taken back",
    ),
    "s18": dict.fromkeys(
        ("episodes", "total_us", "longest_us", "under_min_episodes"),
        "lower bound: a stall counts from the first look at it to the last; one shorter than two periods is not seen",
    ),
}
"""The bound that is shown, by statistic and figure. ``{hw}`` is replaced by the width of the bounds of the HW."""


def bounds_said(source: Mapping[str, Any]) -> str:
    """The distance of the other bound of the HW, from a collector's counts."""
    return width_said(source.get("hw_bounds"), "looks") or "its lower bound is in ext.hw_lag_low of the samples"


def width_said(counted: Any, what: str) -> str | None:
    """The distance of a lower bound, from the counts of ``what``; None if nothing was counted."""
    counted = counted if isinstance(counted, dict) else {}
    looks, exact, width, widest = (counted.get(name) for name in ("looks", "exact", "width_sum", "widest"))
    if not all(isinstance(each, int) for each in (looks, exact, width, widest)) or not looks:
        return None
    assert isinstance(width, int)
    return (
        f"the lower one is at most {widest} records less, {width / looks:.3g} in the mean, and equal in {exact} of "
        f"{looks} {what}"
    )


def bounded(statistic: str, source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The figures of a statistic that are bounds, each with its sentence."""
    for figure, said in BOUNDED.get(statistic, {}).items():
        yield figure, said.replace("{hw}", bounds_said(source))
