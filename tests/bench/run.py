"""`make bench`: every measure beside its peers, bars met and missed; rows in docs/benchmarks.json, for `make docs`.

Bounded in rounds and seconds, and it stops by itself. Loopback only. `--smoke` shows within two minutes that every
measure works; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import client_records
import failover
import group_cost
import idle_cost
import kept
import metadata_gate
import move_cost
import report
import rules_cost
import throughput
import transaction_cost
from bench import Bench, Row
from kafka_jars import JARS
from parties import Servers
from plan import SMOKE, Pace, Plan

PARTS: Mapping[str, Callable[[Bench], Iterator[Row]]] = {
    "throughput": throughput.rows,
    "clients": client_records.rows,
    "idle": idle_cost.rows,
    "failover": failover.rows,
    "groups": group_cost.rows,
    "transactions": transaction_cost.rows,
    "metadata": metadata_gate.rows,
    "moves": move_cost.rows,
    "rules": rules_cost.rows,
}
BESIDE_PEERS = ("throughput", "clients")
"""The other parts need no peer, so the servers that these needed are stopped before them."""
ASKED_FOR = ("groups", "transactions", "metadata", "moves", "rules")
"""Left out of a run that names no part, unless it is a smoke run: they have no peer and take half an hour."""


def arguments() -> argparse.Namespace:
    """What to measure, and how often."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part again and keep the others")
    parser.add_argument("--smoke", action="store_true", help="everything, each for a fraction of a second")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--warm-s", type=float, help="of the closed loops, unmeasured")
    parser.add_argument("--run-s", type=float, help="of the closed loops")
    parser.add_argument("--kafka-warm-s", type=float, help="how long Kafka is warmed; 0 leaves it out")
    parser.add_argument("--out", type=Path, default=kept.DOCS, help="where benchmarks.json is")
    asked = parser.parse_args()
    if asked.smoke and asked.out == kept.DOCS:
        parser.error("--smoke needs --out: its figures mean nothing and must not replace those in docs/")
    return asked


def plan_of(asked: argparse.Namespace) -> Plan:
    """The plan with what the command line changes."""
    plan = SMOKE if asked.smoke else Plan()
    if asked.smoke and not (JARS / "complete").exists():
        # A smoke run downloads nothing.
        plan = replace(plan, kafka_warm_s=0.0)
    warm_s, run_s = (
        default if given is None else given
        for given, default in ((asked.warm_s, plan.pace.warm_s), (asked.run_s, plan.pace.run_s))
    )
    given = {name: getattr(asked, name) for name in ("rounds", "kafka_warm_s") if getattr(asked, name) is not None}
    return replace(plan, pace=Pace(warm_s, run_s), **given)


def measure(part: str, bench: Bench, asked: argparse.Namespace) -> None:
    """One part; what was obtained is written even if it does not end."""
    about = kept.conditions() | {"smoke": asked.smoke}
    began, rows, complete = time.monotonic(), [], False
    try:
        for row in PARTS[part](bench):
            rows.append(row)
        complete = True
    finally:
        about |= {
            "rounds": bench.plan.rounds,
            "seconds": round(time.monotonic() - began),
            "load_after": round(os.getloadavg()[0], 1),
            "complete": complete,
            "repeated": bench.repeated,
            "dropped": bench.dropped,
            "absent": dict(bench.servers.absent),
            "notes": bench.notes,
            "warm_s": bench.plan.pace.warm_s,
            "run_s": bench.plan.pace.run_s,
            "kafka_warm_s": bench.plan.kafka_warm_s,
        }
        if rows or complete:
            kept.keep_rows(part, about, rows, asked.out)


def main() -> None:
    """Measure, write, show."""
    # An exit, unlike the signal, stops the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    asked = arguments()
    plan = plan_of(asked)
    parts = asked.only or [part for part in PARTS if asked.smoke or part not in ASKED_FOR]
    last = kept.read_results().get("parts", {})
    took = (f"{part} ({last.get(part, {}).get('seconds', '?')} s)" for part in parts)
    print(f"measuring, with what the last full run of each took: {', '.join(took)}", flush=True)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)

    directory = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
    try:
        with Servers(directory, plan.kafka_warm_s, say) as servers:
            for part in parts:
                if part not in BESIDE_PEERS:
                    servers.close()
                measure(part, Bench(plan, servers, directory, say), asked)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(report.page(kept.read_results(asked.out)))


if __name__ == "__main__":
    main()
