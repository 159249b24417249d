"""Every citation in a comment, a docstring or a test can be resolved: rules by number, pages by heading."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_FOLDERS = ("services", "analytics", "tests", "protos", "examples")
_KINDS = {".py", ".proto", ".sql", ".scenario"}

_RULE = re.compile(r"\b(?:M|TR|T|I|C|D)[0-9]{1,3}b?\b")
"""Rules, traces, edge cases and invariants, anywhere in a file."""
_IN_BRACKETS = re.compile(r"\(((?:promise )?[APLGF][0-9](?:, (?:[APLGF]|M|TR|T|I)[0-9]{1,2}b?)*)\)")
"""Assumptions, promises, liveness, criteria and findings: short names, so only where they are a citation for sure."""
_NAME = re.compile(r"[A-Z]{1,2}[0-9]{1,3}b?")
_PAGE = re.compile(r"(?<![\w/*])((?:[\w.-]+/)*[A-Z]+\.md)(#[a-z0-9-]+)?")
_MADE_UP = {"I99", "T201"}
"""Test data, an invariant that a scenario must not be able to name; and a rule of ruff's."""


def _files() -> Iterator[Path]:
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in _KINDS and path != Path(__file__) and "_pb2" not in path.name:
                yield path


@cache
def _spoken(path: Path, text: str) -> str:
    """Comments and docstrings of Python files, the whole text of other files."""
    if path.suffix != ".py":
        return text
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    strings = [
        node.value.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return "\n".join(comments + strings)


@cache
def _defined() -> set[str]:
    """Names that a page explains: first cells of tables, rules at the beginning of a line, promises, assumptions."""
    reliability = (DOCS / "RELIABILITY.md").read_text()
    text = (DOCS / "PROTOCOL.md").read_text() + (DOCS / "ARCHITECTURE.md").read_text() + reliability
    names: set[str] = set()
    for cell in re.findall(r"^(?:\| |- \*\*)((?:[A-Z]{1,2}[0-9]+b?(?:, | to )?)+)(?: \||\*\* )", text, re.MULTILINE):
        names |= set(_NAME.findall(cell))
        for kind, first, last in re.findall(r"([A-Z]+)([0-9]+) to [A-Z]+([0-9]+)", cell):
            names |= {f"{kind}{number}" for number in range(int(first), int(last) + 1)}
    promises = (DOCS / "PROMISES.md").read_text()
    names |= set(re.findall(r"\((A[0-9])\)", promises)) | set(
        re.findall(r"^- \*\*(P[0-9])\*\* ", promises, re.MULTILINE)
    )
    names |= set(re.findall(r"\((L[0-9])\)", reliability))
    return names


def _dangling_names(path: Path, text: str) -> set[str]:
    cited = set(_RULE.findall(text))
    for group in _IN_BRACKETS.findall(_spoken(path, text)):
        cited |= set(_NAME.findall(group))
    return cited - _defined() - _MADE_UP


def _dangling_pages(path: Path, text: str) -> set[str]:
    dangling = set()
    for name, anchor in _PAGE.findall(_spoken(path, text)):
        found = [place / name for place in (DOCS, ROOT, path.parent) if (place / name).exists()]
        if not found or (anchor and anchor[1:] not in _anchors(found[0])):
            dangling.add(name + anchor)
    return dangling


@cache
def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_every_rule_that_is_cited_is_a_row_of_a_page() -> None:
    """A number such as M54 is a row of PROTOCOL.md, ARCHITECTURE.md or RELIABILITY.md, P2 of PROMISES.md."""
    found = {str(path.relative_to(ROOT)): sorted(_dangling_names(path, path.read_text())) for path in _files()}

    assert {path: names for path, names in found.items() if names} == {}


def test_every_page_that_is_cited_has_the_heading() -> None:
    """A page such as PROTOCOL.md#the-wire exists, and so does the heading."""
    found = {str(path.relative_to(ROOT)): sorted(_dangling_pages(path, path.read_text())) for path in _files()}

    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("find", "comment", "found"),
    [
        (_dangling_names, "# it waits (M54, M98)", {"M98"}),
        (_dangling_names, "# nobody reads it (P9)", {"P9"}),
        (_dangling_names, "# P9 is a producer", set()),
        (_dangling_pages, "# see PROTOCOL.md#the-wires", {"PROTOCOL.md#the-wires"}),
        (_dangling_pages, "# see PROTOCOL.md#the-wire", set()),
        (_dangling_pages, "# see WIRE.md", {"WIRE.md"}),
    ],
)
def test_a_citation_that_leads_nowhere_is_seen(find: object, comment: str, found: set[str]) -> None:
    """Both searches find what they look for, and accept correct text."""
    assert callable(find)
    assert find(Path("a.py"), comment + "\n") == found
