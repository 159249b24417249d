"""Names of exported files identify their origin and can be parsed; manifests survive a round trip."""

from __future__ import annotations

import pytest

from strandline.export import layout
from strandline.export.layout import Manifest, SeqRange

SEQS = SeqRange(node_id=2, incarnation=7, first_seq=1, last_seq=913)


def test_a_file_lies_in_the_hour_of_its_events() -> None:
    """Dataset, day, hour, node, incarnation, first and last number."""
    hour = layout.hour_of(1_795_271_040_000_000)

    path = layout.data_path("samples", hour, SEQS, layout.PARQUET)

    assert path == "samples/dt=2026-11-21/hr=14/n2-i7-1-913.parquet"
    assert layout.manifest_path(path) == "_manifest/samples/dt=2026-11-21/hr=14/n2-i7-1-913.parquet.json"


@pytest.mark.parametrize("node_id", [-1, 0, 12])
@pytest.mark.parametrize("suffix", layout.SUFFIXES)
def test_a_name_reads_back(node_id: int, suffix: str) -> None:
    """The controller's minus sign is not taken for a separator."""
    seqs = SeqRange(node_id=node_id, incarnation=3, first_seq=10, last_seq=20)
    name = layout.data_path("transitions", 0, seqs, suffix).rpartition("/")[2]

    assert layout.parse_name(name) == seqs
    assert not layout.is_compacted(name)


@pytest.mark.parametrize("name", ["n1-i2-3-4.parquet.json", ".n1-i2-3-4.parquet", "n1-i2-3.parquet", "x.jsonl"])
def test_other_names_tell_nothing(name: str) -> None:
    """Temporary files and unknown files are not data files."""
    assert layout.parse_name(name) is None


def test_a_compacted_file_is_known_by_its_name() -> None:
    """A compacted file has no single emitter, so its name has no range."""
    name = layout.compacted_path("samples", "dt=2026-11-21/hr=14", 1, "ab" * 32, layout.PARQUET).rpartition("/")[2]

    assert layout.is_compacted(name)
    assert layout.parse_name(name) is None


def test_a_manifest_reads_back() -> None:
    """Everything written is read again, ranges and replaced names included."""
    manifest = Manifest(
        path="samples/x.parquet",
        rows=3,
        ranges=(SEQS,),
        min_ts_wall_us=1,
        max_ts_wall_us=2,
        size_bytes=9,
        sha256="00",
        schema_version=1,
        replaces=("samples/y.parquet",),
    )

    assert Manifest.from_json(manifest.to_json()) == manifest


@pytest.mark.parametrize("text", ["{}", "[]", "no", '{"ranges": [{"node": 1}]}'])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    """A torn or foreign file is an error, never an empty manifest."""
    with pytest.raises(ValueError, match=r"."):
        Manifest.from_json(text)
