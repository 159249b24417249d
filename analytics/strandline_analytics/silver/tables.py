"""Decides what statistics may read: the silver tables, made once and shared by all.

Invariant: what stands in `Silver.control` and `Silver.changes` never comes from samples; a statistic of the ISR reads
transitions only (`state-events` 2.5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline_analytics.scope import PARTITION_KEY, Grouping, Scope
from strandline_analytics.silver.clocks import clock_offsets
from strandline_analytics.silver.control import control_rows, control_states, terms
from strandline_analytics.silver.events import IDENTITY
from strandline_analytics.silver.kept import kept, let_go
from strandline_analytics.silver.looks import looks
from strandline_analytics.silver.places import PLACE, in_groups, numbered


def _leave_alone(_: bool) -> None:
    """For tables that are part of something larger, whose session is set up already."""


@dataclass(frozen=True)
class Silver:
    """Tables that are made when first asked for, and kept.

    - ``transitions``: distinct events, with ``n_copies``.
    - ``samples``: rows as written; None where only transitions were read.
    - ``input_hash``: names the files that everything was read from.
    - ``end_us``: what is told later may change what is known of partitions, but adds none; None: everything counts.
    """

    transitions: DataFrame
    samples: DataFrame | None = None
    input_hash: str = "none"
    end_us: int | None = None
    fit: Callable[[bool], None] = _leave_alone
    """Sets the session up for a query that reads transitions alone (false), or samples too (true)."""
    _kept: dict[tuple[object, ...], DataFrame] = field(default_factory=dict, repr=False, compare=False)

    def keep(self, name: tuple[object, ...], make: Callable[[], DataFrame], *, samples: bool = False) -> DataFrame:
        """A small table that several statistics of one question share: made for the first of them, and kept.

        Args:
            samples: whether it is made of samples too.
        """
        if name not in self._kept:
            made = make()
            self.fit(samples)
            self._kept[name] = kept(made)
        return self._kept[name]

    def _kept_small(self, make: Callable[[], DataFrame]) -> DataFrame:
        made = make()
        self.fit(False)
        return kept(made)

    @cached_property
    def control_rows(self) -> DataFrame:
        """The controller's rows about partitions, with corrected time ``t`` (`control.control_rows`)."""
        return self._kept_small(lambda: control_rows(self.transitions))

    @cached_property
    def control(self) -> DataFrame:
        """Leader, ISR, minimum and replicas as step functions (`control.control_states`)."""
        return self._kept_small(lambda: control_states(self.control_rows))

    @cached_property
    def terms(self) -> DataFrame:
        """When each leader epoch was in force (`control.terms`)."""
        return self._kept_small(lambda: terms(self.control_rows))

    @cached_property
    def clock_offsets(self) -> DataFrame:
        """What the controller measured of the nodes' clocks (`clocks.clock_offsets`)."""
        return self._kept_small(lambda: clock_offsets(self.transitions))

    @cached_property
    def looks(self) -> DataFrame:
        """All looks of leaders at replicas as intervals, zombies and doubles included (`looks.looks`).

        Kept, for eight statistics read them; what does not fit into memory goes to disk.
        """
        assert self.samples is not None, "these tables were opened without samples"
        made = looks(self.samples, self.terms)
        self.fit(True)
        return kept(made)

    @property
    def reads_samples(self) -> bool:
        """Whether samples were opened too."""
        return self.samples is not None

    @cached_property
    def believed_looks(self) -> DataFrame:
        """The looks that statistics use."""
        return self.looks.where("NOT is_zombie AND NOT is_double AND t1 > t0").drop("is_zombie", "is_double")

    @cached_property
    def keys(self) -> DataFrame:
        """Every partition that the control plane spoke of: cluster_id, topic_id, topic, partition."""
        told = self.control_rows if self.end_us is None else self.control_rows.where(F.col("t") < self.end_us)
        return self._kept_small(lambda: told.select(*PARTITION_KEY, "topic").distinct())

    @cached_property
    def places(self) -> DataFrame:
        """The partitions of `keys` with the number ``PLACE`` that rows of samples have in place of their names."""
        return self._kept_small(lambda: numbered(self.keys, PARTITION_KEY))

    def grouped(self, rows: DataFrame, scope: Scope) -> DataFrame:
        """Rows of partitions, told apart by ``PLACE``, as rows of the groups of a scope, told apart by it as well."""
        return in_groups(rows, self.places, scope)

    def named(self, figures: DataFrame, scope: Scope) -> DataFrame:
        """Figures of groups, told apart by ``PLACE``, with the names of the groups in its stead.

        What is of a partition that the control plane never spoke of has no name, and no place in a result.
        """
        return figures.join(F.broadcast(self._names(scope.grouping)), PLACE).drop(PLACE)

    def _names(self, grouping: Grouping) -> DataFrame:
        if grouping is Grouping.PARTITION:
            return self.places
        names = list(grouping.value)
        return self.keep(("names", grouping), lambda: numbered(self.keys.select(*names).distinct(), names))

    def release(self) -> None:
        """Let go of what was kept; the tables can still be read, and are then made anew."""
        frames = [value for value in (*vars(self).values(), *self._kept.values()) if isinstance(value, DataFrame)]
        self._kept.clear()
        for frame in frames:
            let_go(frame)

    def of_type(self, *types: str) -> DataFrame:
        """The transitions of some types."""
        return self.transitions.where(F.col("event_type").isin(*types))

    def written_samples(self, *types: str) -> DataFrame:
        """The rows of some types of samples as they were written, copies among them."""
        assert self.samples is not None, "these tables were opened without samples"
        return self.samples.where(F.col("event_type").isin(*types))

    def samples_of_type(self, *types: str) -> DataFrame:
        """The rows of some types of samples, copies of an event once."""
        rows = self.written_samples(*types)
        # The key of the partition changes nothing, and lets rows stay where they are grouped by it.
        return rows.dropDuplicates([*PARTITION_KEY, *IDENTITY])
