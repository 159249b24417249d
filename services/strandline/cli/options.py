"""The options that many commands share, declared once so that they read and behave the same everywhere.

Invariant: `--bootstrap` overrides STRANDLINE_BOOTSTRAP, which overrides a profile; without any of them a command ends
with exit code 2.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from strandline.cli.durations import Duration, duration_option
from strandline.cli.output import Format

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="STRANDLINE_BOOTSTRAP",
        metavar="HOST:PORT[,...]",
        help="Addresses of any processes of the cluster, separated by commas.",
    ),
]

Output = Annotated[Format, typer.Option("--output", "-o", help="Table for people; json, yaml or csv for programs.")]

Interval = Annotated[Duration, duration_option("--interval", help="With --watch: how often to refresh.", least="200ms")]

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]


def group_option(text: str) -> Any:
    """`--group` of a command that reads; ``text`` is its help."""
    return typer.Option("--group", "-g", metavar="NAME", help=text, callback=_not_blank)


def _not_blank(name: str | None) -> str | None:
    if name is not None and not name.strip():
        raise typer.BadParameter("a group's name must not be blank; give 1 to 249 characters")
    return name


def addresses(bootstrap: str) -> list[str]:
    """`a:1,b:2` as a list.

    Raises:
        typer.BadParameter: when an entry is not host:port.
    """
    found = [entry.strip() for entry in bootstrap.split(",") if entry.strip()]
    for entry in found:
        host, _, port = entry.rpartition(":")
        if not host or "/" in host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
            raise typer.BadParameter(f"--bootstrap: {entry!r} is not host:port; write for example 127.0.0.1:9092")
    if not found:
        raise typer.BadParameter("--bootstrap: no address given; write for example 127.0.0.1:9092")
    return found


def key_values(entries: list[str], option: str) -> dict[str, str]:
    """`["a=1", "b=2"]` as a mapping.

    Raises:
        typer.BadParameter: when an entry has no `=`.
    """
    settings: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{option}: {entry!r} is not NAME=VALUE; write for example retention.ms=3600000")
        settings[name.strip()] = value.strip()
    return settings


def partition_list(text: str | None) -> list[int] | None:
    """`"0,2"` as [0, 2]; None stays None and means: all partitions.

    Raises:
        typer.BadParameter: when an entry is not a whole number >= 0.
    """
    if text is None:
        return None
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if not entries or not all(re.fullmatch("[0-9]{1,9}", entry) for entry in entries):
        raise typer.BadParameter(f"--partition: {text!r} is not a list of partition numbers; write for example 0,2")
    return [int(entry) for entry in entries]


def states_of(text: str | None, states: tuple[str, ...], what: str) -> list[str]:
    """`stable,empty` as the names of these ``states`` of a group or transaction; none without a text.

    Raises:
        typer.BadParameter: there is no such state.
    """
    known = {state.lower(): state for state in states}
    asked = [] if text is None else [entry.strip().lower() for entry in text.split(",")]
    unknown = next((entry for entry in asked if entry not in known), None)
    if unknown is not None:
        raise typer.BadParameter(f"--state: {unknown!r} is not a state of a {what}; known are {', '.join(states)}")
    return [known[entry] for entry in asked]


# ---- former_options
# Options that had a unit in their names, with their new names; accepted for one release, not shown in help.
#
# Their value was a number without a unit. Invariant: a rewritten option is printed on stderr in its new form.

FORMER = {
    "node shutdown": {"--deadline-s": ("--deadline", "s")},
    "produce": {"--linger-ms": ("--linger", "ms")},
    "sim run": {"--minutes": ("--time", "m")},
    "sim shrink": {"--seconds": ("--time", "s")},
    "certs new": {"--days": ("--valid-for", "d")},
    "certs add": {"--days": ("--valid-for", "d")},
    "certs renew": {"--days": ("--valid-for", "d")},
}
"""By command: the former name, today's, and the unit of the number."""


def in_todays_words(words: list[str]) -> list[str]:
    """The command line with former options replaced by the new ones."""
    named = next((name for name in FORMER if words[: name.count(" ") + 1] == name.split()), None)
    if named is None:
        return words
    written: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, number = word.partition("=")
        if word == "--":
            return [*written, word, *rest]
        if option not in FORMER[named]:
            written.append(word)
            continue
        today, unit = FORMER[named][option]
        value = f"{number if equals else next(rest, '')}{unit}"
        typer.echo(f"strandline: {option} is now {today} {value}; the next release refuses the old name", err=True)
        written += [today, value]
    return written
