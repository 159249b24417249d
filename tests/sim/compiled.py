"""Makes a copy of the package in which the hot modules of core and simulator are compiled to C, and checks it.

Run by `make test-deep`, which puts the printed folder on PYTHONPATH. The sources are the same,
assertions and checks included; the compiler is mypyc, which comes with mypy. Where there is no C compiler, the sources
run as they are. Modules that only define values stay as they are, because mypyc does not support all of their
annotations.

Invariant: a copy is returned only if it was made from exactly these sources, and after it did, effect by effect, the
same as the sources, on seeds that end well and on seeds that must be caught.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "services"
COPY = ROOT / ".venv" / "compiled"

SOURCES_OF = {
    "strandline/core": "log/fetcher log/follower log/high_watermark log/isr log/leader log/metadata log/node "
    "log/proposals log/producers log/replica_log log/state log/truncation serving/fetch serving/offsets "
    "serving/parked_fetches serving/produce",
    "strandline/observe": "reporting samples",
    "strandline/runtime": "calls",
    "strandline_sim": "checks/checks checks/committed checks/history clients/clients clients/committers "
    "clients/copiers clients/group_members clients/transactors "
    "runs/historic_rules runs/trace world/clock world/cluster world/draws world/environment world/machine "
    "world/memory_logs world/network world/node world/process world/virtual_loop world/world",
}
MODULES = tuple(f"{package}/{name}.py" for package, names in SOURCES_OF.items() for name in names.split())

PROVEN_ON = (("swarm", 3), ("swarm", 17), ("page-cache", 1), ("rollback", 2), ("high-watermark", 0), ("kip-101", 2))

_BUILD = """
import sys
from setuptools import setup
from mypyc.build import mypycify
# Packages without types are named in pyproject.toml, which is not read here: `make check` judges the types.
checks = ["--strict", "--explicit-package-bases", "--disable-error-code=import-untyped", "--config-file="]
checks += sys.argv.pop().split()
setup(name="compiled", packages=[], ext_modules=mypycify(checks, opt_level="2", debug_level="0", multi_file=True))
"""

_DIGESTS = """
import sys
from strandline_sim.runs.shape import PROFILES
from strandline_sim.runs.run import run_world
from strandline_sim.runs.shape import draw_shape
from strandline_sim.runs.trace import Digest
from strandline_sim.world.world import World
for asked in sys.argv[1:]:
    profile, _, seed = asked.partition("/")
    digest = Digest()
    ended = run_world(World(draw_shape(int(seed), PROFILES[profile]), recorder=digest))
    print(asked, digest.hexdigest(), sorted(ended.counts.items()), ended.violation)
"""


def stamp(sources: Path = SOURCES) -> str:
    """The inputs of a copy: every source file of the package, which modules are compiled, and this Python."""
    digest = hashlib.sha256(f"{sys.version} {MODULES} {_BUILD}".encode())
    for path in sorted(sources.rglob("*.py")):
        digest.update(str(path.relative_to(sources)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def make(copy: Path = COPY) -> Path:
    """Return the folder of a checked copy; compile and check it first if there is none of these sources.

    Raises:
        SystemExit: it could not be compiled, or it behaves differently from the sources.
    """
    mark = copy / "made-from"
    wanted = stamp()
    if mark.exists() and mark.read_text() == wanted:
        return copy
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    _translate(copy)
    _prove(copy)
    mark.write_text(wanted)
    return copy


def _translate(copy: Path) -> None:
    command = [sys.executable, "-c", _BUILD, "build_ext", "--inplace", " ".join(MODULES)]
    ran = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"mypyc could not translate the simulator:\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}")
    shutil.rmtree(copy / "build")


def _prove(copy: Path) -> None:
    ours, theirs = _digests(SOURCES), _digests(copy)
    if ours != theirs:
        raise SystemExit(f"the translated simulator does other things than its sources:\n{ours}\n{theirs}")


def _digests(path: Path) -> str:
    """Digests of some seeds, effect by effect, with the package in ``path``."""
    command = [sys.executable, "-c", _DIGESTS, *[f"{profile}/{seed}" for profile, seed in PROVEN_ON]]
    environment = dict(os.environ, PYTHONPATH=str(path))
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def fastest() -> Path:
    """The folder to import the package from: a checked copy, or the sources where no C compiler is.

    Raises:
        SystemExit: as `make`.
    """
    compiler = sysconfig.get_config_var("CC") or "cc"
    if shutil.which(compiler.split()[0]) is None:
        print(f"no C compiler ({compiler}): the simulator runs as it is, at two thirds of the speed", file=sys.stderr)
        return SOURCES
    return make()


if __name__ == "__main__":
    print(fastest())
