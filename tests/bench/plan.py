"""How much a run measures: the plan of `make bench`, and the small one of `make bench WHAT=smoke`, which only shows
that every measure works.

Invariant: every number of rounds, seconds, records and faults is here, so that a run is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """Batch size in KiB and requests outstanding."""

    kib: int
    window: int

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.kib} KiB, window {self.window}"


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds unmeasured and measured."""

    warm_s: float
    run_s: float

    @property
    def total_s(self) -> float:
        """Both."""
        return self.warm_s + self.run_s


@dataclass(frozen=True, slots=True)
class Faults:
    """How often the leader suffers one kind of fault, and with which session time-out."""

    fault: str
    rounds: int
    session_ms: int
    heartbeat_ms: int


KILL, STOP, VANISH = "kill", "stop", "vanish"
DEFAULT_SESSION = (9_000, 2_000)
"""Session time-out and heartbeat interval in ms, as Kafka and Strandline have them by default."""
SHORT_SESSION = (2_000, 500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one run does. Seconds in ``_s``."""

    rounds: int = 5
    fills_memory: bool = True
    """Whether free memory is used up before each measurement (`used_memory`)."""
    most_steal_percent: float = 3.0
    """A measurement during which the host took more of the processors is repeated once, then dropped."""
    pace: Pace = Pace(1.0, 3.0)
    shapes: tuple[Shape, ...] = (Shape(64, 1), Shape(64, 5), Shape(256, 5))
    kafka_warm_s: float = 300.0
    """How long Kafka is warmed before it is measured; 0 leaves it out."""
    records_pace: Pace = Pace(2.0, 4.0)
    idle_partitions: tuple[int, ...] = (10, 100, 1_000)
    settle_s: float = 25.0
    """After partitions were added: a thousand of them keep their nodes busy for some twenty seconds."""
    sample_s: float = 10.0
    """Of what is used without load."""
    load_records_per_s: int = 2_000
    """Of 1 KiB each, while leaders fail."""
    faults: tuple[Faults, ...] = (
        Faults(KILL, 20, *DEFAULT_SESSION),
        Faults(KILL, 10, *SHORT_SESSION),
        Faults(STOP, 5, *DEFAULT_SESSION),
        Faults(STOP, 5, *SHORT_SESSION),
        Faults(VANISH, 5, *DEFAULT_SESSION),
        Faults(VANISH, 5, *SHORT_SESSION),
    )
    members: int = 1_000
    """Of one group, with as many partitions; also of committed offsets and of transactional ids."""
    kills: int = 5
    """Of a coordinator's node, for each number of keys."""
    transaction_rounds: int = 10
    transaction_records: int = 100_000
    """Sent for each figure of records per second."""
    single_transactions: int = 100
    """Of one record each, and records of none, for each latency."""
    topics: int = 100
    """Of a hundred partitions each, that a thousand subscribers to metadata watch."""
    subscribers: int = 1_000
    move_bytes: int = 5 << 30
    """On each of three nodes, all of which goes to three others."""
    rule_pairs: int = 10
    """Of measurements with rules and without."""


SMOKE = Plan(
    rounds=1,
    fills_memory=False,
    # No figure is judged, so that a busy host must not make a measure disappear.
    most_steal_percent=100.0,
    pace=Pace(0.1, 0.3),
    shapes=(Shape(64, 5),),
    kafka_warm_s=1.0,
    records_pace=Pace(0.1, 0.3),
    idle_partitions=(10,),
    settle_s=0.2,
    sample_s=0.5,
    load_records_per_s=200,
    faults=(Faults(KILL, 1, *SHORT_SESSION), Faults(STOP, 1, *SHORT_SESSION), Faults(VANISH, 1, *SHORT_SESSION)),
    members=5,
    kills=1,
    transaction_rounds=1,
    transaction_records=200,
    single_transactions=2,
    topics=1,
    subscribers=4,
    move_bytes=6 << 20,
    rule_pairs=1,
)
"""Every party and every measure, too short for any figure to mean something."""
