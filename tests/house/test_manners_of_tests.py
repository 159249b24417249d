"""Tests state their facts, do not sleep, and cannot shadow each other."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
FILES = sorted(TESTS.rglob("test_*.py"))


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def _sleeps(path: Path) -> list[int]:
    """Lines that call time.sleep, under any name of `time`."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr == "sleep" and ast.unparse(node.value) == "time")
        or (
            isinstance(node, ast.ImportFrom) and node.module == "time" and "sleep" in {name.name for name in node.names}
        )
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_every_test_states_its_fact(path: Path) -> None:
    """The docstring of a test is the fact that it checks."""
    assert [function.name for function in _functions(path) if not ast.get_docstring(function)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_no_test_sleeps(path: Path) -> None:
    """A sleep is either too short or too long; tests wait for events, or advance the time themselves."""
    assert _sleeps(path) == []


def test_tests_are_no_package() -> None:
    """With importlib mode an __init__.py would only make folders that shadow the product."""
    assert list(TESTS.rglob("__init__.py")) == []


def test_file_names_are_unique() -> None:
    """File names of tests are unique, so that a failing file is identified by its name."""
    names = Counter(path.name for path in FILES)

    assert [name for name, times in names.items() if times > 1] == []
