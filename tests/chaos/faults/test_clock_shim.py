"""A process with a clock of its own: which time it reads, and how long its waits are."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.clock import Clock, compiler_missing

_CHILD = """
import asyncio, json, sys, threading, time

async def wait():
    await asyncio.sleep(0.2)

def waited(how):
    began = time.monotonic()
    how()
    return time.monotonic() - began

def main():
    condition = threading.Condition()
    with condition:
        by_condition = waited(lambda: condition.wait(0.2))
    return {
        "wall_s": time.time(), "mono_s": time.monotonic(), "condition": by_condition,
        "loop": waited(lambda: asyncio.run(wait())), "sleep": waited(lambda: time.sleep(0.2)),
    }

for line in sys.stdin:
    print(json.dumps(main()), flush=True)
"""


class _Child:
    """A process that reports its clocks and how long its waits of 0.2 s took by its own clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=clock.environment,
        )  # fmt: skip
        self.ask()

    def ask(self) -> tuple[dict[str, float], float]:
        """Its answer, and how long that took by the true clock."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        began = time.monotonic()
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline()), time.monotonic() - began


@pytest.fixture
def child(tmp_path: Path) -> Iterator[_Child]:
    """A process under the shim, with a right clock."""
    if lacking := compiler_missing():
        pytest.skip(f"clock shim: {lacking}")
    asked = _Child(Clock(tmp_path, "child"))
    yield asked
    asked.process.kill()
    asked.process.communicate()


def test_a_right_clock_shows_the_truth(child: _Child) -> None:
    """Without commands both clocks agree with the machine's, and waits have their normal length."""
    answer, took_s = child.ask()

    assert abs(answer["wall_s"] - time.time()) < 5
    assert abs(answer["mono_s"] - time.monotonic()) < 5
    assert took_s >= 0.6
    assert child.clock.wrong_answers == 0


@pytest.mark.parametrize("hours", [1, -1])
def test_the_wall_clock_jumps_alone(child: _Child, hours: int) -> None:
    """The wall clock is an hour off, the monotonic clock is not, and waits are as long as before."""
    _, right_s = child.ask()
    child.clock.set(wall_offset_s=hours * 3600)
    answer, took_s = child.ask()

    assert abs(answer["wall_s"] - time.time() - hours * 3600) < 5
    assert abs(answer["mono_s"] - time.monotonic()) < 5
    assert 0.6 <= took_s < 10 * right_s


@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_waits_last_as_long_as_the_clock_says(child: _Child, rate: float) -> None:
    """At another rate each kind of wait takes 0.2 s by the process's clock and another time by the true one."""
    child.clock.set(rate=rate)
    answer, took_s = child.ask()

    assert child.clock.wrong_answers > 0
    for kind in ("condition", "loop", "sleep"):
        assert answer[kind] + 0.01 >= 0.2, (kind, answer)
    assert took_s >= 0.6 / rate * 0.98
    assert (answer["condition"] + answer["sleep"]) / rate <= took_s


def test_the_monotonic_clock_never_goes_back(child: _Child) -> None:
    """For any commands, the time that the clock shows only grows."""
    shown = []
    for orders in ({"rate": 2.0}, {"rate": 0.5}, {"wall_offset_s": -3600.0}, {"rate": 2.0}, {}):
        child.clock.set(**orders)
        shown.append(child.ask()[0]["mono_s"])

    assert shown == sorted(shown)
    assert shown[-1] - shown[0] > 1
