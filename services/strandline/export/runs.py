"""How numbered events travel to the outlets: many at a time, as the core gave them.

Making a row of an event costs more than all the rest of its way, so an outlet makes rows only of what it writes as
rows; Parquet is built by column instead (`columns.py`).

Invariant: a run is of one emitter, and its numbers rise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from strandline.core.state_events import DATASET_OF, SAMPLES, TRANSITIONS
from strandline.export.layout import hour_of
from strandline.export.rows import Emitter, Row, Taken, to_row

_EVENT: Final = 2
"""The place of `Taken.event`; a number is read in a third of the time of a name."""

TopicName = Callable[[str], str | None]
"""The name of a topic id, if it is known."""


@dataclass(frozen=True, slots=True)
class Run:
    """Events with their numbers."""

    emitter: Emitter
    seqs: Sequence[int]
    events: Sequence[Taken]
    topic_name: TopicName

    def rows(self) -> list[Row]:
        """The events as rows."""
        numbered = zip(self.events, self.seqs, strict=True)
        return [to_row(event, seq, self.emitter, self.topic_name) for event, seq in numbered]

    def of(self, dataset: str) -> Run:
        """Those events that belong to a dataset; possibly none."""
        return self.by_dataset().get(dataset) or self._part(())

    def by_dataset(self) -> dict[str, Run]:
        """The events of each dataset that has any, the transitions first."""
        kinds = [type(event[_EVENT]) for event in self.events]
        # There are few kinds and many events: what is decided is decided once for each kind.
        known = {kind: DATASET_OF[kind] for kind in set(kinds)}
        present = [dataset for dataset in (TRANSITIONS, SAMPLES) if dataset in known.values()]
        if len(present) == 1:
            return {present[0]: self}
        return {
            dataset: self._part([i for i, kind in enumerate(kinds) if known[kind] == dataset]) for dataset in present
        }

    def by_hour(self) -> Iterator[tuple[int, Run]]:
        """Stretches of one hour (counted from 1970) each; a clock that jumps makes several of the same hour."""
        walls = [event.wall_us for event in self.events]
        if hour_of(min(walls)) == hour_of(max(walls)):
            yield hour_of(walls[0]), self
            return
        begin = 0
        for end in range(1, len(walls) + 1):
            if end == len(walls) or hour_of(walls[end]) != hour_of(walls[begin]):
                yield hour_of(walls[begin]), self._part(range(begin, end))
                begin = end

    def _part(self, places: Sequence[int]) -> Run:
        if len(places) == len(self.events):
            return self
        seqs, events = self.seqs, self.events
        return Run(self.emitter, [seqs[i] for i in places], [events[i] for i in places], self.topic_name)
