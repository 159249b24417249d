"""Mutants of fetching: which fetch, claim, answer, or metadata is accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mutants.mutant import Mutant, Real, Swap

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

MUTANTS: tuple[Mutant, ...] = ()


# R11: a fetch of any epoch is accepted.


def _any_epoch(
    real: Real, serving: FetchServing, part: FetchPartition, replica: ReplicaState | None, at_follower: bool
) -> Refusal | None:
    image = serving._state.images.get(part.tp)
    if replica is not None and image is not None and part.current_leader_epoch is not None:
        part = part._replace(current_leader_epoch=image.leader_epoch)
    found: Refusal | None = real(serving, part, replica, at_follower)
    return found


MUTANTS += (
    Mutant(
        number="R11",
        name="fetch fence skipped",
        broken="A leader counts the fetch of a follower that lives in another leader epoch.",
        source="KIP-320; TR4, TR5",
        scenario="r11_fetch_of_another_epoch",
        swaps=(Swap(FetchServing, "_check", _any_epoch),),
    ),
)


# 13: a diverged follower's fetch is counted.


def _counts_it(
    real: Real,
    serving: FetchServing,
    part: FetchPartition,
    request: FetchRequest,
    at_follower: bool,
    now_ms: int,
    counted: list[Counted],
) -> FetchResult:
    result: FetchResult = real(serving, part, request, at_follower, now_ms, counted)
    replica = request.replica
    leader = serving._state.leaders.get(part.tp)
    if result.diverging is not None and replica is not None and leader is not None:
        real.differs()
        counted.append(Counted(leader, replica.node_id, leader.observe_fetch(part, replica, now_ms)))
    return result


MUTANTS += (
    Mutant(
        number="13",
        name="diverging fetch counted",
        broken="A fetch that is answered with a divergence moves the remote log end of its sender all the same.",
        source="KAFKA-13141; TR12",
        scenario="tr12_diverging_fetch",
        swaps=(Swap(FetchServing, "_receive", _counts_it, pure=False),),
    ),
)


# 18 and 19: which answer belongs to the outstanding request.
# In these cores one number serves both: a request of an earlier leader epoch had another number. To remove the two
# fences one by one, the mutants store the leader epoch in which each request was sent.

Asked = dict[tuple[TopicPartition, int], LeaderEpoch]


def _asked(fetcher: Fetcher) -> Asked:
    found: Asked = vars(fetcher).setdefault("asked_in_epoch", {})
    return found


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


# 20: metadata that was addressed to an earlier process.


def _for_any_incarnation(
    real: Real, metadata: MetadataFollower, image: MetadataImage, out: list[Any]
) -> MetadataChange | None:
    ours = metadata._state.node_epoch
    if image.to_node_epoch != ours:
        real.differs()
        image = replace(image, to_node_epoch=ours)
    change: MetadataChange | None = real(metadata, image, out)
    return change


MUTANTS += (
    Mutant(
        number="20",
        name="metadata of a previous process believed",
        broken="A node believes metadata that was addressed to an earlier incarnation of itself.",
        source="KIP-380's class of bugs; TR15",
        scenario="tr15_metadata_for_a_dead_process",
        swaps=(Swap(MetadataFollower, "take", _for_any_incarnation, pure=False),),
    ),
)


# 108, 109: the position that a follower claims.

_TESTS = ("tests/core/test_leader_fetch.py",)


def _believes(real: Real, self: LeaderReplica, fetch: FetchPartition, node_id: NodeId) -> Refusal | None:
    return None


def _forgets(real: Real, self: LeaderReplica, image: PartitionImage, now_ms: int) -> None:
    before = set(self.progress)
    real(self, image, now_ms)
    if before - set(self.progress):
        real.differs()
    self._claim_limits.clear()
    for node_id in set(self.progress) - before:
        self.progress[node_id].claim_limit = self.log.leo


MUTANTS += (
    Mutant(
        number="108",
        name="whatever a follower claims is counted",
        broken="A fetch in a follower's name acknowledges records that were never sent to it.",
        source="M70",
        tests=_TESTS,
        swaps=(Swap(LeaderReplica, "check_claim", _believes),),
    ),
    Mutant(
        number="109",
        name="claim limit forgotten with the follower",
        broken="A follower that left the partition and came back within the epoch may claim what it was never sent.",
        source="M70",
        tests=_TESTS,
        swaps=(Swap(LeaderReplica, "_take_followers", _forgets, pure=False),),
    ),
)
