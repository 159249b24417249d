"""Which positions rest on what was given before a partition was lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from strandline.client import TopicPartition
from strandline.client.consume.cursor import Cursor
from strandline.client.groups.committed_offsets import OffsetAndMetadata
from strandline.client.groups.committing import OlderAssignments, refusals
from strandline.core import types
from strandline.core.errors import ErrorCode, Outcome
from strandline.core.types import Offset

ZERO = TopicPartition("waves", 0)
KEY = types.TopicPartition("id", 0)


class _Reader:
    """A consumer of one partition, as far as it is needed here."""

    def __init__(self) -> None:
        fetching: Any = SimpleNamespace(cursors={})
        self._cursors: dict[types.TopicPartition, Cursor] = fetching.cursors
        self.older = OlderAssignments(fetching)

    def assigned(self, position: int) -> None:
        self._cursors[KEY] = Cursor("waves", KEY, seek_time=None, position=Offset(position))

    def given(self, until: int) -> None:
        cursor = self._cursors[KEY]
        assert cursor.position is not None
        self.older.gave(cursor, cursor.position)
        cursor.position = Offset(until)

    def sought(self, position: int) -> None:
        self.older.moved(self._cursors[KEY])
        self._cursors[KEY].seek(offset=Offset(position))

    def lost(self, committed: int | None = None) -> Cursor:
        cursor = self._cursors.pop(KEY)
        self.older.taken_away(cursor, None if committed is None else Offset(committed))
        return cursor

    @property
    def refused(self) -> list[int]:
        """The positions up to 12 that are refused outside of a transaction."""
        return [at for at in range(13) if self.older.refusals({ZERO: OffsetAndMetadata(Offset(at))})]

    @property
    def refused_in_a_transaction(self) -> list[int]:
        superseded = self.older.superseded()
        return [at for at in range(13) if refusals({ZERO: OffsetAndMetadata(Offset(at))}, superseded)]


def test_what_is_given_again_may_be_committed() -> None:
    """Below where reading began again another member has committed; above, the records are still to come."""
    reader = _Reader()
    reader.assigned(0)
    reader.given(8)
    reader.lost()
    assert reader.refused == reader.refused_in_a_transaction == [1, 2, 3, 4, 5, 6, 7, 8]
    reader.assigned(3)
    reader.given(5)

    assert reader.refused_in_a_transaction == [1, 2, 3, 6, 7, 8]
    reader.given(11)
    assert reader.refused_in_a_transaction == [1, 2, 3]


def test_where_reading_stands_may_be_committed_again_but_not_with_outputs() -> None:
    """It moves nothing; the outputs of the record below it are another member's, unless this one had committed it."""
    reader = _Reader()
    reader.assigned(0)
    reader.given(4)
    reader.lost()
    reader.assigned(4)
    assert (reader.refused, reader.refused_in_a_transaction) == ([1, 2, 3], [1, 2, 3, 4])
    reader.given(6)
    reader.lost(committed=6)
    reader.assigned(6)

    assert reader.refused_in_a_transaction == [1, 2, 3, 4, 5]


def test_a_seek_changes_nothing_of_what_was_given() -> None:
    """What was given before a seek was lost with the rest, and what was given again before one stays so."""
    reader = _Reader()
    reader.assigned(0)
    reader.given(4)
    reader.sought(2)
    reader.lost()
    assert reader.refused == [1, 2, 3, 4]
    reader.assigned(0)
    reader.given(2)
    reader.sought(9)

    assert reader.refused == [3, 4]


def test_what_a_blocking_consumer_reports_after_the_loss_was_given_before_it() -> None:
    """Its position follows with its next call, when the partition may be away, and back."""
    reader = _Reader()
    reader.assigned(0)
    cursor = reader.lost()
    cursor.position = Offset(3)
    reader.older.gave(cursor, Offset(0))
    reader.assigned(0)

    assert reader.refused == [1, 2, 3]


def test_a_refusal_is_definite() -> None:
    """It names the partition and the offset, and what to do; nothing was asked of the coordinator."""
    reader = _Reader()
    reader.assigned(0)
    reader.given(2)
    reader.lost()
    (refusal,) = reader.older.refusals({ZERO: OffsetAndMetadata(Offset(2))}).values()

    assert (refusal.code, refusal.outcome) == (ErrorCode.STALE_MEMBER_EPOCH, Outcome.NOT_APPENDED)
    assert "below offset 2 of waves-0" in refusal.message
    assert "poll again" in refusal.message
