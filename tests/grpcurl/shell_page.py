"""Reads a page of shell commands and their outputs, and rewrites the outputs.

A block of `sh` is run; the `json` or `text` block that follows it directly is its output. A block of `sh` after the
comment `<!-- not run -->` is only for the reader. Invariant: writing back what was read changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

_BLOCK = re.compile(r"(<!-- not run -->\n)?```sh\n(.*?)```\n(?:\n```(json|text)\n(.*?)```\n)?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One block of commands; ``output`` is None where the page has none."""

    line: int
    command: str
    output: str | None

    @property
    def only_sets(self) -> bool:
        """Whether it sets variables for later steps and prints nothing."""
        return self.command.startswith("export ")

    @property
    def name(self) -> str:
        """Its RPC or its first words, for failure messages."""
        rpc = re.search(r"[\w.]+\.v1\.\w+/\w+", self.command)
        return f"line {self.line}: {rpc[0] if rpc else self.command.splitlines()[0]}"


def read_steps(page: str) -> list[Step]:
    """The steps in order."""
    return [
        Step(line=page.count("\n", 0, found.start()) + 1, command=found[2].strip(), output=found[4])
        for found in _BLOCK.finditer(page)
        if not found[1]
    ]


def with_outputs(page: str, outputs: Mapping[int, str]) -> str:
    """The page with the output of each step, by its line, inserted after it."""

    def block(found: re.Match[str]) -> str:
        output = outputs.get(page.count("\n", 0, found.start()) + 1)
        if output is None:
            return found[0]
        return f"```sh\n{found[2]}```\n\n```{_language(output)}\n{output}```\n"

    return _BLOCK.sub(block, page)


def rpcs(page: str) -> set[str]:
    """Every RPC that a step calls, as `package.Service/Method`."""
    return {name for step in read_steps(page) for name in re.findall(r"[\w.]+\.\w+/\w+", step.command)}


def _language(output: str) -> str:
    try:
        json.loads(output)
    except ValueError:
        return "text"
    return "json"
