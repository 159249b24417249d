"""Commands that pages show exist, and the help costs no more than printing it."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from strandline.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_CODE = re.compile(r"^ *(```|~~~).*?^ *\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_MAKE = re.compile(r"(?:^|[\s`;&|(])make +((?:[A-Za-z_]+=\S+ +)*)([a-z][a-z-]*)(?: +WHAT=([a-z]+))?", re.MULTILINE)
_STRANDLINE = re.compile(r"(?:^|[\s`;&|(/])strandline((?: +[a-z][a-z-]*)+)", re.MULTILINE)


@cache
def _make_targets() -> set[str]:
    """Verbs; and for ``WHAT=NAME`` the variables that say what it runs, `BENCH_NAME` for example."""
    return set(re.findall(r"^([a-z][a-z-]*(?=:)|[A-Z]+_[a-z]+(?= :?=))", (ROOT / "Makefile").read_text(), re.MULTILINE))


@cache
def _root() -> Any:
    """The whole command line, put together once: a page names hundreds of commands."""
    return typer.main.get_command(app)


def _unknown_strandline_command(words: list[str]) -> bool:
    """Whether the words after `strandline` name no command. Words after a whole command are its arguments."""
    command = _root()
    for word in words:
        below = getattr(command, "commands", None)
        if below is None:
            return False
        if word not in below:
            return True
        command = below[word]
    return False


def unknown_commands(page: str) -> list[str]:
    """The commands in a Markdown page's code that do not exist, as they are written there."""
    code = "\n".join(match[0] for match in _CODE.finditer(page))
    targets = _make_targets()
    unknown = []
    for _, verb, what in _MAKE.findall(code):
        if verb not in targets:
            unknown.append(f"make {verb}")
        elif what and f"{verb.rpartition('-')[2].upper()}_{what}" not in targets:
            unknown.append(f"make {verb} WHAT={what}")
    for words in _STRANDLINE.findall(code):
        if _unknown_strandline_command(words.split()):
            unknown.append(f"strandline{words}")
    return unknown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_only_commands_that_exist(page: Path) -> None:
    """A reader can run every command that the page shows."""
    assert unknown_commands(page.read_text()) == []


@pytest.mark.parametrize(
    ("page", "unknown"),
    [
        ("Run `make demo`.", []),
        ("```\nmake FILE=x demo && make test\n```", []),
        ("Run `make coffee`.", ["make coffee"]),
        ("`make bench WHAT=smoke`, `make test-deep WHAT=drawn`, `make bench WHAT=tea`", ["make bench WHAT=tea"]),
        ("It may make coffee; strandline coffee is prose.", []),
        ("```sh\n$ strandline topic create logs --partitions 3\n```", []),
        ("`.venv/bin/strandline produce logs`", []),
        ("`strandline coffee`", ["strandline coffee"]),
        ("```\nstrandline topic brew\n```", ["strandline topic brew"]),
    ],
)
def test_a_command_that_does_not_exist_is_found(page: str, unknown: list[str]) -> None:
    """Code is read, prose is not; a wrong verb is reported as it is written."""
    assert unknown_commands(page) == unknown


# The help of the command line costs no more than printing it.


# Runs the command as its script does, then prints the imported modules.
_SCRIPT = """
import sys
from strandline.cli.__main__ import main
sys.argv = ["strandline", *{arguments!r}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("\\nIMPORTED:", *sorted({{name.split(".")[0] for name in sys.modules}}))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["topic", "--help"], ["produce", "--help"], ["up", "--help"]])
def test_help_imports_no_heavy_package(arguments: list[str]) -> None:
    """`--help` answers without grpc, protobuf, the codecs or Spark."""
    command = [sys.executable, "-c", _SCRIPT.format(arguments=arguments)]

    ran = subprocess.run(command, capture_output=True, text=True, timeout=30)
    imported = ran.stdout.rpartition("IMPORTED:")[2].split()

    assert ran.returncode == 0, ran.stderr
    assert "typer" in imported
    assert {"grpc", "google", "pyspark", "aiokafka", "pydantic_settings"} & set(imported) == set()
