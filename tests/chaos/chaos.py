"""Plays scenarios of the fault tests with real processes: `make chaos SCENARIO=n`; without a number it lists them.

Several numbers, `make chaos SCENARIO="17 18 19"`, are played one after the other, each by a driver of its own; the
exit code is the worst of theirs.

Ends with 0 when the run is green, 1 when it is red, 3 when it is void (the faults had no effect), 77 when this machine
lacks what the scenario needs; the last line says which, and why.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__" and find_spec("running_cluster") is None:
    # Once more, with what it shares with tests/cluster.
    shared = {"PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT / "tests/cluster"), os.environ.get("PYTHONPATH")]))}
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | shared)

from harness.facilities import missing  # noqa: E402
from harness.namespaces import MORE_NODES, WITH_ONE_CONTROLLER, WITH_SEVERAL, Namespaces  # noqa: E402
from harness.playing import Verdict, Wanted, play  # noqa: E402
from harness.run import Run  # noqa: E402
from harness.scenario import Form, Scenario, scenarios  # noqa: E402

EXIT = {Verdict.GREEN: 0, Verdict.RED: 1, Verdict.VOID: 3}
SKIPPED = 77
INTERRUPTED = 130


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos SCENARIO=", description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int, metavar="number", help="scenarios; without one, all are listed")
    parser.add_argument("--short", action="store_true", help="the short form that `make test-all` plays")
    parser.add_argument("--seed", type=int, default=1, help="draws the fault plan")
    parser.add_argument("--minutes", type=float, default=30.0, help="length of the soak")
    parser.add_argument("--dir", type=Path, default=None, help="where the result goes")
    chosen = parser.parse_args()
    known = scenarios()
    if not chosen.numbers:
        for scenario in known.values():
            print(f"  make chaos SCENARIO={scenario.number:<3} {scenario.title}")
        return 0
    for number in chosen.numbers:
        if number not in known:
            parser.error(f"there is no scenario {number}")
    if len(chosen.numbers) > 1:
        if chosen.dir is not None:
            parser.error("--dir is for one scenario")
        return _one_after_the_other(chosen)
    scenario = known[chosen.numbers[0]]
    lacking = missing(scenario.needs)
    if lacking:
        print(f"skipped: {scenario.name}: {'; '.join(lacking)}")
        return SKIPPED
    return _play(scenario, chosen)


def _one_after_the_other(chosen: argparse.Namespace) -> int:
    """A driver enters the namespaces of its run and stays there, so each run has its own."""
    options = ["--seed", str(chosen.seed), "--minutes", str(chosen.minutes), *(["--short"] if chosen.short else [])]
    codes = {}
    for number in chosen.numbers:
        codes[number] = subprocess.run([sys.executable, __file__, str(number), *options], check=False).returncode
        if codes[number] == INTERRUPTED:
            break
    print(", ".join(f"{number}: {_words(code)}" for number, code in codes.items()))
    return max(code for code in codes.values() if code != SKIPPED) if set(codes.values()) != {SKIPPED} else SKIPPED


def _words(code: int) -> str:
    names = {value: verdict.value for verdict, value in EXIT.items()}
    return {**names, SKIPPED: "skipped", INTERRUPTED: "interrupted"}.get(code, f"exit code {code}")


def _play(scenario: Scenario, chosen: argparse.Namespace) -> int:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    directory: Path = (chosen.dir or _ROOT / ".run" / "chaos" / f"{scenario.name}-{stamp}").resolve()
    directory.mkdir(parents=True, exist_ok=True)
    draw = random.Random(f"{scenario.number}/{chosen.seed}")
    form = Form(is_short=chosen.short, minutes=chosen.minutes)
    plan = scenario.plan(draw, form)
    (directory / "plan.json").write_text(json.dumps([asdict(step) for step in plan], indent=1) + "\n")
    wanted = Wanted(scenario=scenario, form=form, seed=chosen.seed, plan=plan, directory=directory)
    names = WITH_SEVERAL if scenario.has_several else WITH_ONE_CONTROLLER
    more = (MORE_NODES[node_id] for node_id in scenario.node_ids if node_id in MORE_NODES)
    with Namespaces((*names, *more)) as namespaces:
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
