"""Builds the examples with their languages' own tools, in a copy, so that nothing is left in the tree.

Invariant: a missing tool or package skips the test with its name; any other failure is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("produce", "consume", "watch", "group")
_BUILD_S = 400.0
_BUF = Path(sys.executable).parent / "buf"


def copied(language: str, directory: Path) -> Path:
    """The example's sources beside the contract, as in the repository."""
    place = directory / "examples" / language
    shutil.copytree(
        ROOT / "examples" / language, place, ignore=shutil.ignore_patterns("node_modules", "gen", "package-lock.json")
    )
    protos = directory / "protos"
    if not protos.exists():
        protos.symlink_to(ROOT / "protos")
    return place


def built_go(directory: Path) -> Mapping[str, Sequence[str]]:
    """The commands of the Go programs."""
    _needs("go")
    place = copied("go", directory)
    _fetched(["go", "mod", "download"], place)
    _run([str(_BUF), "generate"], place)
    _run(["go", "vet", "./..."], place)
    _run(["go", "build", "-o", str(place / "bin") + "/", "./..."], place)
    return {name: [str(place / "bin" / name)] for name in PROGRAMS}


def built_node(directory: Path) -> Mapping[str, Sequence[str]]:
    """The commands of the Node programs; nothing is generated."""
    _needs("node")
    _needs("npm")
    place = copied("node", directory)
    here = ROOT / "examples" / "node" / "node_modules"
    if here.is_dir():
        (place / "node_modules").symlink_to(here)
    else:
        _fetched(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"], place)
    return {name: ["node", str(place / f"{name}.js")] for name in PROGRAMS}


def _needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on the PATH")


def _fetched(command: Sequence[str], place: Path) -> None:
    ran = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=_BUILD_S)
    if ran.returncode:
        pytest.skip(f"{' '.join(command[:3])}: packages cannot be had: {ran.stderr.strip().splitlines()[-1:]}")


def _run(command: Sequence[str], place: Path) -> None:
    environment = {**os.environ, "GOFLAGS": "-mod=readonly"}
    ran = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=_BUILD_S, env=environment)
    assert ran.returncode == 0, f"{' '.join(command)}: {ran.stdout}{ran.stderr}"
