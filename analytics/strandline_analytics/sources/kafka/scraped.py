"""Which figures the scrapes of a Prometheus add to a metadata log, how exactly, and why they lack others (KAFKA.md).

Kafka exports where the log of each replica ends, and no high watermark: what is above it, waits for it or stands still
is in no scrape.

Invariant: no figure is exact. One that is bounded has the reason in a sentence, and how far the other bound is away.
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
    "s01": _NO_HW,
    "s02": {},
    "s03": _NO_HW,
    "s04": _NO_HW,
    "s05": _NO_HW,
    "s06": dict.fromkeys(("unclean_committed_max_records", "n_below_hw"), _NO_HW[EVERYTHING]),
    "s07": {EVERYTHING: "a scrape does not say how far a log had come when its epoch ended"},
    "s08": _NO_CHANGES,
    "s09": _NO_CHANGES,
    "s10": _NO_CHANGES,
    "s11": _NO_CHANGES,
    "s12": _NO_CHANGES,
    "s13": _NO_CHANGES,
    "s14": _NO_CHANGES,
    "s15": _NO_CHANGES,
    "s16": _NO_CHANGES,
    "s17": _NO_CHANGES,
    "s18": _NO_HW,
    "s19": _NO_CHANGES,
    "s20": _NO_HW,
    "s21": _NO_GROUPS,
    "s22": _NO_GROUPS,
    "s23": _NO_GROUPS,
    "s24": _NO_GROUPS,
    "s25": _NO_GROUPS,
    "s26": _NO_TRANSACTIONS,
    "s27": _NO_TRANSACTIONS,
    "s28": _NO_CHANGES,
}
"""By statistic and figure: why it is not known; `EVERYTHING` means all figures. One that is missing here has none."""

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
"""By statistic and figure: which bound is shown. ``{leo}`` is where the width of the bounds is said."""


def bounds_said(source: Mapping[str, Any]) -> str:
    """How far the other bound of a follower's end is away, by what the import counted."""
    said = source.get("prometheus")
    counted = said.get("leo_bounds") if isinstance(said, dict) else None
    return width_said(counted, "samples") or "the lower one is in ext.lag_low of the samples"


def bounded(statistic: str, source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The figures of a statistic that are bounds, each with its sentence."""
    for figure, said in BOUNDED.get(statistic, {}).items():
        yield figure, said.replace("{leo}", bounds_said(source))
