"""The import rules are checked automatically, for every existing package and every new one."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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
