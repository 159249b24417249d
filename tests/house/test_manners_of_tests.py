"""Tests state their facts, do not sleep, and cannot shadow each other."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
FILES = sorted(TESTS.rglob("test_*.py"))
TREES = {str(path.relative_to(TESTS)): list(ast.walk(ast.parse(path.read_text()))) for path in FILES}


def _is_test(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")


def _is_sleep(node: ast.AST) -> bool:
    """Whether it names time.sleep, under any name of `time`."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "time" and "sleep" in {name.name for name in node.names}
    return isinstance(node, ast.Attribute) and node.attr == "sleep" and ast.unparse(node.value) == "time"


def test_every_test_states_its_fact() -> None:
    """The docstring of a test is the fact that it checks."""
    silent = [
        f"{path}::{node.name}"
        for path, tree in TREES.items()
        for node in tree
        if _is_test(node) and not ast.get_docstring(node)
    ]

    assert silent == []


def test_no_test_sleeps() -> None:
    """A sleep is either too short or too long; tests wait for events, or advance the time themselves."""
    assert [f"{path}:{node.lineno}" for path, tree in TREES.items() for node in tree if _is_sleep(node)] == []


def test_a_fixture_of_the_whole_session_fails_once(tmp_path: Path) -> None:
    """Tests that ask for it later are skipped with its reason, so one slow start is not three hundred failures."""
    for name in ("conftest.py", "slow.txt", "skips.txt"):
        (tmp_path / name).write_text((TESTS / name).read_text())
    (tmp_path / "test_three.py").write_text(
        "import pytest\n"
        "made = pytest.fixture(scope='session')\n"
        "@made\ndef first():\n    assert False, 'too slow'\n"
        "@made\ndef second(first):\n    pass\n"
        "@pytest.mark.parametrize('number', range(3))\ndef test_of_both(number, second):\n    pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=60)

    assert "2 skipped, 1 error" in done.stdout
    assert "fixture first failed in an earlier test: AssertionError: too slow" in done.stdout


def test_no_test_installs_a_package() -> None:
    """A run of the tests leaves the machine's packages as they are; `make packages` installs what is missing."""
    installs = re.compile(r"""\[\s*["'](apt-get|apt|dpkg)["']""")

    assert [path.name for path in TESTS.rglob("*.py") if installs.search(path.read_text())] == []


def test_tests_are_no_package() -> None:
    """With importlib mode an __init__.py would only make folders that shadow the product."""
    assert list(TESTS.rglob("__init__.py")) == []


def test_file_names_are_unique() -> None:
    """File names of tests are unique, so that a failing file is identified by its name."""
    names = Counter(path.name for path in FILES)

    assert [name for name, times in names.items() if times > 1] == []


def test_what_tests_import_of_the_product_exists() -> None:
    """Measures, campaigns and fuzzing, which no fast test starts, do not import what the product no longer has."""
    imports = {
        ast.unparse(node)
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and re.match("(pyspark_)?strandline", node.module or "")
    }
    for statement in sorted(imports):
        # Only type checkers see the stubs of asynchronous calls.
        if "AsyncStub" not in statement:
            exec(statement, {})


def test_a_listed_slow_test_exists() -> None:
    """A misspelt name in slow.txt would leave a slow test in `make test`, one in skips.txt would expect nothing."""
    slow = (TESTS / "slow.txt").read_text().split()
    skips = re.findall(r"^tests/([\w/.]+)", (TESTS / "skips.txt").read_text(), re.MULTILINE)

    assert [name for name in [*slow, *skips] if not (TESTS / name).exists()] == []
