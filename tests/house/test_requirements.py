"""The compiled requirements match pyproject.toml and depend on no machine or registry."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS_OF = {
    "runtime": ["server"],
    "dev": ["server", "export", "analytics", "console", "sim", "dev"],
    "bench": ["bench"],
    "fuzz": ["fuzz"],
    "data-plane": ["server", "export", "console"],
    "analytics": ["server", "console", "analytics"],
}


def _pinned(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return {_normal(package): version for package, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)}


def _normal(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


@pytest.mark.parametrize("name", EXTRAS_OF)
def test_requirements_name_no_host_and_no_path(name: str) -> None:
    """The requirements name no host and no path, so they install from any configured index."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()

    assert re.findall(r"https?:|^-|--index|--find-links|file:|^/|\s/\w", text, re.MULTILINE) == []


@pytest.mark.parametrize("name", EXTRAS_OF)
def test_requirements_hold_what_the_project_asks_for(name: str) -> None:
    """Every direct dependency is pinned to a version that its range allows."""
    pinned = _pinned(name)
    wanted = [Requirement(line) for line in PROJECT["dependencies"]]
    for extra in EXTRAS_OF[name]:
        lines = PROJECT["optional-dependencies"][extra]
        wanted += [need for need in map(Requirement, lines) if need.name != PROJECT["name"]]

    outside = [str(need) for need in wanted if pinned.get(_normal(need.name), "none") not in need.specifier]

    assert outside == [], "run: make requirements"


@pytest.mark.parametrize("name", ["data-plane", "analytics"])
def test_images_hold_the_versions_that_were_tested(name: str) -> None:
    """A pin for an image equals the pin for the environment in which the tests run."""
    tested = _pinned("dev")

    others = {package: version for package, version in _pinned(name).items() if tested.get(package) != version}

    # Two versions of one package are in dev.txt where newer Pythons take another; the older Python's comes first.
    text = (ROOT / "requirements" / "dev.txt").read_text()
    assert {package for package, version in others.items() if f"{package}=={version}" not in text} == set()
