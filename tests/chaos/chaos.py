"""Plays one scenario of the fault tests with real processes: `make chaos SCENARIO=n`; without a number it lists them.

Ends with 0 when the run is green, 1 when it is red, 3 when it is void (the faults had no effect), 77 when this machine
lacks what the scenario needs; the last line says which, and why.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
sys.path.append(str(_HERE.parent / "cluster"))

from harness.facilities import missing  # noqa: E402
from harness.namespaces import Namespaces  # noqa: E402
from harness.playing import Verdict, Wanted, play  # noqa: E402
from harness.run import Run  # noqa: E402
from harness.scenario import Form, Scenario, scenarios  # noqa: E402

EXIT = {Verdict.GREEN: 0, Verdict.RED: 1, Verdict.VOID: 3}
SKIPPED = 77
INTERRUPTED = 130


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="make chaos SCENARIO=", description=__doc__)
    parser.add_argument("number", nargs="?", type=int, help="the scenario; without it, all are listed")
    parser.add_argument("--short", action="store_true", help="the short form that `make test` plays")
    parser.add_argument("--seed", type=int, default=1, help="draws the fault plan")
    parser.add_argument("--minutes", type=float, default=30.0, help="length of the soak")
    parser.add_argument("--dir", type=Path, default=None, help="where the result goes")
    chosen = parser.parse_args()
    known = scenarios()
    if chosen.number is None:
        for scenario in known.values():
            print(f"  make chaos SCENARIO={scenario.number:<3} {scenario.title}")
        return 0
    if chosen.number not in known:
        parser.error(f"there is no scenario {chosen.number}")
    scenario = known[chosen.number]
    lacking = missing(scenario.needs)
    if lacking:
        print(f"skipped: {scenario.name}: {'; '.join(lacking)}")
        return SKIPPED
    return _play(scenario, chosen)


def _play(scenario: Scenario, chosen: argparse.Namespace) -> int:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    directory: Path = (chosen.dir or _ROOT / ".run" / "chaos" / f"{scenario.name}-{stamp}").resolve()
    directory.mkdir(parents=True, exist_ok=True)
    draw = random.Random(f"{scenario.number}/{chosen.seed}")
    form = Form(is_short=chosen.short, minutes=chosen.minutes)
    plan = scenario.plan(draw, form)
    (directory / "plan.json").write_text(json.dumps([asdict(step) for step in plan], indent=1) + "\n")
    wanted = Wanted(scenario=scenario, form=form, seed=chosen.seed, plan=plan, directory=directory)
    with Namespaces() as namespaces:
        namespaces.enter_hub()
        try:
            run, verdict = asyncio.run(_interruptible(wanted, namespaces))
        except (asyncio.CancelledError, KeyboardInterrupt):
            print(f"interrupted: {scenario.name}; everything was undone; what there is lies in {directory}")
            return INTERRUPTED
    _tell(run, verdict, stamp)
    return EXIT[verdict]


async def _interruptible(wanted: Wanted, namespaces: Namespaces) -> tuple[Run, Verdict]:
    """SIGTERM undoes everything like Ctrl-C."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await play(wanted, namespaces)


def _tell(run: Run, verdict: Verdict, stamp: str) -> None:
    result: dict[str, Any] = {
        "scenario": run.scenario.name,
        "form": "short" if run.form.is_short else "full",
        "verdict": verdict.value,
        "date": stamp,
        "commit": _commit(),
        "seed": run.seed,
        "failures": run.failures,
        "counters": dict(sorted(run.counters.items())),
        "measured": run.measured,
    }
    run.store("result.json", result)
    for failure in run.failures:
        print(f"  {failure[:600]}")
    print(f"  counted   {', '.join(f'{name} {count}' for name, count in sorted(run.counters.items()))}")
    print(f"  measured  {', '.join(f'{name} {value}' for name, value in run.measured.items())}")
    print(f"  result    {run.directory}")
    print(f"{verdict.value}: {run.scenario.name}{''.join(f'; {why}' for why in run.measured.get('void', []))}")


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=_ROOT, check=False, capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
