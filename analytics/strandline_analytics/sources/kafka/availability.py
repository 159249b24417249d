"""Which figures an export of a Kafka cluster cannot give, and why (KAFKA.md#what-is-never-known).

`UNAVAILABLE` is the table of the metadata log; that of a collector is in `collected`. A figure that one of several
sources gives is given.

Invariant: a figure that is listed here is null in every result, never 0. A statistic that is not in the table at all,
because it is newer than the table, has no figure either: nothing is shown that nobody has thought about.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from strandline_analytics.sources.kafka import collected
from strandline_analytics.sources.kafka.levels import Level, Levels

EVERYTHING = "*"
_NOT_THOUGHT_OF = {EVERYTHING: "this statistic is not answered from Kafka's metadata log"}
_NO_POSITIONS = {EVERYTHING: "Kafka's metadata log has no positions of replicas and no high watermark"}
_NO_STARTS = "no record says when a leader took up its epoch"

UNAVAILABLE: Mapping[str, Mapping[str, str]] = {
    "s01": _NO_POSITIONS,
    "s02": _NO_POSITIONS,
    "s03": _NO_POSITIONS,
    "s04": {EVERYTHING: "Kafka's metadata log has no byte positions"},
    "s05": {EVERYTHING: "what producers were acknowledged is not recorded"},
    "s06": _NO_POSITIONS,
    "s07": {EVERYTHING: "neither starts of epochs nor cuts of logs are in Kafka's metadata log"},
    "s08": {},
    "s09": {"young_epoch": _NO_STARTS},
    "s10": {},
    "s11": {"activation_gap_us": _NO_STARTS},
    "s12": dict.fromkeys(("catch_up_us", "admission_us"), "no record says when a leader proposed a replica"),
    "s13": dict.fromkeys(
        ("min_us", "p50_us", "p95_us", "max_us", "below_limit", "above_expected", "n_negative", "clock_err_us"),
        "when a replica was last caught up is not recorded",
    ),
    "s14": {EVERYTHING: "proposals of leaders are not recorded, only what was committed (S8)"},
    "s15": {},
    "s16": {},
    "s17": {},
    "s18": _NO_POSITIONS,
    "s19": {
        **dict.fromkeys(("detect_p50_us", "detect_max_us"), "heartbeats are not recorded"),
        **dict.fromkeys(
            ("activate_p50_us", "activate_max_us", "total_max_us", "n_negative", "clock_err_us"), _NO_STARTS
        ),
    },
    "s20": _NO_POSITIONS,
}
"""By statistic and figure: why it is not known; `EVERYTHING` means all figures of a statistic."""


_TABLES: Mapping[Level, Mapping[str, Mapping[str, str]]] = {
    Level.METADATA_LOG: UNAVAILABLE,
    Level.COLLECTOR: collected.UNAVAILABLE,
}
_METADATA_LOG_ALONE = frozenset({Level.METADATA_LOG})


def why_unavailable(statistic: str, figure: str, levels: Collection[Level] = _METADATA_LOG_ALONE) -> str | None:
    """Why a figure is not known by any of the sources; None where one of them gives it."""
    reasons = [_why(_TABLES[level], statistic, figure) for level in sorted(levels)]
    return None if None in reasons else "; ".join(map(str, reasons))


def _why(table: Mapping[str, Mapping[str, str]], statistic: str, figure: str) -> str | None:
    reasons = table.get(statistic, _NOT_THOUGHT_OF)
    return reasons.get(EVERYTHING, reasons.get(figure))


def sentences(
    statistics: Iterable[tuple[str, Sequence[str]]], kafka: Levels, collectors: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """For each statistic of which a cluster lacks a figure, or has only a bound: which, and why.

    Args:
        statistics: each with its figures.
        kafka: the sources of each cluster of Kafka's.
        collectors: what the collector of a cluster says of itself.
    """
    for statistic, figures in statistics:
        for cluster, levels in sorted(kafka.items()):
            missing = {figure: why_unavailable(statistic, figure, levels) for figure in figures}
            yield from _said(statistic, "unavailable", cluster, missing)
            bounds = dict(collected.bounded(statistic, collectors.get(cluster, {}))) if cluster in collectors else {}
            known = {
                figure: bounds.get(EVERYTHING, bounds.get(figure))
                if _is_only_of_a_collector(statistic, figure, levels)
                else None
                for figure in figures
                if missing[figure] is None
            }
            yield from _said(statistic, "bounded", cluster, known)


def _is_only_of_a_collector(statistic: str, figure: str, levels: frozenset[Level]) -> bool:
    others = levels - {Level.COLLECTOR}
    return not others or why_unavailable(statistic, figure, others) is not None


def _said(statistic: str, what: str, cluster: str, reasons: Mapping[str, str | None]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for figure, reason in reasons.items():
        if reason is not None:
            by_reason.setdefault(reason, []).append(figure)
    for reason, figures in by_reason.items():
        named = "" if len(figures) == len(reasons) else f" {', '.join(figures)}"
        yield f"{statistic}{named}: {what} for {cluster}: {reason}"
