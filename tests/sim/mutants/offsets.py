"""Mutants of committed offsets: who may commit what, inside a transaction or without one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

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

MUTANTS: tuple[Mutant, ...] = ()


# R53: any member commits for every partition.


def _member_is_enough(real: Real, *given: Any) -> bool:
    return True


MUTANTS += (
    Mutant(
        number="R53",
        name="commit checked by member id only",
        broken="A member commits for partitions that it does not hold, and in epochs in which it did not hold them.",
        source="G20; zombies of consumer groups (KIP-447)",
        tests=("tests/core/groups/test_commits.py",),
        layers=(Layer.TESTS, Layer.SEEDS),
        profiles=("members",),
        swaps=(Swap(commits, "may_commit", _member_is_enough),),
    ),
)


# R57, R58: offsets that a transaction has staged are forgotten, or count although something newer was committed.


def _staged_or_not(
    real: Real, group: Group, subscribed: Collection[str], unix_ms: int, retention_ms: int
) -> Iterator[TopicPartition]:
    staged, group.staged = group.staged, {}
    try:
        found = list(real(group, subscribed, unix_ms, retention_ms))
    finally:
        group.staged = staged
    if staged:
        real.differs()
    yield from found


def _whatever_is_decided_last(real: Real, *given: object) -> bool:
    return True


MUTANTS += (
    Mutant(
        number="R57",
        name="expiry ignores staged offsets",
        broken="A committed offset expires under an open transaction, whose abort then leaves the group without one.",
        source="G29, X16",
        tests=("tests/core/groups/test_offsets_in_transactions.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(admin, "_expired", _staged_or_not, pure=False),),
    ),
    Mutant(
        number="R58",
        name="promotion by the order of the markers",
        broken="A marker puts an offset over one that was committed after it was staged: the group goes back.",
        source="G26, X16",
        scenario="x16_later_commit_counts",
        tests=("tests/core/groups/test_offsets_in_transactions.py",),
        layers=(Layer.TESTS, Layer.SCENARIOS),
        swaps=(Swap(commits, "counts", _whatever_is_decided_last),),
    ),
)


# 73: a commit is taken in the member's own epoch alone.


def _only_now(
    real: Real, current: CurrentValue, owner: tuple[str, int] | None, member_id: str, given_epoch: int
) -> bool:
    return bool(real(current, owner, member_id, given_epoch)) and given_epoch == current.member_epoch


MUTANTS += (
    Mutant(
        number="73",
        name="commit needs equal epochs",
        broken="Every commit that crosses a heartbeat is refused.",
        source="G20; KAFKA-20066, KIP-1251",
        tests=("tests/core/groups/test_commits.py", "tests/core/groups/test_fold.py"),
        layers=(Layer.TESTS,),
        swaps=(Swap(commits, "may_commit", _only_now),),
    ),
)


# 77: a consumer that commits by itself commits what its user still works on.


def _all_that_was_given(real: Real, self: GroupCommits) -> Positions:
    real.differs()
    return self.given()


MUTANTS += (
    Mutant(
        number="77",
        name="what is in hand is committed by itself",
        broken="Records that were being worked on at a crash are never given again.",
        source="U4",
        tests=("tests/client/test_group_offsets.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(GroupCommits, "worked_on", _all_that_was_given, pure=False),),
    ),
)


# 81: what a transaction consumed is not consumed again after its abort.


def _stays(real: Real, self: Consumer) -> None:
    real.differs()


def _reads_on(real: Real, self: Copier) -> None:
    if self._open is not None and self._open.offsets:
        real.differs()
        self._position = self._open.offsets[0].offset
    Transactor._forget(self)


MUTANTS += (
    Mutant(
        number="81a",
        name="abort without rewind",
        broken="The next transaction skips what the aborted one had consumed: an input without an output.",
        source="U11",
        tests=("tests/client/test_client_transactions.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(Consumer, "_rewind", _stays, pure=False),),
    ),
    Mutant(
        number="81b",
        name="a simulated process reads on behind an abort",
        broken="The inputs of an aborted transaction have no output, and the offset passes them all the same.",
        source="X16; KIP-447, whose example resets the consumer after an abort",
        tests=("tests/sim/test_sim_seeds.py::test_a_seed_of_copiers_breaks_nothing",),
        layers=(Layer.TESTS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(Copier, "_forget", _reads_on, pure=False),),
    ),
)


# 91 to 93: offsets in a transaction that replace each other, come too late, or of who has the partition no longer.


def _one_row_each(real: Real, self: StagingProducers, key: StagedOffsetKey, value: StagedOffsetValue | None) -> None:
    rows = self.staged.get(key.producer_id, {})
    if value is not None and rows and key not in rows:
        real.differs()
        rows.clear()
    real(self, key, value)


def _no_second_look(real: Real, producers: StagingProducers, request: TxnOffsetCommit) -> Refusal | None:
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
    refusal: Refusal | None = real(group, request, tp)
    return refusal


MUTANTS += (
    Mutant(
        number="91",
        name="staged offsets are known by their producer alone",
        broken="Of the offsets that a transaction commits for several partitions only the last one counts.",
        source="X16; Redpanda #5163",
        scenario="x16_offsets_of_other_partitions",
        layers=(Layer.SCENARIOS,),
        swaps=(Swap(StagingProducers, "_stage", _one_row_each, pure=False),),
    ),
    Mutant(
        number="92",
        name="offsets of a transaction that is over are staged",
        broken="A commit whose consent arrives behind the marker is staged, and no marker will ever end it.",
        source="X10, X16; KAFKA-14402",
        scenario="x16_late_offsets",
        layers=(Layer.SCENARIOS,),
        swaps=(Swap(commits, "_refusal_of_producer", _no_second_look),),
    ),
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
