"""Finds a compose that supports deploy/compose/compose.yaml, and runs it under a project name of its own.

Invariant: everything started under a name is removed with its volumes, also after a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine import ROOT, NoEngine

FILE = ROOT / "deploy" / "compose" / "compose.yaml"
SEVERAL = ROOT / "deploy" / "compose" / "controllers.yaml"
"""What makes three controllers of its one."""
_COMMAND_S = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """One project: its name, the words of the command, and the variables of the file."""

    name: str
    words: tuple[str, ...]
    variables: Mapping[str, str]

    def run(self, *words: str) -> str:
        """A command of compose, which must succeed; returns its output."""
        done = subprocess.run(
            [*self.words, *words],
            env={**os.environ, **self.variables},
            check=False,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
        )
        assert done.returncode == 0, f"compose {' '.join(words)}: {done.stderr[-1_000:]}"
        return done.stdout


@contextmanager
def composed(project: str, variables: Mapping[str, str], *over: Path) -> Iterator[Composed]:
    """A project for the length of a block, of the file and of what is laid over it; nothing is started.

    Raises:
        NoEngine: there is no compose.
    """
    files = [word for file in (FILE, *over) for word in ("--file", str(file))]
    made = Composed(name=project, words=(*composer(), "--project-name", project, *files), variables=variables)
    try:
        yield made
    finally:
        made.run("--profile", "analytics", "down", "--volumes", "--timeout", "30")


def composer() -> tuple[str, ...]:
    """The plugin if it exists, else docker-compose.

    Raises:
        NoEngine: neither exists.
    """
    plugin = ["docker", "compose", "version"]
    if shutil.which("docker") and subprocess.run(plugin, check=False, capture_output=True, timeout=30).returncode == 0:
        return ("docker", "compose")
    if not shutil.which("docker-compose"):
        raise NoEngine("neither the compose plugin of docker nor docker-compose is there")
    return ("docker-compose",)
