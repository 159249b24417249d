"""Runs a campaign of every profile, prints the results, and writes them into the ledger.

Run by `make test-deep WHAT=campaigns`. A campaign that found something, or that did not show what its profile
promises, is shown as such, and the exit code is 1. `--minutes` bounds the whole run: the swarm gets
half of it, and the historic profiles, which must be caught, get a few seeds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ledger import append
from seeds_onward import committed, row_of

from strandline_sim.runs.run import Campaign, outcomes
from strandline_sim.runs.shape import PROFILES

HISTORIC = ("high-watermark", "kip-101")
SHARES = {"swarm": 0.5, "high-watermark": 0.03, "kip-101": 0.05, "calm": 0.03}
SEEDS = {
    "swarm": 2_000, "controllers": 2_000, "store-trouble": 1_000, "high-watermark": 20, "kip-101": 40, "calm": 20,
}  # fmt: skip
OTHER_SHARE, OTHER_SEEDS = 0.1, 300


@dataclass(frozen=True, slots=True)
class Obtained:
    """One campaign and how long it took."""

    campaign: Campaign
    asked: int
    wall_s: float


def obtain(profile: str, jobs: int, minutes: float | None) -> Obtained:
    """Run as many seeds of one profile as requested, within the time limit."""
    asked = SEEDS.get(profile, OTHER_SEEDS)
    began_s = time.monotonic()
    limit_s = None if minutes is None else 60 * minutes * SHARES.get(profile, OTHER_SHARE)
    campaign = Campaign(profile)
    for outcome in outcomes(_while_time(range(asked), began_s, limit_s), profile, jobs):
        campaign.take(outcome)
    return Obtained(campaign, asked, time.monotonic() - began_s)


def _while_time(seeds: range, began_s: float, limit_s: float | None) -> Iterator[int]:
    for seed in seeds:
        if limit_s is not None and time.monotonic() - began_s > limit_s:
            return
        yield seed


def row(obtained: Obtained) -> str:
    """One campaign as a row."""
    campaign = obtained.campaign
    cells = [
        campaign.profile,
        f"{campaign.seeds:,} of {obtained.asked:,}",
        f"{campaign.events:,}",
        f"{campaign.counts['elections']:,}",
        f"{campaign.committed:,}",
        _duration(campaign.simulated_us / 1e6),
        _duration(obtained.wall_s),
        judged(campaign),
    ]
    return f"| {' | '.join(cells)} |"


def judged(campaign: Campaign) -> str:
    """What a campaign found, in words."""
    names = Counter(each.violation.name for each in campaign.broken if each.violation is not None)
    found = ", ".join(f"{name} in {times} seeds" for name, times in sorted(names.items()))
    if campaign.profile in HISTORIC:
        return f"caught: {found}" if found else "NOT CAUGHT"
    missing = f"; never seen: {', '.join(campaign.missing)}" if campaign.missing else ""
    return (f"BROKEN: {found}" if found else "nothing broken") + missing


def is_good(campaign: Campaign) -> bool:
    """A historic rule must be caught; in all other profiles nothing may be broken or missing."""
    return bool(campaign.broken) if campaign.profile in HISTORIC else campaign.passed


def _duration(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"


def main() -> int:
    """Run every profile; returns 1 if an unexpected finding occurred, or an expected one did not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, help="at most about so long, whatever that leaves undone")
    asked = parser.parse_args()
    commit = committed()
    every: list[Obtained] = []
    for profile in PROFILES:
        every.append(obtain(profile, asked.jobs, asked.minutes))
        append(row_of(every[-1].campaign, 0, commit))
        sys.stdout.write(f"{row(every[-1])}\n")
        sys.stdout.flush()
        for outcome in every[-1].campaign.broken[:3]:
            sys.stdout.write(f"  strandline sim replay {outcome.seed} --profile {profile}\n")
    return 0 if all(is_good(each.campaign) for each in every) else 1


if __name__ == "__main__":
    sys.exit(main())
