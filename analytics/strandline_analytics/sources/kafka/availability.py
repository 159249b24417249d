"""Which figures an export of Kafka's history cannot give, and why (KAFKA.md#what-is-never-known).

An export says from which levels it was made: the metadata log alone, or the brokers' logs too.

Invariant: a figure that is listed here is null in every result, never 0. A statistic that is not in the table at all,
because it is newer than the table, has no figure either: nothing is shown that nobody has thought about.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from strandline.export.layout import KAFKA_SOURCE
from strandline_analytics.sources.catalog import ExportedFile

METADATA_LOG, BROKER_LOGS = "metadata-log", "broker-logs"
"""Levels of an export, in its own words."""
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


_NO_LOOKS = "no line says how far a log had come before its epoch ended"
_NOT_ALL_LOGGED = "proposals of returns and refusals are logged at DEBUG alone, and not every take-over has a line"
_PROPOSALS = ("proposals", "committed", "refused", "timeout", "abandoned", "open", "max_stuck_us", "refused_by_code")

WITH_LOGS: Mapping[str, Mapping[str, str]] = {
    "s07": dict.fromkeys(("tail_cut_records", "tail_cut_with_zombies_records", "committed_lost_records"), _NO_LOOKS),
    "s09": {},
    "s11": {},
    "s12": dict.fromkeys(("catch_up_us", "admission_us"), "no line says when a leader proposed a replica"),
    "s13": {},
    "s14": dict.fromkeys(_PROPOSALS, _NOT_ALL_LOGGED),
    "s19": dict.fromkeys(("detect_p50_us", "detect_max_us", "total_max_us"), "heartbeats are not logged"),
}
"""The same where the brokers' logs were imported too, for the statistics to which they add something."""

KafkaClusters = Mapping[str, frozenset[str]]
"""Clusters whose export is of Kafka's history, and the levels that it was made from."""


def why_unavailable(statistic: str, figure: str, levels: frozenset[str] = frozenset((METADATA_LOG,))) -> str | None:
    """Why a figure is not known from these levels; None where it is."""
    reasons = lacking(statistic, levels)
    return reasons.get(EVERYTHING, reasons.get(figure))


def lacking(statistic: str, levels: frozenset[str]) -> Mapping[str, str]:
    """The figures that a statistic lacks at these levels, with the reason of each."""
    alone = UNAVAILABLE.get(statistic, _NOT_THOUGHT_OF)
    return WITH_LOGS.get(statistic, alone) if BROKER_LOGS in levels else alone


def kafka_clusters(files: Sequence[ExportedFile]) -> KafkaClusters:
    """The clusters among the files whose export is of Kafka's history, with what all their exports were made from."""
    folders = {(id(file.place), file.folder): file for file in files}
    found: dict[str, frozenset[str]] = {}
    for file in folders.values():
        if (levels := _levels(file)) is not None:
            found[file.cluster_id] = found.get(file.cluster_id, levels) & levels
    return found


def _levels(file: ExportedFile) -> frozenset[str] | None:
    wanted = f"{file.folder}{KAFKA_SOURCE}"
    if not any(listed.path == wanted for listed in file.place.files(wanted.rpartition("/")[0])):
        return None
    try:
        said = json.loads(file.place.read(wanted))["levels"]
        return frozenset(level for level in said if isinstance(level, str))
    except (ValueError, TypeError, KeyError, RecursionError):
        # By its presence it is of Kafka; what cannot be read promises nothing.
        return frozenset((METADATA_LOG,))


def sentences(statistics: Iterable[str], clusters: KafkaClusters) -> Iterator[str]:
    """For each statistic that lacks a figure: what it lacks, where, and why."""
    by_levels: dict[frozenset[str], list[str]] = {}
    for cluster_id, levels in sorted(clusters.items()):
        by_levels.setdefault(levels, []).append(cluster_id)
    for statistic in statistics:
        for levels, named in by_levels.items():
            yield from _lacks(statistic, levels, ", ".join(named))


def _lacks(statistic: str, levels: frozenset[str], named: str) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for figure, reason in lacking(statistic, levels).items():
        by_reason.setdefault(reason, []).append(figure)
    for reason, figures in by_reason.items():
        what = "" if figures == [EVERYTHING] else f" {', '.join(figures)}"
        yield f"{statistic}{what}: unavailable for {named}: {reason}"
