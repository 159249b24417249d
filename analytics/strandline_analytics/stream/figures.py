"""Counts the events of a window, and turns the counts into the values of a row.

Invariant: an interval is cut at the borders of windows and each piece counted once; integers stay integers, and the two
quotients equal those of the batch to the last bit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline_analytics.scope import Grouping
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import Statistic
from strandline_analytics.stream.carry import Carry, Moves
from strandline_analytics.stream.control_fold import ControlState
from strandline_analytics.stream.scene import OpenScene, Transition
from strandline_analytics.stream.spans import Episode, SampleSpan

FLAWS = ("n_zombie", "n_duplicate", "n_gap", "clock_regressions")
_STATES = (
    "full_us", "under_replicated_us", "under_replicated_led_us", "above_min_us", "at_min_us", "under_min_us",
    "leaderless_us",
)  # fmt: skip
_PERCENTS = {"p50_records": 50, "p95_records": 95, "p99_records": 99}


@dataclass(slots=True)
class Removals:
    """The removals of one replica in one window."""

    removals: int = 0
    flaps: int = 0
    sessions: set[int] = field(default_factory=set)
    flapping: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Figures:
    """The counts of one window. ``known_us``: known time of the control plane; ``looked_us``: that of leader looks."""

    known_us: int = 0
    looked_us: int = 0
    spent: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    removals: dict[int, Removals] = field(default_factory=dict)
    lags: Counter[int] = field(default_factory=Counter)
    n_negative: int = 0
    flaws: Counter[str] = field(default_factory=Counter)
    look_flaws: Counter[str] = field(default_factory=Counter)

    def hold(self, state: ControlState, dur: int) -> None:
        """Count a state of the control plane."""
        if not state.known:
            return
        self.known_us += dur
        is_led, isr, rf, minimum = state.held.kind
        holds = {
            "full_us": is_led and isr >= rf,
            "under_replicated_us": not is_led or isr < rf,
            "under_replicated_led_us": is_led and isr < rf,
            "above_min_us": is_led and isr > minimum,
            "at_min_us": is_led and isr == minimum,
            "under_min_us": is_led and isr < minimum,
            "leaderless_us": not is_led,
        }
        self.spent.update({name: dur for name, is_so in holds.items() if is_so})

    def look(self, look: SampleSpan, dur: int) -> None:
        """Count a valid look of a leader at itself."""
        self.looked_us += dur
        lag = look.story["leader_leo"] - look.story["hw"]
        if lag < 0:
            self.n_negative += 1
        else:
            self.lags[lag] += dur


def pieces(t0: int, t1: int, step: int, start: int) -> Iterator[tuple[int, int]]:
    """The windows that an interval touches, by number since 1970, with durations; nothing before ``start``, us."""
    t0 = max(t0, start)
    while t0 < t1:
        number = t0 // step
        border = min(t1, (number + 1) * step)
        yield number, border - t0
        t0 = border


def lag_values(figures: Figures) -> dict[str, Any]:
    """The values of S1."""
    values: dict[str, Any] = {"n_negative": figures.n_negative if figures.looked_us else None}
    whole = sum(figures.lags.values())
    if whole:
        integral = sum(lag * dur for lag, dur in figures.lags.items())
        values["mean_records"] = float(integral) / float(whole)
        values["max_records"] = max(figures.lags)
        values |= {name: _percentile(figures.lags, whole, percent) for name, percent in _PERCENTS.items()}
    return values


def change_values(figures: Figures) -> dict[str, Any]:
    """The values of S8."""
    if not figures.changes["transitions"]:
        return {}
    return {name: figures.changes[name] for name in ("shrinks", "expands", "removals", "adds")}


def state_values(figures: Figures) -> dict[str, Any]:
    """The values of S10."""
    return {name: figures.spent[name] for name in _STATES} if figures.known_us else {}


def flap_values(figures: Figures) -> list[dict[str, Any]]:
    """The values of S15: one row for each replica that was removed; one without values if none was."""
    rows: list[dict[str, Any]] = [
        {
            "replica_id": replica,
            "removals": one.removals,
            "flaps": one.flaps,
            "sessions": len(one.sessions),
            "flapping_sessions": len(one.flapping),
        }
        for replica, one in sorted(figures.removals.items())
    ]
    return rows or [{}]


def stall_values(
    episodes: Iterable[Episode], under_min: Sequence[tuple[int, int]], start: int, end: int
) -> dict[str, Any]:
    """The values of S18: the stalls that overlap a window."""
    own = [one for one in episodes if one.t0 < end and one.t1 > start and one.t1 > one.t0]
    if not own:
        return {}
    durs = [min(one.t1, end) - max(one.t0, start) for one in own]
    blocked: Counter[int] = Counter()
    n_under = 0
    for one in own:
        if any(u0 < one.t1 and u1 > one.t0 for u0, u1 in under_min):
            n_under += 1
        else:
            blocked.update(one.blockers)
    goes_on = [one.t1 >= end for one in own]
    return {
        "episodes": len(own),
        "total_us": sum(durs),
        "longest_us": max(durs),
        "under_min_episodes": n_under,
        "ended_by_epoch": sum(not on and one.ended_by == "epoch_end" for one, on in zip(own, goes_on, strict=True)),
        "censored": sum(on or one.ended_by == "unknown" for one, on in zip(own, goes_on, strict=True)),
        "blockers": dict(sorted(blocked.items())) or None,
    }


def _percentile(lags: Mapping[int, int], whole: int, percent: int) -> int:
    so_far = 0
    for lag in sorted(lags):
        so_far += lags[lag]
        if so_far * 100 >= whole * percent:
            return lag
    raise AssertionError("the shares add up to the whole")


# ---- counting
# Assigns counts to windows: intervals to every window that they touch, moments to their own.
#
# Invariant: nothing that was counted in a closed window is counted again; the kept moves are those before the first
# open window.

FLAP_US = 600_000_000


@dataclass(frozen=True, slots=True)
class CountedWindows:
    """``windows`` by number since 1970, ``numbers`` those that have rows; ``moves`` of before the first open one."""

    windows: Mapping[int, Figures]
    numbers: range
    moves: dict[int, Moves]


def count(carry: Carry, scene: OpenScene, *, start_us: int, end_us: int, now_us: int, step_us: int) -> CountedWindows:
    """Count everything from ``start_us`` on; unfinished intervals are counted up to ``now_us``."""
    windows: defaultdict[int, Figures] = defaultdict(Figures)
    for state in scene.states:
        for number, dur in pieces(state.t0, min(state.t1, now_us), step_us, start_us):
            windows[number].hold(state, dur)
    for look in scene.looks:
        if look.is_believed and look.is_leader:
            for number, dur in pieces(look.t0, min(look.t1, now_us), step_us, start_us):
                windows[number].look(look, dur)
    _count_flaws(windows, scene, step_us)
    moves = _count_moves(windows, carry, scene, end_us, step_us)
    last = -(-now_us // step_us) * step_us
    return CountedWindows(windows, range(start_us // step_us, last // step_us), moves)


def _count_flaws(windows: defaultdict[int, Figures], scene: OpenScene, step_us: int) -> None:
    for step in scene.steps:
        flaws = windows[step.held.t // step_us].flaws
        flaws["n_gap"] += step.lost_before
        flaws["clock_regressions"] += step.went_back
        flaws["n_duplicate"] += scene.extra_copies(step.story)
    for look in scene.looks:
        if look.is_new:
            flaws = windows[look.t0 // step_us].look_flaws
            flaws["n_duplicate"] += scene.extra_copies(look.story)
            if look.is_leader:
                flaws["n_zombie"] += look.is_zombie
                flaws["clock_regressions"] += look.went_back
    for story in scene.others:
        if story["node_id"] >= 0:
            windows[story["ts_wall_us"] // step_us].flaws["n_duplicate"] += scene.extra_copies(story)


def _count_moves(
    windows: defaultdict[int, Figures], carry: Carry, scene: OpenScene, end_us: int, step_us: int
) -> dict[int, Moves]:
    moves = carry.copy_of_moves()
    kept = None
    for change in scene.transitions():
        if kept is None and change.t >= end_us:
            kept = {replica: Moves(one.came, one.went, one.session) for replica, one in moves.items()}
        _count_change(windows[change.t // step_us], change, moves)
    return moves if kept is None else kept


def _count_change(figures: Figures, change: Transition, moves: dict[int, Moves]) -> None:
    figures.changes.update(
        transitions=1,
        shrinks=int(bool(change.left)),
        expands=int(bool(change.came)),
        removals=len(change.left),
        adds=len(change.came),
    )
    for replica in change.left:
        own = moves.setdefault(replica, Moves())
        one = figures.removals.setdefault(replica, Removals())
        begins = own.went is None or change.t - own.went > FLAP_US
        own.session += begins
        one.removals += 1
        one.flaps += own.came is not None and change.t - own.came <= FLAP_US
        one.sessions.add(own.session)
        if not begins:
            one.flapping.add(own.session)
        own.went = change.t
    for replica in change.came:
        moves.setdefault(replica, Moves()).came = change.t


# ---- columns
# The columns of live rows: those of all five statistics, absent ones null.
#
# Invariant: a column has the name, type and default that its statistic declares for the batch.

LIVE: dict[str, Statistic] = {name: ALL[name] for name in ("s01", "s08", "s10", "s15", "s18")}
"""The statistics that are reported live."""

_FIXED = {
    "stat": "string", "cluster_id": "string", "topic_id": "string", "topic": "string", "partition": "int",
    "window_start": "bigint", "window_end": "bigint", "final": "boolean", "coverage": "double",
}  # fmt: skip


def types() -> dict[str, str]:
    """Every column with its type, in order."""
    found = _FIXED | dict.fromkeys(FLAWS, "bigint")
    for statistic in LIVE.values():
        for value in (*statistic.extra, *statistic.values):
            assert found.setdefault(value.name, value.type) == value.type, value.name
    return found


def ddl() -> str:
    """The columns as a Spark schema."""
    return ", ".join(f"`{name}` {kind}" for name, kind in types().items())


def columns_of(statistic: Statistic) -> list[str]:
    """The columns of a live row of one statistic."""
    values = (value.name for value in (*statistic.extra, *statistic.values))
    own = ("stat", *Grouping.PARTITION.value, "window_start", "window_end", "final")
    return [*own, *values, "coverage", *FLAWS]


def completed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the machine with all columns: counts are 0 if the state was known and nothing happened."""
    counts = {value.name for value in LIVE[row["stat"]].values if value.counts}
    default = 0 if row["known_us"] else None
    full = {name: row.get(name) for name in types()}
    return {name: default if value is None and name in counts else value for name, value in full.items()}
