"""Which figures an export of Kafka's metadata log cannot give, and why (KAFKA.md#what-is-never-known).

Invariant: a figure that is listed here is null in every result, never 0. A statistic that is not in the table at all,
because it is newer than the table, has no figure either: nothing is shown that nobody has thought about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from strandline.export.layout import KAFKA_SOURCE
from strandline_analytics.sources.catalog import ExportedFile

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


def why_unavailable(statistic: str, figure: str) -> str | None:
    """Why a figure is not known; None where it is."""
    reasons = UNAVAILABLE.get(statistic, _NOT_THOUGHT_OF)
    return reasons.get(EVERYTHING, reasons.get(figure))


def kafka_clusters(files: Sequence[ExportedFile]) -> frozenset[str]:
    """The clusters among the files whose export is of Kafka's history."""
    folders = {(id(file.place), file.folder): file for file in files}
    return frozenset(file.cluster_id for file in folders.values() if _has_source(file))


def _has_source(file: ExportedFile) -> bool:
    wanted = f"{file.folder}{KAFKA_SOURCE}"
    return any(listed.path == wanted for listed in file.place.files(wanted.rpartition("/")[0]))


def sentences(statistics: Iterable[str], clusters: Iterable[str]) -> Iterator[str]:
    """For each statistic that lacks a figure: what it lacks and why."""
    named = ", ".join(sorted(clusters))
    if not named:
        return
    for statistic in statistics:
        by_reason: dict[str, list[str]] = {}
        for figure, reason in UNAVAILABLE.get(statistic, _NOT_THOUGHT_OF).items():
            by_reason.setdefault(reason, []).append(figure)
        for reason, figures in by_reason.items():
            what = "" if figures == [EVERYTHING] else f" {', '.join(figures)}"
            yield f"{statistic}{what}: unavailable for {named}: {reason}"
