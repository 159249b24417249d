"""Answers a question at once: finds the files and the window, and computes the rows of each statistic in a fixed order.

Invariant: nothing is written; the same input and question give the same rows in the same order.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from strandline_analytics.scope import MOST_WINDOWS, Grouping, Scope
from strandline_analytics.silver.events import not_understood
from strandline_analytics.sources.catalog import ExportedFile, find_exports
from strandline_analytics.sources.exports import needed, read_exports, span_of_rows
from strandline_analytics.sources.inspection import unread
from strandline_analytics.sources.trouble import NothingThere, TooLong
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import Statistic, with_any_value
from strandline_analytics.stats.together import together


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question and its input. A window without start or end extends as far as the input does."""

    inputs: tuple[str, ...]
    statistics: tuple[Statistic, ...]
    start_us: int | None = None
    end_us: int | None = None
    cluster_id: str | None = None
    step_us: int | None = None
    grouping: Grouping = Grouping.PARTITION

    @property
    def reads_samples(self) -> bool:
        """Whether any of the statistics reads samples."""
        return any(one.reads_samples for one in self.statistics)


def chosen(names: Sequence[str]) -> tuple[Statistic, ...]:
    """The statistics named like `s1`, `S01` or `hw_lag`, each once, in order of their numbers.

    Raises:
        ValueError: there is no such statistic.
    """
    by_name = {key: one for one in ALL.values() for key in (one.id, f"s{int(one.id[1:])}", one.name)}
    wrong = [name for name in names if name.lower() not in by_name]
    if wrong:
        known = ", ".join(f"{one.id} {one.name}" for one in ALL.values())
        raise ValueError(f"there is no statistic {wrong[0]!r}; there are: {known}")
    asked = {by_name[name.lower()].id for name in names}
    return tuple(one for one in ALL.values() if one.id in asked)


def files_for(
    spark: SparkSession, question: Question, noticed: Callable[[str], None] = lambda said: None
) -> list[ExportedFile]:
    """The files that a question is answered from; ``noticed`` as for `find_exports`."""
    wanted = needed(question.start_us, question.end_us, samples=question.reads_samples)
    return find_exports(spark, question.inputs, cluster_id=question.cluster_id, wanted=wanted, noticed=noticed)


def scope_of(spark: SparkSession, question: Question, files: Sequence[ExportedFile]) -> Scope:
    """The window and its steps; an end that was not given is that of the events.

    Raises:
        NothingThere: no file is in the window, or none has an event.
        TooLong: there are more windows than a request can sensibly ask for.
        DamagedFile: a file that no manifest describes cannot be read.
    """
    if not files:
        raise NothingThere(
            f"{', '.join(question.inputs)} has no exported hour in that window; see: strandline analytics coverage"
        )
    spans = _spans(spark, files, is_open=None in (question.start_us, question.end_us))
    if not spans:
        raise NothingThere(
            f"{len(files)} files in {', '.join(question.inputs)} hold not one event; the first: {files[0].shown}. Give "
            "the directory that services have as export_dir, or wait for what they export"
        )
    start_us = min(first for first, _ in spans) if question.start_us is None else question.start_us
    end_us = max(end for _, end in spans) if question.end_us is None else question.end_us
    if end_us <= start_us:
        raise NothingThere("the window begins after the end of what is there; see: strandline analytics coverage")
    scope = Scope(start_us=start_us, end_us=end_us, step_us=question.step_us, grouping=question.grouping)
    if (windows := (end_us - start_us) // scope.step) > MOST_WINDOWS:
        first = min(files, key=lambda file: file.span_us)
        raise TooLong(
            f"from the first event, in {first.shown}, to the last there are {windows:,} windows of that step, at most "
            f"{MOST_WINDOWS:,} are computed. If a clock was wrong there, give --from and --to; else a longer --step"
        )
    return scope


def _spans(spark: SparkSession, files: Sequence[ExportedFile], *, is_open: bool) -> list[tuple[int, int]]:
    """The time spans of the files' events, us; files without events are left out.

    Args:
        is_open: whether an end of the window follows from the spans; if not, the hour of a file that no manifest
        describes is enough, and the file is not read here.
    """
    spans = [file.span_us for file in files if file.manifest is not None and file.manifest.rows]
    unproven = [file for file in files if file.manifest is None]
    if not unproven:
        return spans
    if spans and not is_open:
        return spans + [file.span_us for file in unproven]
    reported = span_of_rows(spark, unproven)
    return spans if reported is None else [*spans, reported]


def answers(
    spark: SparkSession,
    question: Question,
    files: Sequence[ExportedFile],
    noticed: Callable[[Sequence[str]], None] = lambda said: None,
) -> Iterator[tuple[Statistic, list[dict[str, Any]]]]:
    """The rows of each statistic, in the order of the question; ``noticed`` gets remarks on the rows."""
    scope = scope_of(spark, question, files)
    silver = read_exports(spark, files, samples=question.reads_samples)
    noticed(unread(not_understood(silver.transitions)))

    def rows(statistic: Statistic, found: DataFrame) -> list[dict[str, Any]]:
        names = set(found.columns) - {value.name for value in statistic.values}
        order = [name for name in statistic.columns(scope) if name in names]
        shown = with_any_value(statistic, silver, found)
        return [row.asDict(recursive=True) for row in shown.orderBy(*order).collect()]

    asked = [(statistic, scope) for statistic in question.statistics]
    yield from zip(question.statistics, together(silver, asked, rows), strict=True)


# ---- thresholds
# Parses thresholds such as `under_min_ms>0`: a column of a statistic, a unit, a comparison, a number.
#
# Declared columns are in microseconds (`_us`); a condition may name the same column in milliseconds (`_ms`) or seconds
# (`_s`). `s10.under_min_ms>0` names the statistic as well.
#
# Invariant: a null value fulfils no condition, because it is unknown.

_SHAPE = re.compile(r"\s*(?:(s\d+)\.)?([a-z_][a-z_0-9]*)\s*(>=|<=|==|!=|>|<|=)\s*(-?\d+(?:\.\d+)?)\s*")
_COMPARES: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}
_IN_US = {"_us": 1, "_ms": 1_000, "_s": 1_000_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One condition on the rows of a statistic."""

    text: str
    stat: str | None
    name: str
    compare: str
    number: float

    @classmethod
    def parse(cls, text: str) -> Threshold:
        """Read a condition.

        Raises:
            ValueError: it is not a condition.
        """
        found = _SHAPE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not a condition; write for example 'under_min_ms>0'")
        stat = f"s{int(found[1][1:]):02}" if found[1] else None
        return cls(text=text.strip(), stat=stat, name=found[2], compare=found[3], number=float(found[4]))

    def column(self, columns: Collection[str]) -> tuple[str, int] | None:
        """The declared column that the condition means, and how many of its units make one of the condition's units."""
        if self.name in columns:
            return self.name, 1
        for suffix, factor in _IN_US.items():
            declared = f"{self.name.removesuffix(suffix)}_us"
            if self.name.endswith(suffix) and declared in columns:
                return declared, factor
        return None

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether a row fulfils the condition.

        Raises:
            ValueError: the row has no such column.
        """
        found = self.column(row.keys())
        if found is None:
            raise ValueError(f"{self.text!r}: there is no column {self.name}; there are: {', '.join(row)}")
        value = row[found[0]]
        return value is not None and _COMPARES[self.compare](value, self.number * found[1])
