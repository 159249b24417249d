"""The layer of the seeded simulator: seeds from 0 on until one breaks, within a bound, to kill a mutant.

Invariant: a mutant is killed only by what `strandline sim run` would report as broken: a safety property at any event,
a liveness promise after healing, or an anomaly in what clients saw.
"""

from __future__ import annotations

import time

from mutants.verdict import Layer, Verdict

from strandline_sim.runs.run import run_seed


def judge(profiles: tuple[str, ...], *, seeds: int, seconds: float) -> Verdict:
    """Run up to ``seeds`` seeds, in all profiles by turns, for at most ``seconds`` of this process's own time."""
    began_s = time.process_time()
    tried = 0
    for seed in range(seeds):
        for profile in profiles:
            tried += 1
            violation = run_seed(seed, profile).violation
            took_s = time.process_time() - began_s
            if violation is not None:
                return Verdict(
                    layer=Layer.SEEDS,
                    killed_by=violation.name,
                    where=f"seed {seed} of {profile}",
                    why=violation.sentence,
                    tried=tried,
                    seconds=took_s,
                )
            if took_s > seconds:
                return Verdict(layer=Layer.SEEDS, tried=tried, seconds=took_s)
    return Verdict(layer=Layer.SEEDS, tried=tried, seconds=time.process_time() - began_s)
