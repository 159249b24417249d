"""The figures that an export of a Kafka cluster cannot give, with reasons (KAFKA.md#what-is-never-known).

An export names its sources: the metadata log alone, also the brokers' logs or a Prometheus, or a collector; the tables
of the last two are in `scraped` and `collected`. A figure is available if any of several sources gives it.

Invariant: a figure that is listed here is null in every result, never 0, and an answer has no rows of a statistic whose
figures are all listed. A statistic that is missing from the table, because it is newer, has no figure either: nothing
is shown by accident.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from strandline_analytics.sources.kafka import collected, scraped
from strandline_analytics.sources.kafka.source_words import LOOKING, Level, Levels, Looking

EVERYTHING = "*"
_NOT_THOUGHT_OF = {EVERYTHING: "this statistic is not answered from Kafka's metadata log"}
_NO_POSITIONS = {EVERYTHING: "Kafka's metadata log has no positions of replicas and no high watermark"}
_NO_TRANSACTIONS = {EVERYTHING: "transactions are in the logs of partitions, and not in Kafka's metadata log"}
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
    "s26": _NO_TRANSACTIONS,
    "s27": _NO_TRANSACTIONS,
    "s29": {EVERYTHING: "what Kafka's authorizer refused is in its own log, which is not read"},
    "s28": {EVERYTHING: "of a reassignment the import has the changes of replicas alone, and not when it began"},
}
"""The reason why a figure is not known, by statistic and figure; `EVERYTHING` means all figures of a statistic."""


_NO_LOOKS = "no line says how far a log had come before its epoch ended"
_NOT_ALL_LOGGED = "proposals of returns and refusals are logged at DEBUG alone, and not every take-over has a line"
_PROPOSALS = ("proposals", "committed", "refused", "timeout", "abandoned", "open", "max_stuck_us", "refused_by_code")

WITH_LOGS: Mapping[str, Mapping[str, str]] = {
    "s07": dict.fromkeys(
        (
            "tail_cut_records",
            "tail_cut_with_zombies_records",
            "committed_lost_min_bytes",
            "committed_lost_max_bytes",
            "avoidable_lost_records",
        ),
        _NO_LOOKS,
    ),
    "s09": {},
    "s11": {},
    "s12": dict.fromkeys(("catch_up_us", "admission_us"), "no line says when a leader proposed a replica"),
    "s13": {},
    "s14": dict.fromkeys(_PROPOSALS, _NOT_ALL_LOGGED),
    "s19": dict.fromkeys(("detect_p50_us", "detect_max_us", "total_max_us"), "heartbeats are not logged"),
}
"""The same for exports that include the brokers' logs, for the statistics to which these add something."""

_TABLES: Mapping[Level, Mapping[str, Mapping[str, str]]] = {
    Level.METADATA_LOG: UNAVAILABLE,
    Level.BROKER_LOGS: {**UNAVAILABLE, **WITH_LOGS},
    Level.PROMETHEUS: scraped.UNAVAILABLE,
    Level.COLLECTOR: collected.UNAVAILABLE,
}
_BOUNDED = {Level.PROMETHEUS: scraped.bounded, Level.COLLECTOR: collected.bounded}
METADATA_LOG_ALONE = frozenset({Level.METADATA_LOG})
Asked = Iterable[tuple[str, Sequence[str]]]
"""Statistics, each with its figures."""


def why_unavailable(statistic: str, figure: str, levels: frozenset[Level] = METADATA_LOG_ALONE) -> str | None:
    """The reason why no source knows a figure; None if one of them gives it."""
    # The reasons of the brokers' logs cover what the metadata log lacks.
    asked = levels - METADATA_LOG_ALONE if Level.BROKER_LOGS in levels else levels
    reasons = [_why(_TABLES[level], statistic, figure) for level in sorted(asked)]
    return None if None in reasons else "; ".join(map(str, reasons))


def is_unavailable(statistic: str, figures: Sequence[str], levels: frozenset[Level]) -> bool:
    """Whether these sources give none of the figures."""
    return all(why_unavailable(statistic, figure, levels) is not None for figure in figures)


def lacking(statistic: str, figures: Sequence[str], levels: frozenset[Level]) -> dict[str, str]:
    """The figures that these sources do not give, with a reason for each; `EVERYTHING` if one reason holds for all."""
    reasons = {figure: why_unavailable(statistic, figure, levels) for figure in figures}
    found = {figure: reason for figure, reason in reasons.items() if reason is not None}
    if len(found) == len(figures) and len({*found.values()}) == 1:
        return {EVERYTHING: next(iter(found.values()))}
    return found


def _why(table: Mapping[str, Mapping[str, str]], statistic: str, figure: str) -> str | None:
    reasons = table.get(statistic, _NOT_THOUGHT_OF)
    return reasons.get(EVERYTHING, reasons.get(figure))


def unavailable(asked: Asked, kafka: Levels) -> Iterator[str]:
    """A sentence for each statistic of which a cluster lacks figures: which ones, and why."""
    for statistic, figures in asked:
        for cluster, levels in sorted(kafka.items()):
            yield from _said(statistic, "unavailable", cluster, lacking(statistic, figures, levels))


def bounded(asked: Asked, kafka: Levels, looked: Looking) -> Iterator[str]:
    """A sentence for each statistic of which a cluster has only bounds: of which figures, and which bounds.

    ``looked``: the reports of the observing sources on themselves.
    """
    for statistic, figures in asked:
        for cluster, several in sorted(looked.items()):
            for level in sorted(several):
                yield from _bounded(statistic, figures, cluster, kafka[cluster], (level, several[level]))


def _bounded(
    statistic: str, figures: Sequence[str], cluster: str, levels: frozenset[Level], by: tuple[Level, Mapping[str, Any]]
) -> Iterator[str]:
    level, source = by
    bounds = dict(_BOUNDED[level](statistic, source))
    found = {figure: bounds.get(EVERYTHING, bounds.get(figure)) for figure in figures}
    known = {
        figure: bound
        for figure, bound in found.items()
        if bound is not None and _is_given_by(level, statistic, figure, levels)
    }
    if EVERYTHING in bounds and len(known) == len(figures):
        known = {EVERYTHING: bounds[EVERYTHING]}
    yield from _said(statistic, "bounded", cluster, known)


def _is_given_by(level: Level, statistic: str, figure: str, levels: frozenset[Level]) -> bool:
    """Whether a figure comes from an observing source, and no better source gives it."""
    better = levels - {*LOOKING[LOOKING.index(level) :]}
    is_of_better = bool(better) and why_unavailable(statistic, figure, better) is None
    return not is_of_better and why_unavailable(statistic, figure, levels) is None


def _said(statistic: str, what: str, cluster: str, reasons: Mapping[str, str]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for figure, reason in reasons.items():
        by_reason.setdefault(reason, []).append(figure)
    for reason, figures in by_reason.items():
        named = "" if figures == [EVERYTHING] else f" {', '.join(figures)}"
        yield f"{statistic}{named}: {what} for {cluster}: {reason}"
