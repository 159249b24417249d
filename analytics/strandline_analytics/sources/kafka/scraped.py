"""The figures that Prometheus scrapes add to a metadata log, their precision, and why they lack others (KAFKA.md).

Kafka exports the end of each replica's log, but no high watermark: scrapes do not show what is above it, waits for it
or stands still.

Invariant: no figure is exact. A bounded figure has a sentence with the reason and the distance of the other bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from strandline_analytics.sources.kafka.collected import EVERYTHING, width_said

_NO_HW = {EVERYTHING: "Kafka exports no high watermark to Prometheus"}
_NO_CHANGES = {EVERYTHING: "a scrape sees states and not the changes between them"}
_NO_GROUPS = {EVERYTHING: "scrapes of brokers say nothing about consumer groups"}
_NO_TRANSACTIONS = {EVERYTHING: "scrapes of brokers say nothing about transactions"}

UNAVAILABLE: Mapping[str, Mapping[str, str]] = {
    "s02": {},
    "s06": dict.fromkeys(("unclean_committed_max_records", "n_below_hw"), _NO_HW[EVERYTHING]),
    "s07": {EVERYTHING: "a scrape does not say how far a log had come when its epoch ended"},
    **dict.fromkeys(("s01", "s03", "s04", "s05", "s18", "s20"), _NO_HW),
    **dict.fromkeys(("s08", "s09", "s10", "s11", "s12", "s13", "s14", "s15", "s16", "s17", "s19", "s28"), _NO_CHANGES),
    **dict.fromkeys(("s21", "s22", "s23", "s24", "s25"), _NO_GROUPS),
    **dict.fromkeys(("s26", "s27"), _NO_TRANSACTIONS),
    "s29": {EVERYTHING: "a scrape says nothing of who was refused"},
}
"""Why a figure is unknown, by statistic and figure; `EVERYTHING` means all. A statistic that is missing has none."""

BOUNDED: Mapping[str, Mapping[str, str]] = {
    "s02": dict.fromkeys(
        ("mean_records", "p50_records", "p95_records", "p99_records", "max_records"),
        "upper bound: leader and follower are scraped at different times, so the follower's log may have been longer; "
        "{leo}",
    ),
    "s06": {
        **dict.fromkeys(
            ("clean_worst_mean_records", "clean_worst_max_records", "clean_best_max_records"),
            "upper bound: leader and followers are scraped at different times; {leo}",
        ),
        "no_clean_successor_us": "each change is seen at the next scrape: a period or less too late",
    },
}
"""The bound that is shown, by statistic and figure. ``{leo}`` is replaced by the width of the bounds."""


def bounds_said(source: Mapping[str, Any]) -> str:
    """The distance of the other bound of a follower's log end, from the import's counts."""
    said = source.get("prometheus")
    counted = said.get("leo_bounds") if isinstance(said, dict) else None
    return width_said(counted, "samples") or "the lower one is in ext.lag_low of the samples"


def bounded(statistic: str, source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The figures of a statistic that are bounds, each with its sentence."""
    for figure, said in BOUNDED.get(statistic, {}).items():
        yield figure, said.replace("{leo}", bounds_said(source))
