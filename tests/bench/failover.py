"""Measures the gap of acknowledgements when a leader is lost: by kill -9, by SIGSTOP, and when its address vanishes.

Each kind of fault and session time-out is a process with a cluster of its own (`failover_gap.py`). No gap is dropped or
repeated for steal time: the longest ones count, and a bad moment of the host would be a convenient excuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import Bench, Row
from child import run_script
from failover_faults import lacking

_LIMIT_S = 120


def rows(bench: Bench) -> Iterator[Row]:
    """One row per kind of fault and session time-out; a fault that cannot be had is a note."""
    for faults in bench.plan.faults:
        if why := lacking(faults.fault):
            bench.note(f"{faults.fault} with a session time-out of {faults.session_ms} ms was not measured: {why}")
            continue
        home = bench.directory / f"failover-{faults.fault}-{faults.session_ms}"
        numbers = (faults.rounds, faults.session_ms, faults.heartbeat_ms, bench.plan.load_records_per_s)
        row = bench.attempted(
            f"{faults.fault}: {faults.rounds} times, session time-out {faults.session_ms} ms",
            partial(run_script, "failover_gap.py", faults.fault, home, *numbers, limit_s=_LIMIT_S * faults.rounds),
        )
        if row is not None:
            yield dict(row)
