"""What an import or a collection has written, and the commands of `strandline analytics` that write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from strandline.cli.app import app
from strandline.export.destination import LocalDirectory
from strandline.export.reading import clusters, find_files, read_rows

Row = dict[str, Any]


def rows_of(out: Path, kind: str = "") -> list[Row]:
    """The rows of all files of an export, or those of one event type, by node, incarnation and number."""
    place = LocalDirectory(out)
    found = [(one, file.path) for one in clusters(place) for file in find_files(place, one)]
    rows = (row for one, path in found for row in read_rows(path, place.get(f"{one}/v1/{path}")))
    kept = [row for row in rows if kind in ("", row["event_type"])]
    return sorted(kept, key=lambda row: (row["node_id"], row["incarnation"], row["seq"]))


def source_path(out: Path) -> Path:
    """Where an export says of which files it was made."""
    (found,) = out.glob("*/v1/_source/kafka.json")
    return found


def source_of(out: Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(source_path(out).read_text())
    return said


def files_of(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def run_import(*words: object) -> Result:
    """`strandline analytics import kafka`."""
    return CliRunner().invoke(app, ["analytics", "import", "kafka", *map(str, words)])


def refusal(ran: Result) -> str:
    """What a command says of wrong usage, without the box around it."""
    return " ".join(ran.stderr.replace("│", " ").split())
