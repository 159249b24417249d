"""`make test-deep WHAT=mutants`: every mutant against all three layers; a table on the screen, and in docs/.

Exit code 1 if a required bug survives, if another one survives without a killed pair that explains it, or if a mutant's
rule was never called. Bounded for each mutant and layer, and it stops by itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from multiprocessing import get_context
from multiprocessing.pool import Pool
from typing import Any

from mutants import record
from mutants.examination import Bounds, Examined, about, examine
from mutants.mutant import Layer, Mutant
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

PATIENCE = 40
"""How many times its bounds, as the wall clock has it, a mutant may take before its process is ended: on a busy
machine a second of processor time takes many, but a mutant may also have made a loop without an end."""


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Bounds, and which mutants; ends the process with code 2 if one is named that does not exist."""
    usual = Bounds()
    parser = argparse.ArgumentParser(prog="make test-deep WHAT=mutants", description=__doc__)
    parser.add_argument("only", nargs="*", help="numbers such as R11 or 18; all of them if none is given")
    parser.add_argument("--seeds", type=int, default=usual.seeds, help="at most so many seeds each")
    parser.add_argument(
        "--seed-s", type=float, default=usual.seed_s, help="at most so many seconds of seeds each, of processor time"
    )
    parser.add_argument("--search-s", type=float, default=usual.search_s, help="at most so many seconds of search")
    parser.add_argument("--quick", action="store_true", help="of the scenarios only the one that a mutant names")
    parser.add_argument("--dry", action="store_true", help="write no documents")
    options = parser.parse_args(given)
    options.only = " ".join(options.only).split()
    known = {mutant.number for mutant in record.with_pairs()}
    if unknown := [number for number in options.only if number not in known]:
        parser.exit(2, f"no mutant has the number {', '.join(unknown)}: docs/mutants.json lists them\n")
    return options


def main() -> int:
    """Examine, show, write, judge."""
    options, console = arguments(), Console()
    bounds = Bounds(
        all_scenarios=not options.quick, seeds=options.seeds, seed_s=options.seed_s, search_s=options.search_s
    )
    mutants = record.with_pairs(options.only)
    found = []
    for examined in _examine_all(mutants, bounds, console):
        found.append(examined)
        if not options.dry:
            # At once, so that an interrupted run keeps its results.
            record.write(record.judge([examined]).rows, about(bounds, datetime.now(UTC).date().isoformat()))
    judgement = record.judge(found)
    console.print(table(judgement.rows))
    for complaint in judgement.complaints:
        console.print(complaint, style="red")
    if options.only:
        return bool(judgement.complaints)
    console.print(f"{judgement.required_killed} of {len(record.REQUIRED)} required bugs are killed")
    return bool(judgement.complaints) or judgement.required_killed < len(record.REQUIRED)


def _examine_all(mutants: list[Mutant], bounds: Bounds, console: Console) -> Iterator[Examined]:
    """One mutant at a time, in a separate process, which is replaced if a mutant hangs it."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    worker = _worker()
    try:
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("", total=len(mutants))
            for mutant in mutants:
                progress.update(task, description=f"{mutant.number} {mutant.name}")
                examined = _examine_in(worker, mutant, bounds)
                if examined is None:
                    worker.terminate()
                    worker, examined = _worker(), _in_trouble(mutant, "it ran without an end and was stopped")
                progress.console.print(_reported(mutant, examined), highlight=False, soft_wrap=True)
                progress.advance(task)
                yield examined
    finally:
        worker.terminate()


def _worker() -> Pool:
    return get_context("spawn").Pool(1)


def _examine_in(worker: Pool, mutant: Mutant, bounds: Bounds) -> Examined | None:
    """The results; None if it takes too long."""
    errors: list[BaseException] = []
    waiting = worker.apply_async(_examine_by_number, (mutant.number, bounds), error_callback=errors.append)
    waiting.wait(PATIENCE * (bounds.seed_s + bounds.search_s + 10))
    if not waiting.ready():
        return None
    return waiting.get() if waiting.successful() else _in_trouble(mutant, f"{type(errors[0]).__name__}: {errors[0]}")


def _examine_by_number(number: str, bounds: Bounds) -> Examined:
    mutant = next(mutant for mutant in record.with_pairs() if mutant.number == number)
    return examine(mutant, bounds)


def _in_trouble(mutant: Mutant, why: str) -> Examined:
    return Examined(number=mutant.number, verdicts=(), bites=(), trouble=why)


def _reported(mutant: Mutant, examined: Examined) -> str:
    first = examined.kills[0] if examined.kills else None
    fate = f"{first.killed_by}, {first.where}: {first.why}" if first else examined.trouble or "survives"
    return f"{mutant.number:>6}  {mutant.name}: {fate}"


def table(rows: tuple[dict[str, Any], ...]) -> Table:
    """The verdicts for a screen."""
    shown = Table("#", "mutant", *(str(layer) for layer in Layer), "verdict")
    for row in rows:
        cells = {verdict["layer"]: _cell(verdict) for verdict in row["verdicts"]}
        fate = "killed" if row["killed"] else f"masked by {row['masked_by']}" if row["masked_by"] else "survives"
        shown.add_row(row["number"], row["name"], *(cells.get(layer, "–") for layer in Layer), fate)
    return shown


def _cell(verdict: Mapping[str, Any]) -> str:
    if not verdict["killed_by"]:
        return f"survives {verdict['tried']:,}"
    # A parametrized test has brackets, which would be read as a style.
    return escape(f"{verdict['killed_by']} in {verdict['where']}")


if __name__ == "__main__":
    sys.exit(main())
