"""Runs the seeds of a profile that the ledger does not hold yet, until it holds as many clean ones as requested.

Run by `make test-deep WHAT=campaigns SEEDS=20000`. It yields to everything else on the machine, and writes a row of the
ledger every 250 seeds.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from ledger import LEDGER, Row, append, clean_seeds, next_seed, read
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import strandline
from strandline_sim.runs.run import Campaign, outcomes

CHUNK = 250
LOWEST_PRIORITY = 19


def row_of(campaign: Campaign, first: int, commit: str) -> Row:
    """A finished campaign as a row of the ledger."""
    broken: defaultdict[str, list[int]] = defaultdict(list)
    for outcome in campaign.broken:
        assert outcome.violation is not None, "a broken outcome names what it broke"
        broken[outcome.violation.name].append(outcome.seed)
    found = {name: sorted(seeds) for name, seeds in sorted(broken.items())}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Row(campaign.profile, first, campaign.seeds, commit, campaign.events, found, today)


def onward(profile: str, wanted: int, jobs: int, commit: str, path: Path = LEDGER) -> Iterator[Row]:
    """Run seeds chunk by chunk until the ledger holds ``wanted`` clean ones; yields each row once it is durable."""
    while (missing := wanted - len(clean_seeds(rows := read(path), profile))) > 0:
        first = next_seed(rows, profile)
        campaign = Campaign(profile)
        for outcome in outcomes(range(first, first + min(CHUNK, missing)), profile, jobs):
            campaign.take(outcome)
        row = row_of(campaign, first, commit)
        append(row, path)
        yield row
        if campaign.broken:
            return


def committed() -> str:
    """The commit whose sources run here.

    Raises:
        SystemExit: the sources differ from every commit, so a row could not say what ran.
    """
    git = ["git", "-C", str(LEDGER.parent)]
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", ":/services"], stdout=subprocess.PIPE, text=True, check=True
    )
    if changed.stdout:
        raise SystemExit(
            f"services/ has changes that are not committed; a row names the commit that ran:\n{changed.stdout}"
        )
    return subprocess.run(
        [*git, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()


def main() -> int:
    """Run on; returns 1 if a seed broke something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default="swarm")
    parser.add_argument("--seeds", type=int, required=True, help="clean seeds that the ledger shall hold in the end")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    commit = committed()
    os.nice(LOWEST_PRIORITY)
    print(f"running {Path(strandline.__file__).parent} at {commit}", flush=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        done = len(clean_seeds(read(), asked.profile))
        task = progress.add_task(f"clean seeds of {asked.profile}", total=asked.seeds, completed=done)
        for row in onward(asked.profile, asked.seeds, asked.jobs, commit):
            progress.advance(task, row.seeds)
            if row.broken:
                print(f"broken: {row.broken}; strandline sim replay SEED --profile {row.profile}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
