"""The rules under which a search runs: the core's own, or the core without one of its decisions.

Invariant: a variant of history that has a value of the setting ``truncation`` is that value and nothing else. The
others were never released; each overrides one decision of one part of the core, named in its class below, and the
rest of the core stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.node import NodeCore
from strandline.core.log.truncation import rule_for
from strandline.core.messages import FetchPartition, FetchRequest, FetchResult, ReplicaState
from strandline.core.serving.fetch import Counted, FetchServing
from strandline.core.serving.offsets import OffsetServing
from strandline.core.types import IsrJoin, LeaderEpoch, Offset, Rules, TopicPartition, Truncation
from strandline_sim.searches.exhaust.local import Property

OTHER_EPOCH = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH})

Arm = Callable[[NodeCore, TopicPartition], None]


def _rules(truncation: Truncation) -> Rules:
    # Whether a follower keeps pace depends on time, which the model does not have: `hw` allows what either rule allows.
    return Rules(truncation=truncation, isr_join=IsrJoin.HW)


@dataclass(frozen=True, slots=True)
class Variant:
    """A set of rules with a name."""

    name: str
    sentence: str
    rules: Rules
    overrides: tuple[Arm, ...] = ()
    """Changes a core after it was built."""
    safe: bool = False
    """Whether the published result is that the rules are safe."""
    fences_logs: bool = field(init=False)

    def __post_init__(self) -> None:
        fenced = rule_for(self.rules.truncation).fenced and unfence_followers not in self.overrides
        object.__setattr__(self, "fences_logs", fenced)

    def arm(self, core: NodeCore, tp: TopicPartition) -> None:
        """Remove from ``core`` what this variant lacks."""
        for override in self.overrides:
            override(core, tp)


class FetchOfAnyEpoch(FetchServing):
    """Serves and counts a replica's Fetch whatever leader epoch it names (KIP-320's first try)."""

    def _check(self, part: FetchPartition, replica: ReplicaState | None, at_follower: bool) -> Refusal | None:
        refusal = super()._check(part, replica, at_follower)
        if refusal is None or replica is None or refusal.code not in OTHER_EPOCH:
            return refusal
        return None if part.tp in self._state.leaders else self._state.not_leader(part.tp)


class ServesAnyEpoch(FetchOfAnyEpoch):
    """Serves a replica's Fetch whatever leader epoch it names, but counts it only in its own."""

    def _receive(
        self, part: FetchPartition, request: FetchRequest, at_follower: bool, now_ms: int, counted: list[Counted]
    ) -> FetchResult:
        if request.replica is not None and self._names_another_epoch(part):
            return self._look(part, request.replica, at_follower, request.read_committed, now_ms, fresh=True)
        return super()._receive(part, request, at_follower, now_ms, counted)

    def _names_another_epoch(self, part: FetchPartition) -> bool:
        image = self._state.images.get(part.tp)
        return image is not None and part.current_leader_epoch != image.leader_epoch


class CountsAnyEpoch(FetchServing):
    """Refuses a Fetch of another leader epoch, but still takes its offset as the follower's LEO."""

    def _receive(
        self, part: FetchPartition, request: FetchRequest, at_follower: bool, now_ms: int, counted: list[Counted]
    ) -> FetchResult:
        result = super()._receive(part, request, at_follower, now_ms, counted)
        replica = request.replica
        leader = self._state.leaders.get(part.tp)
        if replica is None or leader is None or result.refusal is None or result.refusal.code not in OTHER_EPOCH:
            return result
        if part.fetch_offset <= leader.log.leo and leader.diverging(part) is None:
            leader.observe_fetch(part, replica, now_ms)
            leader.maybe_raise_hw(now_ms)
        return result


class AnswersAnyEpoch(OffsetServing):
    """Answers OffsetForLeaderEpoch whatever the asker's leader epoch is."""

    def _leader(self, tp: TopicPartition, current: LeaderEpoch | None, *, by_replica: bool) -> LeaderReplica | Refusal:
        return super()._leader(tp, None if by_replica else current, by_replica=by_replica)


def fetch_of_any_epoch(core: NodeCore, tp: TopicPartition) -> None:
    """The leader does not compare the leader epoch of a Fetch at all."""
    core._fetches.__class__ = FetchOfAnyEpoch


def serve_any_epoch(core: NodeCore, tp: TopicPartition) -> None:
    """The leader gives records to a Fetch of another leader epoch."""
    core._fetches.__class__ = ServesAnyEpoch


def count_any_epoch(core: NodeCore, tp: TopicPartition) -> None:
    """The leader counts a Fetch of another leader epoch."""
    core._fetches.__class__ = CountsAnyEpoch


def answer_any_epoch(core: NodeCore, tp: TopicPartition) -> None:
    """The leader answers OffsetForLeaderEpoch of another leader epoch."""
    core._offsets.__class__ = AnswersAnyEpoch


def unfence_followers(core: NodeCore, tp: TopicPartition) -> None:
    """A follower appends whatever epoch it is sent (it refuses records of an epoch above its own otherwise)."""
    follower = core.state.followers.get(tp)
    if follower is not None:
        follower._rule = _UNFENCED


def skip_divergence_check(core: NodeCore, tp: TopicPartition) -> None:
    """A Fetch carries no last fetched epoch and is not compared with the leader's lineage (before KIP-595)."""
    core._fetcher._checked = core._fetches._checked = False
    leader = core.state.leaders.get(tp)
    if leader is not None:
        leader._checks_lineage = False


def count_first_fetches(core: NodeCore, tp: TopicPartition) -> None:
    """A leader counts the first Fetch of a follower, which the follower cannot have written down yet (M66)."""
    leader = core.state.leaders.get(tp)
    if leader is not None:
        leader._asks_first = True


def forget_epoch_start(core: NodeCore, tp: TopicPartition) -> None:
    """A leader lets a follower into the ISR at the HW, without looking where its own epoch began (KAFKA-7128)."""
    leader = core.state.leaders.get(tp)
    if leader is not None:
        leader.epoch_start_offset = Offset(0)


class _Unfenced(type(rule_for(Truncation.FETCH))):  # type: ignore[misc]
    """`fetch`, with a follower that believes records of any epoch."""

    fenced = False


_UNFENCED = _Unfenced()


VARIANTS = {
    v.name: v
    for v in (
        Variant("high-watermark", "before 0.11: cut to the own HW", _rules(Truncation.HIGH_WATERMARK)),
        Variant("kip-101", "one lookup by epoch, no second question", _rules(Truncation.KIP_101)),
        Variant("kip-279", "the right lookup, no fence", _rules(Truncation.KIP_279)),
        Variant(
            "first-try",
            "KIP-320's first try: a Fetch carries the last fetched epoch only",
            _rules(Truncation.FETCH),
            (fetch_of_any_epoch, unfence_followers, count_first_fetches),
        ),
        Variant("hw-unfenced", "KIP-320, HW counting unfenced", _rules(Truncation.LEADER_EPOCH), (count_any_epoch,)),
        Variant(
            "truncation-unfenced",
            "KIP-320 without KIP-595, truncation unfenced",
            _rules(Truncation.LEADER_EPOCH),
            (answer_any_epoch, skip_divergence_check),
        ),
        Variant("no-epoch-start", "KIP-320, no LESO check", _rules(Truncation.LEADER_EPOCH), (forget_epoch_start,)),
        Variant(
            "fetch-unfenced",
            "KIP-320, fetch unfenced only",
            _rules(Truncation.LEADER_EPOCH),
            (serve_any_epoch, unfence_followers),
            safe=True,
        ),
        Variant("fetch", "truncation=fetch", _rules(Truncation.FETCH), safe=True),
        Variant("leader-epoch", "the default", _rules(Truncation.LEADER_EPOCH), safe=True),
    )
}


# ---- models
# The searches: each has a variant of the rules, bounds, and the published result.
#
# Invariant: a published violation must be found, whatever its length here; under safe rules nothing may be
# found. Where a length differs from the published one, the row says why, and docs/RELIABILITY.md shows it by the
# traces.


@dataclass(frozen=True, slots=True)
class Bounds:
    """The size of the searched world."""

    replicas: int
    records: int
    """Records written in all, by any leader."""
    max_leader_epoch: int
    min_isr: int = 1
    slow_isr: bool = True
    """Whether a proposed ISR may reach the controller later, and the controller's answer may get lost."""

    def __str__(self) -> str:
        parts = ", ISR changes in parts" if self.slow_isr else ""
        return f"{self.replicas} replicas, {self.records} records, epochs 0..{self.max_leader_epoch}{parts}"


@dataclass(frozen=True, slots=True)
class Model:
    """One search and its expected result."""

    name: str
    variant: str
    bounds: Bounds
    published: Mapping[Property, int | None]
    """Steps of the shortest published trace by property; None where the property is published to hold."""

    def is_as_published(self, found: Mapping[Property, int]) -> bool:
        """Whether every published violation was found."""
        return all(length is None or name in found for name, length in self.published.items())


WEAK, STRONG, LOST, DIVERGED = Property.WEAK_ISR, Property.STRONG_ISR, Property.LOST, Property.DIVERGED
ALL: dict[Property, int | None] = dict.fromkeys(Property)


def _two(records: int, epochs: int, *, slow_isr: bool = False) -> Bounds:
    return Bounds(2, records, epochs, slow_isr=slow_isr)


def _three(records: int, epochs: int = 2, *, slow_isr: bool = False) -> Bounds:
    return Bounds(3, records, epochs, slow_isr=slow_isr)


MODELS: tuple[Model, ...] = (
    Model("high-watermark", "high-watermark", _two(2, 2), {WEAK: 8, STRONG: 9, DIVERGED: 10, LOST: 11}),
    Model("kip-101", "kip-101", _two(2, 3), {DIVERGED: 10, WEAK: 11, STRONG: 11, LOST: 13}),
    Model("kip-279-two", "kip-279", _two(3, 3), {WEAK: None, DIVERGED: None, LOST: 13}),
    Model("kip-279", "kip-279", _three(1), {STRONG: 10}),
    Model("first-try", "first-try", _three(1), {STRONG: 12}),
    Model("hw-unfenced", "hw-unfenced", _three(1), {STRONG: 12}),
    Model("truncation-unfenced", "truncation-unfenced", _three(2), {STRONG: 13}),
    Model("no-epoch-start", "no-epoch-start", _three(1), {STRONG: 11}),
    Model("fetch-unfenced", "fetch-unfenced", _three(2), {STRONG: None}),
    Model("fetch", "fetch", _three(2), ALL),
    Model("leader-epoch-two", "leader-epoch", _two(3, 3, slow_isr=True), ALL),
    Model("leader-epoch-in-parts", "leader-epoch", _three(1, slow_isr=True), ALL),
    Model("leader-epoch", "leader-epoch", _three(2), ALL),
)
