"""Provides the tables that statistics may read: the silver tables, made once and shared by all.

Invariant: `Silver.control` and `Silver.changes` never come from samples; a statistic of the ISR reads transitions only,
because samples are the first to be dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, TypeVar

from pyspark.sql import DataFrame, functions as F

from strandline_analytics.scope import PARTITION_KEY, Grouping, Scope
from strandline_analytics.session import planned_at_once
from strandline_analytics.silver.clocks import Clocks, clock_offsets, clocks, epoch_starts
from strandline_analytics.silver.control import control_rows, control_states, last_words, terms
from strandline_analytics.silver.kept import PLACE, in_groups, kept, let_go, numbered, tables_are_rows
from strandline_analytics.silver.looks import looks
from strandline_analytics.sources.kafka.source_words import Levels

_Planned = TypeVar("_Planned")


def _as_it_is(query: DataFrame, _: bool) -> DataFrame:
    return query


@dataclass(frozen=True)
class Silver:
    """Tables that are made on first use, by any thread, and kept.

    - ``transitions``: distinct events, with ``n_copies``.
    - ``samples``: rows as written; None where only transitions were read.
    - ``input_hash``: names the files that everything was read from.
    - ``end_us``: later reports may change the knowledge of partitions, but add no partition; None if there is no end.
    """

    transitions: DataFrame
    samples: DataFrame | None = None
    input_hash: str = "none"
    end_us: int | None = None
    fit: Callable[[DataFrame, bool], DataFrame] = _as_it_is
    """Fits the execution of a query to its input: transitions alone (false), which are the small part, or samples too.

    Otherwise a frame that is made of several is executed like the first of them, whatever its own size.
    """
    beside: DataFrame | None = None
    """A further table that is kept for the transitions (`events.distinct_events`)."""
    kafka: Levels = field(default_factory=dict, hash=False)
    """The Kafka clusters, whose events lack much of what ours have, and their sources."""
    kafka_sources: tuple[str, ...] = ()
    """Sentences on the origin of those exports."""
    _kept: dict[tuple[object, ...], DataFrame] = field(default_factory=dict, repr=False, compare=False)
    _planned: dict[tuple[object, ...], Any] = field(default_factory=dict, repr=False, compare=False)
    _locks: dict[tuple[object, ...], RLock] = field(default_factory=dict, init=False, repr=False, compare=False)
    _making: RLock = field(default_factory=RLock, init=False, repr=False, compare=False)

    def keep(
        self, name: tuple[object, ...], make: Callable[[], DataFrame], *, samples: bool = False, in_place: bool = False
    ) -> DataFrame:
        """A table that several statistics share: made for the first of them, and kept.

        What does not fit into memory goes to disk.

        Args:
            samples: whether it is also made of samples.
            in_place: whether its rows are partitioned by ``PLACE``, which saves grouping by partition a shuffle.
        """
        with self._made_by_one(name):
            if name not in self._kept:
                made = self.fit(make(), samples)
                self._kept[name] = kept(planned_at_once(made) if in_place else made)
            return self._kept[name]

    def plan(self, name: tuple[object, ...], make: Callable[[], _Planned]) -> _Planned:
        """A frame that several statistics build on: planned for the first of them, and computed for each.

        Spark analyses every frame that is made, and for small input that costs more than computing it.
        """
        with self._made_by_one(name):
            if name not in self._planned:
                self._planned[name] = make()
            found: _Planned = self._planned[name]
            return found

    def _made_by_one(self, name: tuple[object, ...]) -> RLock:
        """A lock that is held while a table is made and, if kept as rows, computed; other tables need not wait for it.

        No table is made of itself, so threads that make several never deadlock.
        """
        with self._making:
            return self._locks.setdefault(name, RLock())

    @property
    def control_rows(self) -> DataFrame:
        """The controller's rows about partitions, with corrected time ``t`` (`control.control_rows`)."""
        return self.keep(("control rows",), lambda: control_rows(self.transitions))

    @property
    def control(self) -> DataFrame:
        """Leader, ISR, minimum and replicas as step functions (`control.control_states`)."""
        return self.keep(("control",), lambda: control_states(self.control_rows, last_words(self.transitions)))

    @property
    def terms(self) -> DataFrame:
        """When each leader epoch was in force (`control.terms`)."""
        return self.keep(("terms",), lambda: terms(self.control_rows))

    @property
    def known_control(self) -> DataFrame:
        """The intervals of `control` in which the state is known."""
        return self.plan(("known control",), lambda: self.control.where("known"))

    @property
    def clocks(self) -> Clocks:
        """The controller's measurements of the nodes' clocks (`clocks.clock_offsets`)."""

        def make() -> Clocks:
            return clocks(self.keep(("clock offsets",), lambda: clock_offsets(self.transitions)))

        return self.plan(("clocks",), make)

    @property
    def epoch_starts(self) -> DataFrame:
        """When leaders took up their epochs, in the controller's time (`clocks.epoch_starts`)."""
        reported = self.of_type("EPOCH_START")
        return self.keep(("epoch starts",), lambda: epoch_starts(reported, self.clocks))

    @property
    def looks(self) -> DataFrame:
        """All looks of leaders at replicas as intervals, zombies and doubles included (`looks.looks`)."""
        samples = self.samples
        assert samples is not None, "these tables were opened without samples"

        def make() -> DataFrame:
            return looks(samples, self.terms, self.epoch_starts, self.clocks, sorted(self.kafka))

        return self.keep(("looks",), make, samples=True, in_place=True)

    @property
    def reads_samples(self) -> bool:
        """Whether samples were opened as well."""
        return self.samples is not None

    @property
    def reads_few_samples(self) -> bool:
        """Whether samples are so few that reading them once more costs less than the job that keeps a table."""
        return self.samples is not None and tables_are_rows(self.samples.sparkSession)

    @property
    def believed_looks(self) -> DataFrame:
        """The looks that statistics use."""

        def make() -> DataFrame:
            return self.looks.where("NOT is_zombie AND NOT is_double AND t1 > t0").drop("is_zombie", "is_double")

        return self.plan(("believed looks",), make)

    @property
    def leaders_looks(self) -> DataFrame:
        """The looks of leaders at themselves, among those that statistics use: one for each whole look."""
        return self.plan(("leaders' looks",), lambda: self.believed_looks.where("is_leader"))

    def leaders_pieces(self, scope: Scope) -> DataFrame:
        """`leaders_looks` of groups of partitions, identified by ``PLACE``, cut at the borders of windows; ``dur`` is
        the length of a piece."""

        def make() -> DataFrame:
            return scope.clip(self.grouped(self.leaders_looks, scope)).withColumn("dur", F.col("t1") - F.col("t0"))

        return self.plan(("leaders' pieces", scope), make)

    @property
    def keys(self) -> DataFrame:
        """Every partition that the control plane reported: cluster_id, topic_id, topic, partition."""
        reported = self.control_rows if self.end_us is None else self.control_rows.where(F.col("t") < self.end_us)
        return self.keep(("keys",), lambda: reported.select(*PARTITION_KEY, "topic").distinct())

    @property
    def places(self) -> DataFrame:
        """The partitions of `keys` with the number ``PLACE`` that rows of samples have in place of their names."""
        return self.keep(("places",), lambda: numbered(self.keys, PARTITION_KEY))

    def grouped(self, rows: DataFrame, scope: Scope) -> DataFrame:
        """Rows of partitions, identified by ``PLACE``, as rows of the groups of a scope, which ``PLACE`` then
        identifies."""
        return in_groups(rows, self.places, scope)

    def named(self, figures: DataFrame, scope: Scope) -> DataFrame:
        """Figures of groups, identified by ``PLACE``, with the names of the groups in place of it.

        Figures of a partition that the control plane never reported have no name, and are left out of results.
        """
        names = self.plan(("names to join", scope.grouping), lambda: F.broadcast(self._names(scope.grouping)))
        return figures.join(names, PLACE).drop(PLACE)

    def _names(self, grouping: Grouping) -> DataFrame:
        if grouping is Grouping.PARTITION:
            return self.places
        names = list(grouping.value)
        return self.keep(("names", grouping), lambda: numbered(self.keys.select(*names).distinct(), names))

    def release(self) -> None:
        """Release what was kept; a table that is read afterwards is computed again, or cannot be (`kept.let_go`)."""
        with self._making:
            frames = [self.transitions, self.samples, self.beside, *self._kept.values()]
            self._kept.clear()
            self._planned.clear()
        for frame in frames:
            if frame is not None:
                let_go(frame)

    def of_type(self, *types: str) -> DataFrame:
        """The transitions of some types."""
        return self.transitions.where(F.col("event_type").isin(*types))

    def written_samples(self, *types: str) -> DataFrame:
        """The rows of some types of samples as they were written, copies among them."""
        assert self.samples is not None, "these tables were opened without samples"
        return self.samples.where(F.col("event_type").isin(*types))
