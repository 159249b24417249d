"""The same seed is the same run in any process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from strandline_sim.runs.profiles import PROFILES
from strandline_sim.runs.run import run_world
from strandline_sim.runs.shape import draw_shape
from strandline_sim.runs.trace import Digest, Trace
from strandline_sim.world.world import World

SEEDS = (3, 17, 28)

_SCRIPT = """
from strandline_sim.runs.profiles import PROFILES
from strandline_sim.runs.run import run_world
from strandline_sim.runs.shape import draw_shape
from strandline_sim.runs.trace import Digest
from strandline_sim.world.world import World
for seed in {seeds}:
    digest = Digest()
    run_world(World(draw_shape(seed, PROFILES["swarm"]), recorder=digest))
    print(digest.hexdigest())
"""


def digest_of(seed: int) -> str:
    """The digest of every effect of one run."""
    digest = Digest()
    run_world(World(draw_shape(seed, PROFILES["swarm"]), recorder=digest))
    return digest.hexdigest()


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_another_process_with_another_hash_seed_does_the_same(hash_seed: str) -> None:
    """Every effect of every core is the same under another PYTHONHASHSEED."""
    environment = dict(os.environ, PYTHONHASHSEED=hash_seed)
    command = [sys.executable, "-c", _SCRIPT.format(seeds=SEEDS)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)

    assert ran.stdout.split() == [digest_of(seed) for seed in SEEDS]


def test_looking_on_changes_nothing() -> None:
    """A traced run is identical to an untraced one."""
    plain = run_world(World(draw_shape(5, PROFILES["swarm"])))
    trace = Trace(everything=True)
    traced = run_world(World(draw_shape(5, PROFILES["swarm"]), recorder=trace))

    assert trace.lines
    assert (traced.events, traced.simulated_us, traced.counts) == (plain.events, plain.simulated_us, plain.counts)
