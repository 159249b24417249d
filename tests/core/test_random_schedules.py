"""Three cores, a naive controller and a seeded schedule of faults; the guarantees are checked throughout.

A seed that fails repeats exactly: `pytest tests/core/test_random_schedules.py -k <seed>`; STRANDLINE_SCHEDULES=n runs n
seeds of each setting instead of the few that a normal test run has time for.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, batch
from naive_controller import NaiveController

from strandline.core.errors import ErrorCode
from strandline.core.log import events
from strandline.core.log.effects import AnswerOffsets, Effect
from strandline.core.log.saving_order import NodeTimings
from strandline.core.messages import LATEST, AlterPartitionRequest, OffsetQuestion
from strandline.core.types import BatchHeader, Durability, FetchHw, IsrJoin, Rules, Truncation

NODES = (1, 2, 3)
STEPS = 600
SEEDS = [
    pytest.param(seed, marks=[pytest.mark.slow] if seed >= 4 else [])
    for seed in range(int(os.environ.get("STRANDLINE_SCHEDULES", "16")))
]
SETTINGS = {
    "asked": Rules(),
    "fetch": Rules(truncation=Truncation.FETCH, isr_join=IsrJoin.HW),
    "updated": Rules(fetch_hw=FetchHw.UPDATED, isr_join=IsrJoin.HW),
    # Processes are killed, but no machine loses power: then page caches are durable enough.
    "page-cache": Rules(durability=Durability.PAGE_CACHE),
}
TIMINGS = NodeTimings(
    replica_lag_time_max_ms=900,
    replica_fetch_wait_max_ms=100,
    replica_fetch_backoff_max_ms=100,
    high_watermark_checkpoint_interval_ms=300,
)
SETTLED = 40_000
"""Long enough for a question that nobody answers to be asked again."""


class Watched(Cluster):
    """A cluster that reports after every single step which node made it."""

    stepped: Callable[[int], None] | None = None

    def step(self, node: int, event: events.Event) -> list[Effect]:
        found = super().step(node, event)
        if self.stepped is not None:
            self.stepped(node)
        return found


class World:
    """The cores, the controller, and the answers that clients got; every action ends in the same checks."""

    def __init__(self, seed: int, rules: Rules) -> None:
        self.random = Random(seed)
        self.fsync = rules.durability is Durability.FSYNC
        self.cluster = Watched(
            *NODES, rules=rules, timings=TIMINGS, streams=seed % 2 == 0, hold_flushes=True, max_records_per_fetch=3
        )
        self.controller = NaiveController()
        # The version of the controller's history that was last sent to each node.
        self.reported = dict.fromkeys(NODES, -1)
        self.late: list[tuple[int, int, AlterPartitionRequest]] = []
        self.committed: list[tuple[int, object]] = []
        # Unanswered produces: what was sent, and to which process.
        self.requests: dict[int, tuple[object, int, int]] = {}
        self.steps = self.value = 0
        self.sequence = 0
        self.attempt: int | None = None
        self.latest: tuple[int, int] = (0, 0)
        self.happened: Counter[str] = Counter()
        self.cluster.stepped = self._commit
        for node in NODES:
            self.tell(node)

    def act(self) -> None:
        """Do one random thing, then check everything."""
        self.steps += 1
        actions = CALM if self.steps // PHASE_STEPS % 2 else ROUGH
        name = self.random.choices(list(actions), weights=list(actions.values()))[0]
        if getattr(self, name)() is not False:
            self.happened[name] += 1
        self.check()

    def running(self) -> list[int]:
        return sorted(self.cluster.cores)

    def leading(self) -> list[int]:
        return [n for n in self.running() if TP in self.cluster.cores[n].state.leaders]

    def deliver(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            links = sorted(k for k, q in self.cluster.links.items() if q)
            if links:
                self.cluster.deliver(*self.random.choice(links))

    def drop(self) -> None:
        links = sorted(k for k, q in self.cluster.links.items() if q)
        if links:
            self.cluster.drop(*self.random.choice(links))

    def flush(self) -> None:
        nodes = [n for n in self.running() if self.cluster.flushes[n]]
        if nodes:
            self.cluster.flush(self.random.choice(nodes))

    def tick(self) -> None:
        self.cluster.now += self.random.choice((10, 50, 100))
        for node in self.running():
            self.cluster.step(node, events.Ticked(self.cluster.now))

    def pause(self) -> None:
        self.cluster.advance(1000, tick_ms=100)

    def produce(self) -> bool:
        leaders = self.leading()
        if not leaders:
            return False
        self.value += 1
        header = batch(self.random.randint(1, 3))
        node = self.random.choice(leaders)
        self.send(header, node, self.value)
        return True

    def send(self, header: BatchHeader, node: int, payload: object) -> int:
        request = self.cluster.produce(header, node=node, timeout=400, payload=payload)
        self.requests[request] = payload, node, self.cluster.lives[node]
        return request

    def send_again(self) -> bool:
        """An idempotent producer: sends its batch again, to any node, until it is acknowledged."""
        leaders = self.leading()
        if not leaders:
            return False
        answer = self.cluster.outcome(self.attempt) if self.attempt is not None else None
        if answer is not None and answer.refusal is None:
            self.sequence += 1
        elif answer is not None and answer.refusal is not None:
            assert answer.refusal.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, answer
            assert answer.refusal.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER, answer
        payload = ("idempotent", self.sequence)
        header = batch(producer=7, sequence=self.sequence)
        node = self.random.choice(leaders)
        self.attempt = self.send(header, node, payload)
        return True

    def ask_latest(self) -> bool:
        """I13: across newer leader epochs the returned log end never goes back and never passes the committed end."""
        leaders = self.leading()
        if not leaders:
            return False
        node = self.random.choice(leaders)
        epoch = self.cluster.leader(node).image.leader_epoch
        asked = events.OffsetsAsked(self.cluster.now, self.cluster.request_id(), (OffsetQuestion(TP, LATEST),))
        answer = next(e for e in self.cluster.step(node, asked) if isinstance(e, AnswerOffsets)).answers[0]
        if answer.offset is None or epoch < self.latest[0]:
            return False
        assert self.latest[1] <= answer.offset <= len(self.committed), "I13: the end of the log went back"
        self.latest = epoch, answer.offset
        return True

    def learn(self) -> bool:
        """A node receives newer metadata, not necessarily the newest."""
        behind = [n for n in self.running() if self.reported[n] < len(self.controller.history) - 1]
        if not behind:
            return False
        node = self.random.choice(behind)
        self.reported[node] = self.random.randint(self.reported[node] + 1, len(self.controller.history) - 1)
        self.tell(node)
        return True

    def tell(self, node: int) -> None:
        self.reported[node] = max(0, self.reported[node])
        image, nodes = self.controller.history[self.reported[node]]
        self.cluster.push(node, image, nodes=nodes, snapshot=True)

    def alter(self) -> bool:
        """The controller takes an attempt; the answer may be lost, and a copy may arrive late."""
        if not self.cluster.alters:
            return False
        node, life, request = self.cluster.alters.pop(0)
        fate = self.random.random()
        answer = None if fate < 0.2 else self.controller.alter(request)
        if fate < 0.4:
            self.late.append((node, life, request))
        if node not in self.cluster.cores or self.cluster.lives[node] != life:
            return True
        if answer is None or fate > 0.8:
            failed = events.AlterPartitionFailed(self.cluster.now, request.request_sequence, "lost")
            self.cluster.step(node, failed)
        else:
            came = events.AlterPartitionAnswered(self.cluster.now, request.request_sequence, answer)
            self.cluster.step(node, came)
        return True

    def alter_late(self) -> bool:
        """A copy of an older attempt reaches the controller after all, and perhaps its answer the leader (TR16)."""
        if not self.late:
            return False
        node, life, request = self.late.pop(self.random.randrange(len(self.late)))
        answer = self.controller.alter(request)
        alive = node in self.cluster.cores and self.cluster.lives[node] == life
        if alive and answer.refusal is None and self.random.random() < 0.5:
            came = events.AlterPartitionAnswered(self.cluster.now, request.request_sequence, answer)
            self.cluster.step(node, came)
        return True

    def crash(self) -> bool:
        """Power loss or kill: anything from only the durable records to all records survives."""
        if len(self.running()) < 2:
            return False
        node = self.random.choice(self.running())
        disk = self.cluster.disks[node][TP]
        if not self.fsync:
            self.cluster.crash(node, keep=disk.leo)
            return True
        survivable = [disk.durable, *(h.next_offset for h, _ in disk.batches if h.next_offset > disk.durable)]
        self.cluster.crash(node, keep=self.random.choice(survivable))
        return True

    def restart(self) -> bool:
        down = [n for n in NODES if n not in self.cluster.cores]
        if not down:
            return False
        node = self.random.choice(down)
        self.cluster.start(node)
        self.controller.register(node, self.cluster.lives[node])
        self.reported[node] = len(self.controller.history) - 1
        self.tell(node)
        return True

    def fence(self) -> bool:
        """A session ends: of a node that is down, or of one that is only cut off and still believes that it leads."""
        candidates = [n for n in NODES if n not in self.controller.fenced]
        if not candidates:
            return False
        self.controller.fence(self.random.choice(candidates))
        return True

    def unfence(self) -> bool:
        candidates = [n for n in self.running() if n in self.controller.fenced]
        if not candidates:
            return False
        self.controller.unfence(self.random.choice(candidates))
        return True

    def prefer(self) -> None:
        self.controller.prefer(self.random.choice(NODES))

    def check(self) -> None:
        self._check_acks()
        for node in self.running():
            self._check_replica(node)
        for node in self.controller.isr:
            self._check_member(node)

    def _commit(self, node: int) -> None:
        """I10: records that were ever below a leader's HW do not change."""
        if TP not in self.cluster.cores[node].state.leaders:
            return
        hw = self.cluster.log(node).hw
        if hw > len(self.committed):
            self.committed.extend(r[1:] for r in self.cluster.disks[node][TP].records(len(self.committed), hw))

    def _check_acks(self) -> None:
        for request in [r for r in self.requests if r in self.cluster.produced]:
            result, value = self.cluster.produced[request].results[0], self.requests.pop(request)[0]
            if result.refusal is None:
                assert result.base_offset is not None and result.base_offset < len(self.committed), "I12: early ack"
                assert self.committed[result.base_offset][1] == value, "I8: acknowledged at another's offset"

    def _check_replica(self, node: int) -> None:
        log, disk = self.cluster.log(node), self.cluster.disks[node][TP]
        assert log.leo == disk.leo
        assert log.hw <= log.leo
        assert log.vote <= (disk.durable if self.fsync else disk.leo), "M55: counted as durable what is not"
        assert [log.epochs.epoch_of(o) for o, _, _ in disk.records()] == [e for _, e, _ in disk.records()], "I0"
        below = [r[1:] for r in disk.records(0, log.hw)]
        assert below == self.committed[: log.hw], f"I9: node {node} has another record below its HW"
        assert all(e.event.refused_to_leo is None for e in self.cluster.emitted(node, "PARTITION_FAILED")), "I11"
        assert not any(e.event.committed_cut for e in self.cluster.emitted(node, "TRUNCATION")), "I11"

    def _check_member(self, node: int) -> None:
        """I5: every replica that could be elected has every record that was ever exposed, durably under `fsync`."""
        disk = self.cluster.disks[node][TP]
        end = len(self.committed)
        safe = disk.durable if self.fsync else disk.leo
        assert safe >= end, f"I5: node {node} is electable, safe to {safe}, committed is {end}"
        assert [r[1:] for r in disk.records(0, end)] == self.committed, f"I5: node {node} is electable and differs"

    def check_uniqueness(self) -> None:
        """I2: an offset and an epoch name one record and one prefix."""
        logs = [[r[1:] for r in self.cluster.disks[n][TP].records()] for n in NODES]
        for a, b in ((0, 1), (0, 2), (1, 2)):
            same = [o for o, (x, y) in enumerate(zip(logs[a], logs[b], strict=False)) if x[0] == y[0]]
            if same:
                assert logs[a][: same[-1] + 1] == logs[b][: same[-1] + 1], "I2"

    def check_no_duplicates(self) -> None:
        sent = [p for _, p in self.committed if isinstance(p, tuple)]
        assert len(sent) == len(set(sent)), "M61: an idempotent batch is committed twice"

    def heal(self) -> None:
        """Everything returns; then all logs must become equal, the HW the log end, the ISR all replicas."""
        while len(self.running()) < len(NODES):
            self.restart()
        for node in NODES:
            if node in self.controller.fenced:
                self.controller.unfence(node)
        deadline = self.cluster.now + SETTLED
        while self.cluster.now < deadline:
            self.cluster.advance(100)
            self.cluster.settle()
            self._answer_everything()
            self.check()
            if self.cluster.now > deadline - SETTLED + 1000 and self._is_healed():
                break
        assert self._is_healed(), [repr(self.cluster.log(n)) for n in NODES] + [repr(self.controller.isr)]
        waiting = [r for r, (_, node, life) in self.requests.items() if life == self.cluster.lives[node]]
        assert waiting == [], "L4: a produce was never answered"
        self.check_no_duplicates()

    def _answer_everything(self) -> None:
        while self.cluster.alters:
            node, life, request = self.cluster.alters.pop(0)
            if life == self.cluster.lives[node]:
                answer = self.controller.alter(request)
                came = events.AlterPartitionAnswered(self.cluster.now, request.request_sequence, answer)
                self.cluster.step(node, came)
        for node in NODES:
            if self.reported[node] < len(self.controller.history) - 1:
                self.reported[node] = len(self.controller.history) - 1
                self.tell(node)

    def _is_healed(self) -> bool:
        ends = {(*self.cluster.ends(n), len(self.committed)) for n in NODES}
        records = [self.cluster.disks[n][TP].records() for n in NODES]
        return (
            len(ends) == 1
            and len(set(next(iter(ends)))) == 1
            and all(r == records[0] for r in records)
            and set(self.controller.isr) == set(NODES)
        )


ROUGH: dict[str, float] = {
    "deliver": 30, "flush": 14, "produce": 10, "send_again": 5, "tick": 10, "learn": 8, "alter": 6, "alter_late": 1,
    "drop": 3, "pause": 0.7, "crash": 1, "restart": 2, "fence": 0.8, "unfence": 2, "prefer": 1, "ask_latest": 2,
}  # fmt: skip
CALM = ROUGH | dict.fromkeys(["drop", "pause", "crash", "fence", "prefer"], 0.0)
CALM |= {"learn": 20.0, "alter": 15.0, "restart": 8.0, "unfence": 8.0}
PHASE_STEPS = 75
"""Trouble comes in waves: in the calm between them the ISR grows again and the HW moves."""


def run(seed: int, rules: Rules) -> World:
    """One whole schedule."""
    world = World(seed, rules)
    for _ in range(STEPS):
        world.act()
    world.check_uniqueness()
    world.heal()
    world.check_uniqueness()
    return world


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("setting", list(SETTINGS))
def test_promises_hold_under_a_random_schedule(setting: str, seed: int) -> None:
    """I0, I2, I5, I8-I13, M55, M61 hold at every step; after healing all logs are equal, all nodes in sync."""

    assert run(seed, SETTINGS[setting]).committed


def test_schedules_reach_what_they_are_for() -> None:
    """A schedule that never truncates, never elects and never commits would prove nothing."""
    happened: Counter[str] = Counter()
    for seed in range(6):
        world = run(1000 + seed, Rules())
        happened.update(world.happened)
        happened["elections"] += world.controller.leader_epoch
        happened["cuts"] += sum(len(world.cluster.cuts(n)) for n in NODES)
        happened["isr changes"] += sum(len(world.cluster.emitted(n, "ISR_CHANGE")) for n in NODES)
        happened["committed"] += len(world.committed)
    wanted: dict[str, int] = dict.fromkeys(ROUGH, 1)
    wanted |= {"elections": 20, "cuts": 5, "isr changes": 5, "committed": 100}

    assert {name: happened[name] for name, least in wanted.items() if happened[name] < least} == {}
