"""Blocks of a page that a run writes: between two marks, each by the tool that its first mark names.

Invariant: writing a block leaves the rest of the page unchanged; writing the page again keeps everything from its
first block on.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

_BLOCK = re.compile(r"<!-- (?P<name>[^:>]+): written by `[^`]+` -->\n.*?<!-- end of (?P=name) -->\n", re.DOTALL)


def write_block(page: Path, name: str, tool: str, text: str) -> None:
    """Put a block into a page: in its own place, or at the end of a page that has none of that name."""
    block = f"<!-- {name}: written by `{tool}` -->\n{text.rstrip()}\n\n<!-- end of {name} -->\n"
    before = page.read_text()
    if any(found["name"] == name for found in _BLOCK.finditer(before)):
        page.write_text(_BLOCK.sub(lambda found: block if found["name"] == name else found[0], before))
    else:
        page.write_text(f"{before.rstrip()}\n\n{block}")


@cache
def measured_commit() -> str:
    """The commit that a run measures: figures of another one say little about the current one.

    Asked once: what the run itself writes into docs/ does not make its commit dirty.
    """
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def from_first_block(page: Path) -> str:
    """The rest of a page from its first block on, for a tool that writes again what is before it.

    With the text between blocks, which explains them and is written by hand.
    """
    text = page.read_text() if page.exists() else ""
    first = _BLOCK.search(text)
    return text[first.start() :] if first else ""
