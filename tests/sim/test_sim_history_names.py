"""One object for each value and place of a run: the verdict over a history is the same as without sharing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline_sim.checks.history import Names, Operation, Place, Read, Value, anomalies
from strandline_sim.runs.profiles import PROFILES
from strandline_sim.runs.run import run_world
from strandline_sim.runs.shape import draw_shape
from strandline_sim.world.world import World


def history_of(seed: int) -> list[Operation]:
    """What the clients of one run saw, in the objects that the run created."""
    world = World(draw_shape(seed, PROFILES["swarm"]))
    assert run_world(world).violation is None
    return world.history


def apart(operations: list[Operation]) -> list[Operation]:
    """The same history in which no two reads share an object, so that none is skipped as known."""
    return [
        replace(each, place=Place(*each.place), value=Value(*each.value)) if isinstance(each, Read) else each
        for each in operations
    ]


def damaged(operations: list[Operation], every: int) -> list[Operation]:
    """The same history in which now and then a read got the value of the read before it, or is missing."""
    found: list[Operation] = []
    before: Value | None = None
    for number, each in enumerate(operations):
        if isinstance(each, Read):
            if number % every == 0 and before is not None:
                each = replace(each, value=before)
            elif number % every == 1:
                continue
            before = each.value
        found.append(each)
    return found


@pytest.mark.timeout(60)
@pytest.mark.parametrize("every", [7, 97, 1009])
def test_shared_objects_hide_no_anomaly(every: int) -> None:
    """A damaged history shows the same anomalies, in the same order, whether its reads share objects or not."""
    history = damaged(history_of(1), every)
    shared = anomalies(history)

    assert shared
    assert {each.name for each in shared} >= {"inconsistent-offsets", "duplicate", "poll-skip"}
    assert shared == anomalies(apart(history))


def test_a_whole_history_is_whole_either_way() -> None:
    """A run that broke nothing has a history without anomalies, in shared objects and in separate ones."""
    history = history_of(1)

    assert anomalies(history) == anomalies(apart(history)) == []


def test_equal_names_are_one_object() -> None:
    """Repeated calls for the same batch or place, in any order, return the same objects."""
    names = Names()
    late, early = names.place(0, 9), names.place(0, 2)
    first = names.values((3 << 24) | 5, 2)

    assert (late, early, names.place(1, 2)) == (Place(0, 9), Place(0, 2), Place(1, 2))
    assert names.place(0, 9) is late
    assert first == [Value("p3", 5), Value("p3", 6)]
    assert all(one is other for one, other in zip(first, names.values((3 << 24) | 5, 2), strict=True))
