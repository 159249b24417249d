"""Which of several logs certainly holds everything committed: prefixes, forks, log starts, older releases (M65)."""

from __future__ import annotations

from itertools import permutations

import pytest
from core_builders import TP, entries
from hypothesis import given
from hypothesis import strategies as st

from strandline.core.control.election import extends, most_complete
from strandline.core.messages import ReplicaLogInfo
from strandline.core.types import LeaderEpoch, Offset


def log(*spans: tuple[int, int], leo: int, reconciled: int | None = None, start: int = 0) -> ReplicaLogInfo:
    """A log of (epoch, start offset) spans."""
    known = None if reconciled is None else LeaderEpoch(reconciled)
    return ReplicaLogInfo(TP, LeaderEpoch(9), Offset(start), Offset(leo), entries(*spans), known)


def test_the_longer_of_two_equal_histories_wins() -> None:
    """A log that lost its tail is a prefix of one that did not, whichever log it was reconciled with."""
    whole, cut = log((0, 0), (2, 5), leo=9, reconciled=2), log((0, 0), leo=4, reconciled=7)

    assert extends(whole, cut)
    assert not extends(cut, whole)
    assert [most_complete(pair) for pair in ((whole, cut), (cut, whole))] == [0, 1]


def test_of_equal_logs_the_one_that_deleted_more_wins() -> None:
    """A restored directory may hold records again that were deleted for good (I27)."""
    trimmed, put_back = log((0, 3), start=3, leo=9, reconciled=2), log((0, 0), leo=9, reconciled=2)

    assert [most_complete(pair) for pair in ((trimmed, put_back), (put_back, trimmed))] == [0, 1]


def test_of_two_forked_logs_the_later_reconciled_one_wins() -> None:
    """The shorter log's last record is of a newer epoch, so neither log proves what was committed."""
    committed = log((0, 0), leo=2, reconciled=2)
    forked = log((0, 0), (1, 1), leo=5, reconciled=1)

    assert not extends(forked, committed)
    assert not extends(committed, forked)
    assert [most_complete(pair) for pair in ((committed, forked), (forked, committed))] == [0, 1]


def test_a_log_that_ends_below_another_ones_start_is_its_prefix() -> None:
    """Records below a log start were committed, so a log that ends there lacks records that the other has."""
    trimmed, old = log((3, 10), leo=12, reconciled=3, start=10), log((0, 0), leo=8, reconciled=9)

    assert extends(trimmed, old)
    assert most_complete((old, trimmed)) == 1


def test_an_epoch_without_records_decides_nothing() -> None:
    """A leader's own epoch that begins at its log end (M35) does not make its log a different one."""
    led, followed = log((0, 0), (4, 6), leo=6, reconciled=4), log((0, 0), leo=7, reconciled=3)

    assert extends(followed, led)
    assert most_complete((led, followed)) == 1


def test_an_empty_log_is_a_prefix_of_every_other() -> None:
    """A log without records loses to one with a record, and two of them are equal."""
    empty = log(leo=0, reconciled=8)

    assert most_complete((empty, log((0, 0), leo=1, reconciled=0))) == 1
    assert not extends(empty, empty)


def test_a_log_that_does_not_know_where_it_was_reconciled_comes_last() -> None:
    """Directories of older releases carry no such data; of two such, the newer last epoch counts, then the length."""
    unknown = [log((0, 0), leo=9), log((0, 0), (2, 3), leo=4), log((0, 0), (2, 3), leo=5)]

    assert most_complete([*unknown, log((0, 0), (1, 2), leo=3, reconciled=1)]) == 3
    assert most_complete(unknown) == 2


class History:
    """A partition under the protocol: leaders that hold all committed records, followers that agree before they count.

    A log is a tuple of the epochs that wrote its records; a replica that is restored goes back to an earlier state.
    """

    def __init__(self, replicas: int) -> None:
        self.logs: list[tuple[int, ...]] = [()] * replicas
        self.reconciled = [0] * replicas
        self.committed: tuple[int, ...] = ()
        self.past = [[((), 0)] for _ in range(replicas)]
        self.epoch = 0
        self.leader = 0

    def elect(self, leader: int) -> None:
        """A replica that holds all committed records begins an epoch."""
        if self.logs[leader][: len(self.committed)] == self.committed:
            self.epoch += 1
            self.leader = leader
            self._reconcile(leader)

    def write(self) -> None:
        """The leader appends a record."""
        self.logs[self.leader] = (*self.logs[self.leader], self.epoch)
        self._keep(self.leader)

    def follow(self, replica: int, count: int) -> None:
        """A replica agrees with the leader, then takes some of its records."""
        if replica == self.leader:
            return
        own, theirs = self.logs[replica], self.logs[self.leader]
        same = next(
            (i for i, (a, b) in enumerate(zip(own, theirs, strict=False)) if a != b), min(len(own), len(theirs))
        )
        self.logs[replica] = own[:same]
        self._reconcile(replica)
        self.logs[replica] = theirs[: min(len(theirs), same + count)]
        self._keep(replica)

    def commit(self) -> None:
        """Commit the records of every replica that agreed with this epoch's leader; all of them must have agreed."""
        if all(epoch == self.epoch for epoch in self.reconciled):
            length = min(map(len, self.logs))
            self.committed = self.logs[self.leader][:length] if length > len(self.committed) else self.committed

    def _reconcile(self, replica: int) -> None:
        self.reconciled[replica] = self.epoch
        self._keep(replica)

    def _keep(self, replica: int) -> None:
        self.past[replica].append((self.logs[replica], self.reconciled[replica]))

    def info(self, records: tuple[int, ...], reconciled: int) -> ReplicaLogInfo:
        """The report of a replica in that state."""
        spans = [(epoch, i) for i, epoch in enumerate(records) if not i or records[i - 1] != epoch]
        return log(*spans, leo=len(records), reconciled=reconciled)


STEPS = st.one_of(
    st.tuples(st.just("elect"), st.integers(0, 2)),
    st.tuples(st.just("write"), st.just(0)),
    st.tuples(st.just("follow"), st.integers(0, 2)),
    st.tuples(st.just("commit"), st.just(0)),
)


@given(st.lists(STEPS, max_size=40), st.integers(0, 2), st.data())
def test_nothing_committed_is_lost_with_one_loss(
    steps: list[tuple[str, int]], victim: int, data: st.DataObject
) -> None:
    """Whichever earlier state one of three replicas goes back to, the elected log holds all committed records."""
    history = History(3)
    for name, replica in steps:
        if name == "elect":
            history.elect(replica)
        elif name == "write":
            history.write()
        elif name == "follow":
            history.follow(replica, data.draw(st.integers(0, 3)))
        else:
            history.commit()
    past, reconciled = data.draw(st.sampled_from(history.past[victim]))
    length = data.draw(st.integers(0, len(past)))
    whole = [n for n in range(3) if n != victim]
    for other in whole:
        pair = [(history.logs[other], history.reconciled[other]), (past[:length], reconciled)]
        for order in permutations(pair):
            chosen, _ = order[most_complete([history.info(*state) for state in order])]

            assert chosen[: len(history.committed)] == history.committed


@pytest.mark.parametrize("epochs", [(), (0,), (0, 0, 2)])
def test_one_log_is_its_own_choice(epochs: tuple[int, ...]) -> None:
    """With a single report there is nothing to compare."""
    assert most_complete([History(1).info(epochs, 0)]) == 0
