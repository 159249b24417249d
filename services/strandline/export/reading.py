"""Finding and reading exported files, whatever their format: Parquet, JSON lines, compacted or not.

Invariant: a folder is looked at once; what appears later belongs to the next look.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.export import layout
from strandline.export.destination import Destination
from strandline.export.encoding import parse_lines
from strandline.export.layout import Manifest
from strandline.export.rows import Row
from strandline.export.schema import COLUMNS, DATASETS, ENVELOPE, ColumnType

_MAPS = frozenset(c.name for c in COLUMNS if c.kind in (ColumnType.STRINGS_BY_NAME, ColumnType.LONGS_BY_NAME))


_REQUIRED = tuple(
    (column.name, str if column.kind is ColumnType.STRING else int) for column in ENVELOPE if column.required
)
_NUMBERS = ("dropped_first_seq", "dropped_last_seq", "last_seq")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A data file, relative to its cluster's folder, and its manifest if there is a readable one."""

    path: str
    manifest: Manifest | None
    wrong_manifest: str = ""

    @property
    def dataset(self) -> str:
        """The dataset that it belongs to."""
        return self.path.partition("/")[0]

    @property
    def hour_path(self) -> str:
        """``dt=.../hr=...``."""
        return "/".join(self.path.split("/")[1:3])


def clusters(destination: Destination) -> list[str]:
    """Ids of the clusters that have a folder."""
    marker = f"/{layout.VERSION_FOLDER}/"
    return sorted({path.partition(marker)[0] for path in destination.names("") if marker in path})


def find_files(destination: Destination, cluster_id: str) -> list[FoundFile]:
    """Every data file of a cluster, in order of its path."""
    folder = layout.cluster_folder(cluster_id)
    paths = {path.removeprefix(f"{folder}/") for path in destination.names(folder)}
    data = [path for path in paths if path.partition("/")[0] in DATASETS and path.endswith(layout.SUFFIXES)]
    return [_with_manifest(destination, folder, path, paths) for path in sorted(data)]


def missing_files(destination: Destination, cluster_id: str) -> list[FoundFile]:
    """Files that are not there, by their manifests."""
    folder = layout.cluster_folder(cluster_id)
    paths = {path.removeprefix(f"{folder}/") for path in destination.names(folder)}
    prefix = f"{layout.MANIFEST_FOLDER}/"
    orphans = [path for path in sorted(paths) if path.startswith(prefix) and _data_of(path) not in paths]
    return [_with_manifest(destination, folder, _data_of(path), paths) for path in orphans]


def _data_of(manifest_path: str) -> str:
    return manifest_path.removeprefix(f"{layout.MANIFEST_FOLDER}/").removesuffix(".json")


def _with_manifest(destination: Destination, folder: str, path: str, paths: set[str]) -> FoundFile:
    manifest_path = layout.manifest_path(path)
    if manifest_path not in paths:
        return FoundFile(path=path, manifest=None)
    try:
        text = destination.get(f"{folder}/{manifest_path}").decode()
        return FoundFile(path=path, manifest=Manifest.from_json(text))
    except ValueError as error:
        return FoundFile(path=path, manifest=None, wrong_manifest=str(error))


def read_rows(path: str, content: bytes) -> list[Row]:
    """The rows of a file, set columns only.

    Raises:
        ValueError: it is damaged.
    """
    rows = parse_lines(content) if path.endswith(layout.JSON_LINES) else _parquet_rows(content)
    for number, row in enumerate(rows, start=1):
        fault = _fault(row)
        if fault:
            raise ValueError(f"row {number}: {fault}")
    return rows


def _fault(row: Row) -> str:
    """Why this is not an event, as far as it is read here; empty if it is one."""
    for name, kind in _REQUIRED:
        if not isinstance(row.get(name), kind):
            return f"{name} is missing, or no {'word' if kind is str else 'number'}"
    for name in _NUMBERS:
        if name in row and not isinstance(row[name], int):
            return f"{name} is not a number"
    by_type = row.get("dropped_by_type")
    if by_type is not None and not (isinstance(by_type, dict) and all(type(n) is int for n in by_type.values())):
        return "dropped_by_type does not hold numbers by name"
    if row.get("ext") is not None and not isinstance(row["ext"], dict):
        return "ext does not hold words by name"
    return ""


def _parquet_rows(content: bytes) -> list[Row]:
    from pyarrow import ArrowException

    from strandline.export.arrow import read_parquet

    try:
        rows: list[Row] = read_parquet(content).to_pylist()
        return [_set_only(row) for row in rows]
    except (ArrowException, OSError, TypeError) as error:
        raise ValueError(f"not a Parquet file of events: {error}") from error


def _set_only(row: Row) -> Row:
    """Without nulls, and with maps as maps: Arrow gives them as lists of pairs."""
    return {name: dict(value) if name in _MAPS else value for name, value in row.items() if value is not None}
