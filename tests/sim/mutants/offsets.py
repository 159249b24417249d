"""Mutants of committed offsets: who may commit what, inside a transaction or without one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from mutants.mutant import MUTANTS, Layer, Mutant, Real, Swap, mutant

from strandline.client.consumer import Consumer
from strandline.client.groups.committing import Positions
from strandline.client.groups.group_commits import GroupCommits
from strandline.core.errors import Refusal
from strandline.core.groups import admin, commits
from strandline.core.groups.commits import StagingProducers
from strandline.core.groups.group import Group
from strandline.core.groups.messages import OffsetCommit, TxnOffsetCommit
from strandline.core.groups.records import CurrentValue, StagedOffsetKey, StagedOffsetValue
from strandline.core.types import TopicPartition
from strandline_sim.clients.copiers import Copier
from strandline_sim.clients.transactors import Transactor


@mutant(commits, "may_commit", tests="tests/core/groups/test_commits.py", profiles="members", layers="tests seeds")
def _member_is_enough(real: Real, *given: Any) -> bool:
    """R53: commit checked by member id only (G20; zombies of consumer groups (KIP-447)).

    A member commits for partitions that it does not hold, and in epochs in which it did not hold them.
    """
    return True


# R57, R58: offsets that a transaction has staged are forgotten, or count although something newer was committed.


@mutant(admin, "_expired", tests="tests/core/groups/test_offsets_in_transactions.py", layers="tests", pure=False)
def _staged_or_not(
    real: Real, group: Group, subscribed: Collection[str], unix_ms: int, retention_ms: int
) -> Iterator[TopicPartition]:
    """R57: expiry ignores staged offsets (G29, X16).

    A committed offset expires under an open transaction, whose abort then leaves the group without one.
    """
    staged, group.staged = group.staged, {}
    try:
        found = list(real(group, subscribed, unix_ms, retention_ms))
    finally:
        group.staged = staged
    if staged:
        real.differs()
    yield from found


@mutant(
    commits,
    "counts",
    "x16_later_commit_counts",
    tests="tests/core/groups/test_offsets_in_transactions.py",
    layers="tests scenarios",
)
def _whatever_is_decided_last(real: Real, *given: object) -> bool:
    """R58: promotion by the order of the markers (G26, X16).

    A marker puts an offset over one that was committed after it was staged: the group goes back.
    """
    return True


@mutant(commits, "may_commit", tests="tests/core/groups/test_commits.py tests/core/groups/test_fold.py", layers="tests")
def _only_now(
    real: Real, current: CurrentValue, owner: tuple[str, int] | None, member_id: str, given_epoch: int
) -> bool:
    """73: commit needs equal epochs (G20; KAFKA-20066, KIP-1251).

    Every commit that crosses a heartbeat is refused.
    """
    return bool(real(current, owner, member_id, given_epoch)) and given_epoch == current.member_epoch


@mutant(GroupCommits, "worked_on", tests="tests/client/test_group_offsets.py", layers="tests", pure=False)
def _all_that_was_given(real: Real, self: GroupCommits) -> Positions:
    """77: what is in hand is committed by itself (U4).

    Records that were being worked on at a crash are never given again.
    """
    real.differs()
    return self.given()


@mutant(Consumer, "_rewind", tests="tests/client/test_client_transactions.py", layers="tests", pure=False)
def _stays(real: Real, self: Consumer) -> None:
    """81a: abort without rewind (U11).

    The next transaction skips what the aborted one had consumed: an input without an output.
    """
    real.differs()


@mutant(
    Copier,
    "_forget",
    tests="tests/sim/test_sim_seeds.py::test_a_seed_of_copiers_breaks_nothing",
    profiles="transactions",
    layers="tests seeds",
    pure=False,
)
def _reads_on(real: Real, self: Copier) -> None:
    """81b: a simulated process reads on behind an abort
    (X16; KIP-447, whose example resets the consumer after an abort).

    The inputs of an aborted transaction have no output, and the offset passes them all the same.
    """
    if self._open is not None and self._open.offsets:
        real.differs()
        self._position = self._open.offsets[0].offset
    Transactor._forget(self)


# 91 to 93: offsets in a transaction that replace each other, come too late, or of who has the partition no longer.


@mutant(StagingProducers, "_stage", "x16_offsets_of_other_partitions", layers="scenarios", pure=False)
def _one_row_each(real: Real, self: StagingProducers, key: StagedOffsetKey, value: StagedOffsetValue | None) -> None:
    """91: staged offsets are known by their producer alone (X16; Redpanda #5163).

    Of the offsets that a transaction commits for several partitions only the last one counts.
    """
    rows = self.staged.get(key.producer_id, {})
    if value is not None and rows and key not in rows:
        real.differs()
        rows.clear()
    real(self, key, value)


@mutant(commits, "_refusal_of_producer", "x16_late_offsets", layers="scenarios")
def _no_second_look(real: Real, producers: StagingProducers, request: TxnOffsetCommit) -> Refusal | None:
    """92: offsets of a transaction that is over are staged (X10, X16; KAFKA-14402).

    A commit whose consent arrives behind the marker is staged, and no marker will ever end it.
    """
    return None


def _whoever_commits(real: Real, group: Group, request: OffsetCommit | TxnOffsetCommit) -> Refusal | None:
    return None if isinstance(request, TxnOffsetCommit) else real(group, request)


def _whoever_owns(
    real: Real, group: Group, request: OffsetCommit | TxnOffsetCommit, tp: TopicPartition
) -> Refusal | None:
    if isinstance(request, TxnOffsetCommit):
        # The right rule would fail: it is asked of members alone.
        real.differs()
        return None
    return real(group, request, tp)


MUTANTS += (
    Mutant(
        number="93",
        name="a transaction's offsets are taken of any member",
        broken="A process that lost its partitions commits what it read of them, as the new owner does.",
        source="X18; KIP-447",
        scenario="x18_member_without_its_partitions",
        layers=(Layer.SCENARIOS,),
        swaps=(
            Swap(commits, "refusal_of_committer", _whoever_commits),
            Swap(commits, "refusal_of_owner", _whoever_owns, pure=False),
        ),
    ),
)
