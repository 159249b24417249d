"""The exhaustive search finds what the historic rules lose; its rebuilt core is like one that lives on."""

from __future__ import annotations

import random

import pytest

from strandline.core.log import effects as log_effects, events
from strandline.core.messages import FetchedPartition, ProducePartition
from strandline.core.types import Acks, BatchHeader, Offset
from strandline_sim.searches.exhaust import VARIANTS, Bounds, Property, search
from strandline_sim.searches.exhaust.actions import Actions
from strandline_sim.searches.exhaust.bench import TP, Bench
from strandline_sim.searches.exhaust.local import Image, Leading, Local, newborn
from strandline_sim.searches.exhaust.settling import PartitionController
from strandline_sim.searches.exhaust.space import Space
from strandline_sim.searches.exhaust.variants import MODELS
from strandline_sim.searches.exhaust.words import tell

BY_NAME = {model.name: model for model in MODELS}


@pytest.mark.parametrize("rules", ["leader-epoch", "fetch"])
def test_the_safe_rules_hold_with_two_replicas(rules: str) -> None:
    """Two replicas, one record, leader epochs 0 to 2: every reachable state keeps every property."""
    result = search(VARIANTS[rules], Bounds(replicas=2, records=1, max_leader_epoch=2))

    assert result.exhausted
    assert result.shortest is None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_default_rules_hold_with_three_replicas() -> None:
    """Three replicas, one record, one election after the first: every reachable state keeps every property."""
    result = search(VARIANTS["leader-epoch"], Bounds(3, 1, 1, slow_isr=False))

    assert result.exhausted
    assert result.shortest is None


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        ("high-watermark", {"WeakIsr": 9, "StrongIsr": 9, "divergence in one epoch": 10, "committed record lost": 12}),
        ("kip-101", {"divergence in one epoch": 9, "WeakIsr": 10, "StrongIsr": 10, "committed record lost": 12}),
        ("kip-279", {"StrongIsr": 10}),
        ("first-try", {"StrongIsr": 12}),
    ],
)
def test_a_historic_rule_breaks_as_published(name: str, lengths: dict[str, int]) -> None:
    """The published violation is found; where its length differs, docs/RELIABILITY.md says why."""
    model = BY_NAME[name]
    result = search(VARIANTS[model.variant], model.bounds, model.published)

    assert {str(broken): found.length for broken, found in result.found.items()} == lengths
    assert model.is_as_published({Property(broken): found.length for broken, found in result.found.items()})


def test_the_names_of_replicas_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every name searched instead of one for all, the same states are reached, and broken after as many steps."""
    bounds = Bounds(replicas=3, records=1, max_leader_epoch=2, slow_isr=False)
    merged = search(VARIANTS["kip-101"], bounds, [Property.LOST], max_states=500)
    renamed = merged.model.space.representative
    level, reached = {merged.model.space.start()}, set[tuple[int, ...]]()
    for _ in range(merged.depth + 1):
        reached |= {renamed(state) for state in level}
        level = {after for state in level for _, after in merged.model.space.successors(state)}

    assert len(reached) == merged.states
    assert merged.states > 500


def test_a_trace_is_reported_with_names_that_stay() -> None:
    """Merging by names does not mix them in the trace: the steps lead from the start to what is broken."""
    model = BY_NAME["high-watermark"]
    result = search(VARIANTS[model.variant], model.bounds, [Property.STRONG_ISR])
    found = result.found[Property.STRONG_ISR]
    space: Space = result.model.space

    for step, before, after in zip(found.steps, found.states, found.states[1:], strict=False):
        assert (step, after) in space.successors(before)
    assert tell(found, space)[-1].startswith("broken: StrongIsr. ISR {A,B}; A leads e0, HW 1, [m0/e0]")


def test_an_assertion_of_the_core_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core whose epoch cache omits a new epoch breaks I0 as soon as its leader writes."""
    monkeypatch.setattr("strandline.core.log.truncation.EpochCache.assign", lambda *_: False)
    result = search(VARIANTS["leader-epoch"], Bounds(2, 1, 0), [Property.ASSERTION])

    assert result.shortest is not None
    assert "I0" in result.shortest.note


# A core that is rebuilt for every step behaves like one that lives through all of them.


@pytest.mark.parametrize("rules", ["leader-epoch", "fetch", "high-watermark", "kip-101", "first-try"])
def test_a_core_is_read_as_it_was_built(rules: str) -> None:
    """Building a core from a node of a search and reading it again gives that node."""
    result = search(VARIANTS[rules], Bounds(replicas=2, records=2, max_leader_epoch=2), max_states=1_000)
    bench = Bench(VARIANTS[rules], replicas=2, min_isr=1)

    for local in result.model.space.locals.values:
        assert bench.read(bench.core(local), local.log) == local


class Lives:
    """Three cores that are never rebuilt, and beside each the value that the search would have for it."""

    def __init__(self, rules: str) -> None:
        self.bench = Bench(VARIANTS[rules], replicas=3, min_isr=1)
        self.actions, self.controller = Actions(self.bench), PartitionController(self.bench)
        self.now = self.controller.first()
        self.published: list[Image] = []
        self.values = [newborn(n) for n in range(3)]
        self.cores = [self.bench.core(value) for value in self.values]
        self.live = list(self.values)
        self.asked: dict[int, log_effects.SendFetch | log_effects.SendEpochEnds] = {}

    def step(self, n: int, event: events.Event) -> list[log_effects.Effect]:
        """Step the living core ``n``, and let the controller answer a proposal at once, here and in the value."""
        self.live[n], effects = self.bench.run(self.cores[n], self.live[n], event)
        for effect in effects:
            if isinstance(effect, log_effects.SendFetch | log_effects.SendEpochEnds):
                self.asked[n] = effect
            elif isinstance(effect, log_effects.SendAlterPartition):
                before = self.now
                self.now, answer = self.controller.alter(before, effect.request)
                answered = events.AlterPartitionAnswered(0, effect.request.request_sequence, answer)
                self.live[n], _ = self.bench.run(self.cores[n], self.live[n], answered)
                self.values[n] = self.actions.propose(self.values[n], before)[1]
        return effects

    def learn(self, n: int, image: Image) -> None:
        """Node ``n`` receives ``image``."""
        self.asked.pop(n, None)
        self.values[n] = self.actions.learn(self.values[n], image)
        self.step(n, self.bench.metadata(self.live[n], image))

    def write(self, n: int) -> None:
        """A record for leader ``n``."""
        self.values[n] = self.actions.write(self.values[n])
        part = ProducePartition(TP, BatchHeader(Offset(0), None, 1, 1, 0), ())
        self.step(n, events.ProduceArrived(0, 1, Acks.NONE, 0, (part,)))

    def ask(self, n: int) -> None:
        """Follower ``n`` gets the whole answer to its last request."""
        question = self.asked.pop(n)
        leader = question.leader
        trip = self.actions.trips(self.values[n], self.values[leader])[-1]
        self.values[n], self.values[leader] = trip.asker, trip.leader
        if isinstance(question, log_effects.SendEpochEnds):
            effects = self.step(leader, events.EpochEndsAsked(0, 1, question.questions))
            (ends,) = (e.answers for e in effects if isinstance(e, log_effects.AnswerEpochEnds))
            self.step(n, events.EpochEndsAnswered(0, leader, question.correlation_id, ends))
            return
        effects = self.step(leader, events.FetchArrived(0, 1, question.request))
        (result,) = next(e.results for e in effects if isinstance(e, log_effects.AnswerFetch))
        records = self.live[leader].log[result.read.start : result.read.end] if result.read else ()
        start = result.read.start if result.read else 0
        self.step(
            leader, events.FetchServed(0, question.request.replica.node_id, ((TP, Offset(start + len(records)), 0),))
        )
        headers = tuple(BatchHeader(Offset(start + i), r.epoch, 1, 1, 0) for i, r in enumerate(records))
        ends_at = (result.high_watermark, result.log_start_offset, result.diverging)
        received = FetchedPartition(TP, result.refusal, *ends_at, headers, records)
        self.step(n, events.FetchAnswered(0, leader, question.correlation_id, (received,)))

    def go(self, dice: random.Random) -> None:
        """One random thing happens."""
        choice = dice.random()
        n = dice.randrange(3)
        if choice < 0.25 or not self.published:
            if self.now.leader_epoch < 4:
                self.now = dice.choice([image for _, image in self.controller.elections(self.now)])
                self.published.append(self.now)
        elif choice < 0.55:
            news = [i for i in self.published if i.leader_epoch > self.live[n].leader_epoch]
            if news:
                self.learn(n, news[0])
        elif choice < 0.7 and isinstance(self.live[n].part, Leading):
            self.write(n)
        elif n in self.asked:
            self.ask(n)


def _in_order(local: Local) -> Local:
    """Equal sets of members, regardless of the order in which they were named."""
    part = local.part
    return local._replace(part=part._replace(isr=tuple(sorted(part.isr)))) if isinstance(part, Leading) else local


@pytest.mark.parametrize("rules", ["leader-epoch", "fetch", "high-watermark", "kip-101", "kip-279"])
def test_a_living_core_stands_where_the_search_says(rules: str) -> None:
    """Over random histories, the value that the search carries determines all decisions of a core."""
    appended = 0
    for seed in range(60):
        dice, lives = random.Random(seed), Lives(rules)
        for _ in range(40):
            lives.go(dice)
            assert list(map(_in_order, lives.live)) == list(map(_in_order, lives.values))
        appended += max(len(local.log) for local in lives.live)

    assert appended > 20, "the histories are too poor to tell anything"
