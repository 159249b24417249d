"""What a user gets: a wheel that runs by itself, and a source archive from which the tests run."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest

from strandline_sim.scenario.language import shipped

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    """The wheel, opened."""
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_has_everything_that_is_read_at_run_time(wheel: zipfile.ZipFile) -> None:
    """The wheel has all packages with their types, every file beside a module, and the scenarios in the README."""
    names = set(wheel.namelist())
    packages = [path for folder in ("services", "analytics") for path in (ROOT / folder).iterdir() if path.is_dir()]
    beside = {
        f"{package.name}/{path.relative_to(package)}"
        for package in packages
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert beside - names == set()
    assert {f"{package.name}/py.typed" for package in packages} <= names
    assert {f"strandline_sim/scenarios/{path.name}" for path in shipped()} <= names
    assert {PurePosixPath(name).parts[0] for name in names} == {
        *(package.name for package in packages),
        next(name for name in names if name.endswith("METADATA")).partition("/")[0],
    }


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    """The README is its description, and it has a version, a license and the Pythons that were tested."""
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = Parser().parsestr(wheel.read(name).decode())

    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Provides-Extra")) >= {"server", "export", "analytics", "console", "sim"}


def test_the_source_archive_has_everything_that_the_tests_need(built: Path) -> None:
    """Every file of the tree that is not a build product."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    folders = ("services", "analytics", "protos", "tests", "docs", "deploy", "examples", "requirements", ".ci")
    wanted = {
        str(file.relative_to(ROOT))
        for folder in folders
        for file in (ROOT / folder).rglob("*")
        if file.suffix in {".py", ".proto", ".md", ".txt", ".yaml", ".scenario", ".sql", ".j2", ".go", ".js"}
        and not {"__pycache__", "node_modules"} & set(file.parts)
    }

    assert wanted - names == set()
    assert {"Makefile", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".ci/run"} <= names
