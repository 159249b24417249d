"""Selects the exported files to read for a question: by cluster, dataset and hour, from their paths alone.

Invariant: a file that is not needed is not opened, nor is its manifest; the same files give the same ``input_hash``,
wherever they are and in whatever order they are named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import SparkSession

from strandline.export import layout
from strandline.export.layout import Manifest, SeqRange
from strandline.export.schema import DATASETS
from strandline_analytics.scope import HOUR_US
from strandline_analytics.sources.places import Place, open_place
from strandline_analytics.sources.trouble import DamagedFile, NothingThere

_MARK = f"/{layout.VERSION_FOLDER}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """One data file. ``path`` is relative to the folder of its cluster, as in manifests."""

    place: Place
    cluster_id: str
    folder: str
    path: str
    size_bytes: int
    manifest: Manifest | None

    @property
    def dataset(self) -> str:
        """The dataset: ``transitions`` or ``samples``."""
        return self.path.partition("/")[0]

    @property
    def hour_path(self) -> str:
        """``dt=.../hr=...``."""
        return "/".join(self.path.split("/")[1:3])

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.path.rpartition("/")[2]

    @property
    def shown(self) -> str:
        """The name of the file in messages."""
        return f"{self.place.root}/{self.place_path}"

    @property
    def uri(self) -> str:
        """The URI of the file for Spark."""
        return self.place.uri(self.place_path)

    @property
    def hour(self) -> int:
        """The hour of its events, counted from 1970."""
        day, _, hour = self.hour_path.removeprefix("dt=").partition("/hr=")
        return layout.hour_of(int(datetime.fromisoformat(f"{day}T{hour}:00:00+00:00").timestamp()) * 1_000_000)

    @property
    def span_us(self) -> tuple[int, int]:
        """The span from its first event to after its last one; its whole hour if no manifest says more."""
        if self.manifest:
            return self.manifest.min_ts_wall_us, self.manifest.max_ts_wall_us + 1
        return self.hour * HOUR_US, (self.hour + 1) * HOUR_US

    @property
    def place_path(self) -> str:
        """The file's path below its place."""
        return f"{self.folder}{self.path}"

    @property
    def ranges(self) -> tuple[SeqRange, ...]:
        """The ranges of numbers, by emitter, that it claims to have: by its manifest, else by its name."""
        if self.manifest:
            return self.manifest.ranges
        reported = layout.parse_name(self.name)
        return (reported,) if reported else ()

    @property
    def fingerprint_of_content(self) -> str:
        """A fingerprint that is equal for copies of one file."""
        return self.manifest.sha256 if self.manifest else self.uri

    @property
    def fingerprint(self) -> str:
        """The fingerprint that distinguishes this file from others: the hash in its manifest, else its size."""
        content = self.manifest.sha256 if self.manifest else f"{self.size_bytes} bytes, unproven"
        return f"{self.cluster_id}/{self.path} {content}"


def input_hash(files: Iterable[ExportedFile]) -> str:
    """A hash that identifies a set of files: 16 hexadecimal digits."""
    lines = sorted({file.fingerprint for file in files})
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def find_exports(
    spark: SparkSession,
    inputs: Sequence[str],
    *,
    cluster_id: str | None = None,
    wanted: Callable[[str, str], bool] = lambda dataset, hour_path: True,
    noticed: Callable[[str], None] = lambda said: None,
) -> list[ExportedFile]:
    """The data files of all inputs, in order of cluster and path; each once, however often it was named.

    Args:
        inputs: roots of exports, folders of clusters, or their ``v1`` folders.
        cluster_id: only this cluster.
        wanted: whether files of a dataset and hour (``dt=.../hr=...``) are needed.
        noticed: gets a sentence for each cluster in which manifests list files that are missing.

    Raises:
        NothingThere: an input has no exported file at all, or none of this cluster.
        DamagedFile: a manifest cannot be read.
    """
    found: dict[str, ExportedFile] = {}
    present: set[str] = set()
    for name in inputs:
        place = open_place(spark, name)
        clusters = _clusters(place)
        if not clusters:
            raise NothingThere(
                f"nothing is exported in {name}: it has no CLUSTER_ID/v1/transitions folder with files; give the "
                "directory that services have as export_dir, or export one: strandline up --export DIR"
            )
        present |= clusters.keys()
        for cluster, (folder, paths) in clusters.items():
            if cluster_id in (None, cluster):
                own = [*_files(place, cluster, folder, paths, wanted)]
                found |= {file.uri: file for file in own}
                if gone := _gone(own, paths, wanted):
                    noticed(
                        f"{len(gone)} manifests speak for files that are not there, so their events are missing; the "
                        f"first: {place.root}/{folder}{gone[0]}. Copy it from its origin, or take the manifest away"
                    )
    if cluster_id is not None and cluster_id not in present:
        raise NothingThere(
            f"no cluster {cluster_id!r} in {', '.join(inputs)}; there is: {', '.join(sorted(present))}. "
            "Give one of these with --cluster, or leave it out for all"
        )
    return sorted(found.values(), key=lambda file: (file.cluster_id, file.path, file.uri))


def _clusters(place: Place) -> dict[str, tuple[str, dict[str, int]]]:
    """For each cluster: its folder below the place (with a slash, or empty) and its files with their sizes."""
    found: dict[str, tuple[str, dict[str, int]]] = {}
    root = "/" + place.root.strip("/")
    for listed in place.files():
        whole = f"{root}/{listed.path}"
        before, mark, path = whole.rpartition(_MARK)
        cluster = before.rpartition("/")[2]
        if not mark or not cluster or path.partition("/")[0] not in (*DATASETS, layout.MANIFEST_FOLDER):
            continue
        folder = listed.path.removesuffix(path)
        known, paths = found.setdefault(cluster, (folder, {}))
        if known == folder:
            paths[path] = listed.size_bytes
    return {cluster: parts for cluster, parts in found.items() if any(map(_is_data, parts[1]))}


def _is_data(path: str) -> bool:
    return path.partition("/")[0] in DATASETS and path.endswith(layout.SUFFIXES)


def _gone(files: Sequence[ExportedFile], paths: dict[str, int], wanted: Callable[[str, str], bool]) -> list[str]:
    """Data files that a manifest lists but that are missing, unless a compacted file replaces them."""
    replaced = {name for file in files if file.manifest for name in file.manifest.replaces}
    mark = f"{layout.MANIFEST_FOLDER}/"
    spoken_for = (path.removeprefix(mark).removesuffix(".json") for path in paths if path.startswith(mark))
    gone = (path for path in spoken_for if path not in paths and _is_data(path) and path not in replaced)
    return [path for path in gone if wanted(path.partition("/")[0], path.partition("/")[2].rpartition("/")[0])]


def _files(
    place: Place, cluster: str, folder: str, paths: dict[str, int], wanted: Callable[[str, str], bool]
) -> Iterator[ExportedFile]:
    for path in [*paths]:
        dataset, _, rest = path.removeprefix(f"{layout.MANIFEST_FOLDER}/").partition("/")
        if not wanted(dataset, rest.rpartition("/")[0]):
            continue
        if _is_data(path):
            manifest = _manifest(place, folder, layout.manifest_path(path), paths)
            yield ExportedFile(
                place=place,
                cluster_id=cluster,
                folder=folder,
                path=path,
                size_bytes=paths[path],
                manifest=manifest,
            )


def _manifest(place: Place, folder: str, path: str, paths: dict[str, int]) -> Manifest | None:
    if path not in paths:
        return None
    try:
        return Manifest.from_json(place.read(f"{folder}{path}").decode())
    except ValueError as error:
        raise DamagedFile(
            f"{place.root}/{folder}{path} is not a manifest: {error}. Rule: one JSON object per data file. Delete it; "
            "its file then counts as not proven"
        ) from error
