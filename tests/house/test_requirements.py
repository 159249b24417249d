"""The compiled requirements belong to pyproject.toml and to no machine or registry."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS_OF = {"runtime": ["fast"], "dev": ["fast", "export", "play", "dev"], "bench": ["bench"], "fuzz": ["fuzz"]}


def _pinned(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return {_normal(package): version for package, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)}


def _normal(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


@pytest.mark.parametrize("name", EXTRAS_OF)
def test_requirements_name_no_host_and_no_path(name: str) -> None:
    """They install from whatever index the machine is configured for."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()

    assert re.findall(r"https?:|^-|--index|--find-links|file:|^/|\s/\w", text, re.MULTILINE) == []


@pytest.mark.parametrize("name", EXTRAS_OF)
def test_requirements_hold_what_the_project_asks_for(name: str) -> None:
    """Every direct dependency is pinned to a version that its range allows."""
    pinned = _pinned(name)
    wanted = [Requirement(line) for line in PROJECT["dependencies"]]
    for extra in EXTRAS_OF[name]:
        wanted += [Requirement(line) for line in PROJECT["optional-dependencies"][extra]]

    outside = [str(need) for need in wanted if pinned.get(_normal(need.name), "none") not in need.specifier]

    assert outside == [], "run: make requirements"
