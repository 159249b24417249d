"""Scenario 16: scenario 8 with page-cache: the followers stop cleanly, so that the ELR can hold one of them (TR11).

After a loss of power the survivor has lost committed records, and must neither lead nor be counted before it has caught
up; the node of the ELR is elected and nothing is lost.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from faults.disk import Disk
from faults.disk_power import DISKS, mounted
from faults.disk_rules import Rule
from harness.fault import Step
from harness.run import Run
from harness.scenario import NAMESPACES, Form, Scenario
from scenarios.last_replica import last_replica, orders

_ORDERS = 6
_SYNC_MS = 15
_disks: dict[int, Disk] = {}


def plan(draw: random.Random, form: Form) -> list[Step]:
    """Every order once; one of them in the short form."""
    return orders(draw, 1 if form.is_short else _ORDERS)


async def prepare(run: Run) -> None:
    """A disk for every node, with slow syncs."""
    _disks.update(mounted(run, (1, 2, 3)))
    for disk in _disks.values():
        disk.add(Rule(operation="fsync", delay_ms=_SYNC_MS))


async def play(run: Run) -> None:
    """One order after the other."""
    for step in run.plan:
        await last_replica(run, step, _disks, clean_stops=True)


def demands(form: Form) -> Mapping[str, int]:
    """Every round was played, rejected produces, froze the HW above which acks=1 continued, and went offline."""
    rounds = 1 if form.is_short else _ORDERS
    each = {"rounds": rounds, "refused": rounds, "seen_offline": rounds, "losses_that_dropped": max(1, rounds // 2)}
    return {**each, "appended_under_a_frozen_hw": rounds, "stayed_offline": rounds}


SCENARIO = Scenario(
    number=16,
    title="Last replica standing, page cache",
    plan=plan,
    prepare=prepare,
    play=play,
    demands=demands,
    needs=(NAMESPACES, DISKS),
    controller_settings={"durability": "page-cache"},
    node_settings={"durability": "page-cache"},
)
