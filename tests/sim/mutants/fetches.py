"""Mutants of fetching: which fetch, claim, answer, or metadata is accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mutants.mutant import MUTANTS, Mutant, Real, Swap, mutant

from strandline.core.errors import Refusal
from strandline.core.log.fetcher import Fetcher
from strandline.core.log.follower import FetchState, FollowerReplica
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.metadata import MetadataChange, MetadataFollower
from strandline.core.messages import (
    FetchPartition,
    FetchRequest,
    FetchResult,
    MetadataImage,
    PartitionImage,
    ReplicaState,
)
from strandline.core.serving.fetch import Counted, FetchServing
from strandline.core.types import LeaderEpoch, NodeId, TopicPartition


@mutant(FetchServing, "_check", "r11_fetch_of_another_epoch")
def _any_epoch(
    real: Real, serving: FetchServing, part: FetchPartition, replica: ReplicaState | None, at_follower: bool
) -> Refusal | None:
    """R11: fetch fence skipped (KIP-320; TR4, TR5).

    A leader counts the fetch of a follower that lives in another leader epoch.
    """
    image = serving._state.images.get(part.tp)
    if replica is not None and image is not None and part.current_leader_epoch is not None:
        part = part._replace(current_leader_epoch=image.leader_epoch)
    return real(serving, part, replica, at_follower)


@mutant(FetchServing, "_receive", "tr12_diverging_fetch", pure=False)
def _counts_it(
    real: Real,
    serving: FetchServing,
    part: FetchPartition,
    request: FetchRequest,
    at_follower: bool,
    now_ms: int,
    counted: list[Counted],
) -> FetchResult:
    """13: diverging fetch counted (KAFKA-13141; TR12).

    A fetch that is answered with a divergence moves the remote log end of its sender all the same.
    """
    result: FetchResult = real(serving, part, request, at_follower, now_ms, counted)
    replica = request.replica
    leader = serving._state.leaders.get(part.tp)
    if result.diverging is not None and replica is not None and leader is not None:
        real.differs()
        counted.append(Counted(leader, replica.node_id, leader.observe_fetch(part, replica, now_ms)))
    return result


# 18 and 19: which answer belongs to the outstanding request.
# In these cores one number serves both: a request of an earlier leader epoch had another number. To remove the two
# fences one by one, the mutants store the leader epoch in which each request was sent.

Asked = dict[tuple[TopicPartition, int], LeaderEpoch]


def _asked(fetcher: Fetcher) -> Asked:
    return vars(fetcher).setdefault("asked_in_epoch", {})


def _remembers(
    real: Real, fetcher: Fetcher, kind: Any, leader: Any, followers: list[FollowerReplica], *rest: Any
) -> None:
    real(fetcher, kind, leader, followers, *rest)
    for follower in followers:
        assert follower.outstanding is not None
        _asked(fetcher)[follower.log.tp, follower.outstanding] = follower.leader_epoch


def _takes(*, any_number: bool, any_epoch: bool) -> Callable[..., FollowerReplica | None]:
    def asker(
        real: Real, fetcher: Fetcher, tp: TopicPartition, correlation_id: int, state: FetchState
    ) -> FollowerReplica | None:
        follower = fetcher._state.followers.get(tp)
        if follower is None or follower.state is not state:
            return None
        right_epoch = any_epoch or _asked(fetcher).get((tp, correlation_id)) == follower.leader_epoch
        right_number = any_number or follower.outstanding == correlation_id
        return follower if right_epoch and right_number else None

    return asker


_REMEMBERS = Swap(Fetcher, "_send", _remembers, pure=False)

MUTANTS += (
    Mutant(
        number="18",
        name="no correlation id on answers",
        broken="A follower takes any answer of its leader epoch for the answer to the question under way.",
        source="Vanlightly's Kafka model, marked CHECK",
        scenario="m18_second_copy_of_an_answer",
        swaps=(_REMEMBERS, Swap(Fetcher, "_asker", _takes(any_number=True, any_epoch=False))),
    ),
    Mutant(
        number="19",
        name="answer of an old epoch taken",
        broken="A follower does not compare the leader epoch in which a question was asked with the one it lives in.",
        source="Vanlightly's Kafka model, marked CHECK",
        swaps=(_REMEMBERS, Swap(Fetcher, "_asker", _takes(any_number=False, any_epoch=True))),
        masked_by="the correlation id (18): no question keeps its number over a change of leader epoch",
        pair=Mutant(
            number="18+19",
            name="any answer taken",
            broken="A follower takes any answer, of whichever question and epoch, for the one it waits for.",
            source="Vanlightly's Kafka model, marked CHECK",
            scenario="m18_second_copy_of_an_answer",
            swaps=(_REMEMBERS, Swap(Fetcher, "_asker", _takes(any_number=True, any_epoch=True))),
        ),
    ),
)


@mutant(MetadataFollower, "take", "tr15_metadata_for_a_dead_process", pure=False)
def _for_any_incarnation(
    real: Real, metadata: MetadataFollower, image: MetadataImage, out: list[Any]
) -> MetadataChange | None:
    """20: metadata of a previous process believed (KIP-380's class of bugs; TR15).

    A node believes metadata that was addressed to an earlier incarnation of itself.
    """
    ours = metadata._state.node_epoch
    if image.to_node_epoch != ours:
        real.differs()
        image = replace(image, to_node_epoch=ours)
    return real(metadata, image, out)


# 108, 109: the position that a follower claims.

_TESTS = "tests/core/test_leader_fetch.py"


@mutant(LeaderReplica, "check_claim", tests=_TESTS)
def _believes(real: Real, self: LeaderReplica, fetch: FetchPartition, node_id: NodeId) -> Refusal | None:
    """108: whatever a follower claims is counted (M70).

    A fetch in a follower's name acknowledges records that were never sent to it.
    """
    return None


@mutant(LeaderReplica, "_take_followers", tests=_TESTS, pure=False)
def _forgets(real: Real, self: LeaderReplica, image: PartitionImage, now_ms: int) -> None:
    """109: claim limit forgotten with the follower (M70).

    A follower that left the partition and came back within the epoch may claim what it was never sent.
    """
    before = set(self.progress)
    real(self, image, now_ms)
    if before - set(self.progress):
        real.differs()
    self._claim_limits.clear()
    for node_id in set(self.progress) - before:
        self.progress[node_id].claim_limit = self.log.leo
