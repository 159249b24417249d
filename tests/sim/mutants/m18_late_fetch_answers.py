"""18 and 19: which answer belongs to the outstanding request.

In these cores one number serves both: a request of an earlier leader epoch had another number. To remove the two fences
one by one, the mutants store the leader epoch in which each request was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.fetcher import Fetcher
from strandline.core.log.follower import FetchState, FollowerReplica
from strandline.core.types import LeaderEpoch, TopicPartition

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

MUTANTS = (
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
