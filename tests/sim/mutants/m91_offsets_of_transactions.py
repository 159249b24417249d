"""91 to 93: offsets in a transaction that replace each other, come too late, or of who has the partition no longer."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.core.errors import Refusal
from strandline.core.groups import commits
from strandline.core.groups.commits import StagingProducers
from strandline.core.groups.group import Group
from strandline.core.groups.messages import OffsetCommit, TxnOffsetCommit
from strandline.core.groups.records import StagedOffsetKey, StagedOffsetValue
from strandline.core.types import TopicPartition


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


MUTANTS = (
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
