"""Which extra of the distribution and which package each command needs, and the line that names what is missing.

Other packages add commands in the entry-point group `strandline.commands`, by the words before them joined with a dot.

Invariant: a missing library of an extra ends a command with one line; a missing module of our own stays a defect.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperGroup

EXTRA_OF = {
    "up": "server",
    "demo": "server",
    "controller": "server",
    "replica": "server",
    "settings": "server",
    "export": "export",
    "console": "console",
    "analytics": "analytics",
    "scenario": "sim",
    "sim": "sim",
}
"""By the command's first word. Every other command is complete in the base install."""

ANALYTICS_IMAGE = ("strandline_analytics", "strandline_kafka")
"""Packages of ours that one container image has and the other has not (deploy/images/Dockerfile)."""

_SERVER_LIBRARIES = (
    "grpc_health",
    "grpc_reflection",
    "msgspec",
    "prometheus_client",
    "psutil",
    "pydantic",
    "structlog",
)


def missing_extra(error: ImportError, command: str) -> str | None:
    """One line with the remedy; None when ``error`` is about a module of our own, or of no extra."""
    library = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(command)
    if extra is None or not library or library.startswith("strandline"):
        return None
    return f"`strandline {command}` needs {library}, which is not installed; in the checkout: pip install '.[{extra}]'"


def require_server() -> None:
    """Refuse at once what would start processes that cannot run.

    Raises:
        ModuleNotFoundError: the first library of the extra `server` that is not installed.
    """
    for library in _SERVER_LIBRARIES:
        if find_spec(library) is None:
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)


def installed_elsewhere(below: str = "") -> Iterator[tuple[str, typer.Typer]]:
    """The commands that other packages add to the program, or to its command ``below``: name and commands."""
    prefix = f"{below}." if below else ""
    for entry in entry_points(group="strandline.commands"):
        name = entry.name.removeprefix(prefix)
        if entry.name.startswith(prefix) and "." not in name:
            yield name, _loaded(entry)


def _loaded(entry: EntryPoint) -> typer.Typer:
    package = entry.module.partition(".")[0]
    if find_spec(package) is not None:
        commands: typer.Typer = entry.load()
        return commands

    # Entry points belong to the distribution; an image has some of its packages.
    words = entry.name.replace(".", " ")
    where = "the image strandline-analytics has it" if package in ANALYTICS_IMAGE else "no image has it"
    said = f"`strandline {words}` needs the package {package}, which is not here; {where}"
    absent = typer.Typer(cls=_Absent, help=said)
    absent.callback()(lambda: None)
    return absent


class _Absent(TyperGroup):
    """The commands of a package that is not here: whatever follows, the answer is one line, and exit code 1."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print the line; never returns."""
        typer.echo(f"strandline: {self.help}", err=True)
        raise typer.Exit(1)
