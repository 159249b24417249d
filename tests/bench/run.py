"""`make bench`: every measure beside its peers, bars met and missed; JSON, a page and pictures in docs/.

Bounded in rounds and seconds, and it stops by itself. Loopback only. `--smoke` shows within a minute that every measure
works; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import client_records
import consuming
import failover
import fan_out
import idle_cost
import report
import results
import throughput
import workers
from bench import Bench, Measure
from party_kafka import LIBRARIES
from plan import SMOKE, Pace, Plan
from servers import Servers
from steady import Steady

DOCS = Path(__file__).resolve().parents[2] / "docs"
PARTS = {
    "throughput": throughput,
    "clients": client_records,
    "consuming": consuming,
    "fan-out": fan_out,
    "idle": idle_cost,
    "failover": failover,
    "workers": workers,
}
ALONE = {"fan-out", "idle", "failover", "workers"}
"""These need no peer, so the servers that others needed are stopped before them."""


def arguments() -> argparse.Namespace:
    """What to measure, and how often."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part again and keep the others")
    parser.add_argument("--smoke", action="store_true", help="everything, each for a fraction of a second")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--warm-s", type=float, help="of the closed loops, unmeasured")
    parser.add_argument("--run-s", type=float, help="of the closed loops")
    parser.add_argument("--kafka-warm-s", type=float, help="how long Kafka is warmed; 0 leaves it out")
    parser.add_argument("--out", type=Path, default=DOCS, help="where benchmarks.json and img/ go")
    asked = parser.parse_args()
    if asked.smoke and asked.out == DOCS:
        parser.error("--smoke needs --out: its figures mean nothing and must not replace those in docs/")
    return asked


def plan_of(asked: argparse.Namespace) -> Plan:
    """The plan with what the command line changes."""
    plan = SMOKE if asked.smoke else Plan()
    if asked.smoke and not (LIBRARIES / "complete").exists():
        # A smoke run downloads nothing.
        plan = replace(plan, kafka_warm_s=0.0)
    changed: dict[str, Any] = {name: getattr(asked, name) for name in ("rounds", "kafka_warm_s")}
    warm_s = plan.pace.warm_s if asked.warm_s is None else asked.warm_s
    run_s = plan.pace.run_s if asked.run_s is None else asked.run_s
    changed["pace"] = Pace(warm_s, run_s)
    return replace(plan, **{name: value for name, value in changed.items() if value is not None})


def measure(part: str, bench: Bench, kept: results.Results, out: Path, *, smoke: bool) -> None:
    """One part; what was obtained is written even if it does not end."""
    about = results.conditions() | {"smoke": smoke}
    began, rows, complete = time.monotonic(), [], False
    try:
        for row in cast(Measure, PARTS[part]).rows(bench):
            rows.append(row)
        complete = True
    finally:
        about |= {
            "rounds": bench.plan.rounds,
            "seconds": round(time.monotonic() - began),
            "load_after": round(os.getloadavg()[0], 1),
            "complete": complete,
            "repeated": bench.steady.repeated,
            "dropped": bench.steady.dropped,
            "absent": dict(bench.servers.absent),
            "notes": bench.notes,
            "warm_s": bench.plan.pace.warm_s,
            "run_s": bench.plan.pace.run_s,
            "kafka_warm_s": bench.plan.kafka_warm_s,
        }
        if rows or complete:
            results.put(kept, part, about, rows)
            results.write(out, kept)
            draw(kept, out)


def draw(kept: results.Results, out: Path) -> None:
    """The pictures of the page, which `make docs` writes from benchmarks.json."""
    (out / "img").mkdir(exist_ok=True)
    for name, picture in report.pictures(kept).items():
        (out / "img" / name).write_text(picture)


def main() -> None:
    """Measure, write, show."""
    # An exit, unlike the signal, stops the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    asked = arguments()
    plan, parts = plan_of(asked), asked.only or list(PARTS)
    minutes = sum(cast(Measure, PARTS[part]).expected_s(plan) for part in parts) / 60
    print(f"measuring {', '.join(parts)}: about {minutes:.0f} minutes", flush=True)
    kept = results.read(asked.out)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)

    directory = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
    try:
        with Servers(directory, plan.kafka_warm_s, say) as servers:
            for part in parts:
                if part in ALONE:
                    servers.close()
                bench = Bench(plan, servers, directory, say, Steady(plan.believable_steal_percent))
                measure(part, bench, kept, asked.out, smoke=asked.smoke)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(report.page(kept))


if __name__ == "__main__":
    main()
