"""Prints answers: as a table for people, as json, yaml or csv for programs.

Invariant: all forms carry the same rows; a program's form has every field, a person's only the columns.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Row = Mapping[str, Any]

_WIDE = 240
"""Columns of a table that goes to a file or pipe, so that nothing is cut there."""


class Format(StrEnum):
    """The forms that `-o` accepts."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: the row's key, the heading, and whether it holds numbers."""

    key: str
    heading: str
    number: bool = False


TEXT, NUMBER = False, True


def plain_columns(**are_numbers: bool) -> list[Column]:
    """Columns of these keys, headed by their words: `low_watermark` as "low watermark"."""
    return [Column(key, key.replace("_", " "), number) for key, number in are_numbers.items()]


def kafka_columns(**are_numbers: bool) -> list[Column]:
    """Columns of these keys, headed as Kafka's tools write them: `current_offset` as CURRENT-OFFSET."""
    return [Column(key, key.upper().replace("_", "-"), number) for key, number in are_numbers.items()]


def show(rows: Sequence[Row], columns: Sequence[Column], form: Format, *, empty: str = "nothing to show") -> None:
    """Prints ``rows`` in the chosen format; for a table without rows, prints ``empty`` on stderr."""
    if form is not Format.TABLE:
        print_document([dict(row) for row in rows], form)
    elif rows:
        console().print(table(rows, columns))
    else:
        print(empty, file=sys.stderr)


def for_programs(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows without what is only a text for people, `..._text`."""
    return [{key: value for key, value in row.items() if not key.endswith("_text")} for row in rows]


def show_one(row: Row, form: Format, sentence: str) -> None:
    """Prints one result: a sentence for people, the whole row for programs."""
    if form is Format.TABLE:
        print(sentence)
    else:
        print_document(dict(row), form)


def print_document(document: Any, form: Format) -> None:
    """Prints a document of plain values as json, yaml or csv."""
    if form is Format.JSON:
        print(json.dumps(document, indent=2, default=str))
        return
    if form is Format.CSV:
        _print_csv(document if isinstance(document, list) else [document])
        return
    import yaml

    print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")


def _print_csv(documents: Sequence[Row]) -> None:
    """A row for each document, with the fields of all of them in order; nothing for none."""
    rows = [flat_row(document) for document in documents]
    if not rows:
        return
    fields = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(sys.stdout, fields, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def flat_row(document: Row, prefix: str = "") -> dict[str, Any]:
    """A document as cells: inner fields as `outer.inner`, lists with commas, documents in lists as json."""
    row: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping) and value:
            row |= flat_row(value, f"{prefix}{name}.")
        elif isinstance(value, Mapping) or (
            isinstance(value, list | tuple) and any(isinstance(e, Mapping) for e in value)
        ):
            row[prefix + name] = json.dumps(value, default=str)
        elif isinstance(value, list | tuple):
            row[prefix + name] = ",".join(str(entry) for entry in value)
        elif isinstance(value, bool):
            row[prefix + name] = str(value).lower()
        else:
            row[prefix + name] = "" if value is None else value
    return row


def table(rows: Sequence[Row], columns: Sequence[Column]) -> Table:
    """The rows as a rich table without frames: headings, one thin line, values."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        drawn.add_column(column.heading, justify="right" if column.number else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*[Text(cell(row.get(column.key))) for column in columns])
    return drawn


def cell(value: Any) -> str:
    """A value as a table shows it: `-` for absence, thousands apart, lists with commas."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple | set | frozenset):
        return printable(",".join(str(entry) for entry in value)) or "-"
    return printable(str(value))


def printable(text: str, *, keep: str = "") -> str:
    """Text without terminal control: characters that cannot be printed are escaped, except those in ``keep``."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode() for each in text
    )


def console(*, stderr: bool = False) -> Console:
    """A console for stdout or stderr that never cuts a line which does not go to a terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else _WIDE, soft_wrap=False)
