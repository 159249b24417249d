"""In which window each thing is counted: intervals in every window they touch, moments in the one of theirs.

Invariant: what was counted in a window before it was closed is not counted again; the moves that are kept are those of
before the first open window.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from strandline_analytics.stream.carry import Carry, Moves
from strandline_analytics.stream.figures import Figures, Removals, pieces
from strandline_analytics.stream.scene import Scene, Transition

FLAP_US = 600_000_000


@dataclass(frozen=True, slots=True)
class Counted:
    """``windows`` by number since 1970, ``numbers`` those that have rows; ``moves`` of before the first open one."""

    windows: Mapping[int, Figures]
    numbers: range
    moves: dict[int, Moves]


def count(carry: Carry, scene: Scene, *, start_us: int, end_us: int, now_us: int, step_us: int) -> Counted:
    """Count everything from ``start_us`` on; what goes on is counted up to ``now_us``."""
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
    return Counted(windows, range(start_us // step_us, last // step_us), moves)


def _count_flaws(windows: defaultdict[int, Figures], scene: Scene, step_us: int) -> None:
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
    windows: defaultdict[int, Figures], carry: Carry, scene: Scene, end_us: int, step_us: int
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
