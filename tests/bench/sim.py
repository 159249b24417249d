"""The speed of the simulator: whole runs of the swarm on one core, with every check on.

Run by `make bench WHAT=sim`: the sources as they are, then the copy of `tests/sim/compiled.py`, whose hot modules are
compiled to C. Prints the measurements beside the targets, and writes nothing. The rate counts the events that cores
were given (messages and timers that never reach a core are not counted), by processor time as well as by the clock,
because wall-clock time says little on a busy machine. The best of several rounds is what the machine can do.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from strandline.core.log import node
from strandline_sim.runs.campaign import rare_collections
from strandline_sim.runs.run import run_seed

WANTED_EVENTS_PER_S = 40_000
WANTED_EVENTS_PER_SIMULATED_S = 900


@dataclass(frozen=True, slots=True)
class Round:
    """The time for a number of seeds."""

    events: int
    simulated_s: float
    wall_s: float
    cpu_s: float


def measure(first: int, seeds: int, profile: str) -> Round:
    """Run some seeds.

    Raises:
        SystemExit: one of them broke an invariant; its speed does not matter.
    """
    events = simulated_us = 0
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for seed in range(first, first + seeds):
        outcome = run_seed(seed, profile)
        if outcome.violation is not None:
            raise SystemExit(f"seed {seed} of {profile} broke {outcome.violation.name}; there is nothing to measure")
        events += outcome.events
        simulated_us += outcome.simulated_us
    return Round(events, simulated_us / 1e6, time.perf_counter() - wall_s, time.process_time() - cpu_s)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default="swarm")
    parser.add_argument("--seeds", type=int, default=20, help="seeds of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--this-only", action="store_true", help="measure what is imported here and nothing else")
    asked = parser.parse_args()
    run_seed(0, asked.profile)  # imports, and code that is compiled on its first use
    with rare_collections():
        rounds = [measure(round_ * asked.seeds, asked.seeds, asked.profile) for round_ in range(asked.rounds)]
    show(rounds, asked.profile, asked.seeds)
    if not asked.this_only:
        measure_compiled()


def measure_compiled() -> None:
    """Measure the same in a process of its own, with the copy whose hot modules are compiled."""
    print("\ntranslating (once for every change of the sources, about a minute)", flush=True)
    maker = Path(__file__).parents[1] / "sim" / "compiled.py"
    made = subprocess.run([sys.executable, str(maker)], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        raise SystemExit(made.returncode)
    if not (Path(made.stdout.strip()) / "made-from").exists():
        return  # no C compiler; the maker said so
    environment = dict(os.environ, PYTHONPATH=made.stdout.strip())
    subprocess.run([sys.executable, *sys.argv, "--this-only"], env=environment, check=True)


def show(rounds: list[Round], profile: str, seeds: int) -> None:
    """Print the figures."""
    by_cpu = [each.events / each.cpu_s for each in rounds]
    by_clock = [each.events / each.wall_s for each in rounds]
    events = sum(each.events for each in rounds)
    density = events / sum(each.simulated_s for each in rounds)
    table = Table("events of cores", "best", "median", "wanted", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, found in (("per second of processor time", by_cpu), ("per second by the clock", by_clock)):
        table.add_row(name, f"{max(found):,.0f}", f"{median(found):,.0f}", f"{WANTED_EVENTS_PER_S:,}")
    table.add_row("per simulated second", "", f"{density:,.0f}", f"{WANTED_EVENTS_PER_SIMULATED_S:,}")
    console = Console()
    how = "hot modules translated to C" if node.__file__.endswith(".so") else "sources as they are"
    console.print(how, highlight=False)
    console.print(table)
    console.print(
        f"{len(rounds)} rounds of {seeds} seeds of {profile!r}, {events:,} events, every check on, one process; "
        f"Python {platform.python_version()}, load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
        highlight=False,
    )


if __name__ == "__main__":
    main()
