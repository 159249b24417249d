"""Import rules hold, requirements match, connections are dialled in one place, and no entry point drops assertions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ROOT / "services" / "strandline"


def _lint_imports(*arguments: str, python_path: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "lint-imports", "--no-cache", *arguments]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(python_path), "LANG": "C.UTF-8"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)


def _packages_with_a_contract() -> set[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {contract["package"] for contract in settings["tool"]["importlinter"]["contracts"]}


def _plant(folder: Path, core: str) -> Path:
    """A small product of two packages whose `core` has the given source, with a rule for it."""
    for package in ("", "core", "rpc"):
        (folder / "planted" / package).mkdir()
        (folder / "planted" / package / "__init__.py").write_text("")
    (folder / "planted" / "core" / "decision.py").write_text(core)
    rules = folder / "rules.toml"
    rules.write_text(
        """
        [tool.importlinter]
        root_packages = ["planted"]
        include_external_packages = true
        contract_types = ["may_import: tests.house.import_rules.MayImport"]
        [[tool.importlinter.contracts]]
        name = "core"
        type = "may_import"
        package = "planted.core"
        may_import = []
        never = ["time", "os"]
        standard_library_only = true
        """
    )
    return rules


def test_every_package_has_a_rule() -> None:
    """A package without a contract could import anything."""
    packages = {f"strandline.{path.parent.name}" for path in SERVICES.glob("*/__init__.py")}

    assert packages - _packages_with_a_contract() == set()


@pytest.mark.parametrize(
    ("source", "reported"),
    [
        ("import time", "imports time (line 1): in never"),
        ("import os.path", "imports os (line 1): in never"),
        ("import grpc", "imports grpc (line 1): not of the standard library"),
        ("from planted import rpc", "imports planted.rpc (line 1): not in may_import"),
    ],
)
def test_a_forbidden_import_is_caught(tmp_path: Path, source: str, reported: str) -> None:
    """The rule names the module, the line and the reason."""
    rules = _plant(tmp_path, source)

    ran = _lint_imports("--config", str(rules), python_path=tmp_path)

    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert reported in ran.stdout.replace("\n", " ")


def test_an_allowed_import_passes(tmp_path: Path) -> None:
    """Importing itself and the rest of the standard library keeps the rule."""
    rules = _plant(tmp_path, "import bisect\nimport planted.core\n")

    ran = _lint_imports("--config", str(rules), python_path=tmp_path)

    assert ran.returncode == 0, ran.stdout + ran.stderr


# The compiled requirements match pyproject.toml and depend on no machine or registry.


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


# Where connections are dialled: options that every one needs cannot be forgotten in a third place.


ROOT_CHANNELS = Path(__file__).parents[2]
_DIALS = re.compile(r"\b(?:insecure_channel|secure_channel|urlopen|HTTPS?Connection)\(")


def test_channels_are_made_in_two_files() -> None:
    """Ours in rpc/channels.py and those to etcd in its client, neither by a proxy; nothing else dials by HTTP, but the
    transport that channels.py may choose, and what asks issuers for keys: by `http.client`, which knows no proxies."""
    files = [
        path
        for folder in ("services", "analytics")
        for path in (ROOT_CHANNELS / folder).rglob("*.py")
        if not {"v1", "transport"} & set(path.relative_to(ROOT_CHANNELS).parts)
    ]
    dialling = {str(path.relative_to(ROOT_CHANNELS / "services")) for path in files if _DIALS.search(path.read_text())}

    keys = "strandline/rpc/token_issuers.py"
    assert dialling == {"strandline/rpc/channels.py", "strandline/etcd/client.py", keys}
    assert "urllib.request" not in (ROOT_CHANNELS / "services" / keys).read_text()
    for name in dialling - {keys}:
        assert "NO_PROXY" in (ROOT_CHANNELS / "services" / name).read_text()


# No entry point runs without assertions: the invariants of the log are asserted, and stay on in production.


SERVICES_ASSERTIONS = ROOT / "services"
_CHILDREN = {"strandline.cli.demo.children"}
"""Started by `strandline demo` alone, with its own interpreter and environment."""


ENTRY_POINTS = [
    "strandline",
    "strandline.cli",
    "strandline_analytics.commands.submit",
    "strandline.console",
    "strandline.controller",
    "strandline.node",
    "strandline_analytics.report",
]


def _command(entry_point: str) -> list[str]:
    if entry_point == "strandline":
        return [sys.executable, str(Path(sys.executable).parent / "strandline"), "--version"]
    return [sys.executable, "-m", entry_point, "--help"]


def _run(entry_point: str, optimize: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONOPTIMIZE": optimize, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        _command(entry_point), env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_an_entry_point_without_assertions_is_refused(entry_point: str) -> None:
    """Under PYTHONOPTIMIZE=1, which is `python -O`, it ends with one line that says how to start it."""
    ran = _run(entry_point, "1")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert re.fullmatch(r"strandline: .*removes assertions.* start it without -O and .*\n", ran.stderr)


def test_without_docstrings_it_is_refused_as_well() -> None:
    """Under `python -OO` the line is the same, and no command fails before it because of a missing docstring."""
    assert "start it without -O" in _run("strandline", "2").stderr


def test_with_assertions_it_runs() -> None:
    """The command in these tests works without the option."""
    assert _run("strandline", "").returncode == 0


def test_no_entry_point_is_forgotten() -> None:
    """Every module that can be run as a program is among those that are tested here."""
    found = set()
    for root in (SERVICES_ASSERTIONS, ROOT / "analytics"):
        for path in root.rglob("*.py"):
            if re.search(r'^if __name__ == "__main__":', path.read_text(), re.MULTILINE):
                name = ".".join(path.relative_to(root).with_suffix("").parts)
                found.add(name.removesuffix(".__main__"))

    assert found - _CHILDREN == set(ENTRY_POINTS) - {"strandline"}
