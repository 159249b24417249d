"""`strandline analytics import kafka --prometheus`: run A's scrapes by file and by address, and its refusals."""

from __future__ import annotations

import json
import lzma
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kafka_export import files_of, rows_of, run_import, source_of
from run_a_files import CLUSTER, RUN_A, SEGMENT
from typer.testing import Result

from strandline.export.destination import LocalDirectory
from strandline.export.verify import verify


@pytest.fixture
def ends(tmp_path: Path) -> Path:
    """The text of run A's scrapes."""
    path = tmp_path / "ends.txt"
    path.write_bytes(lzma.decompress((RUN_A / "scrapes.txt.xz").read_bytes()))
    return path


@pytest.fixture
def mapping(tmp_path: Path) -> Path:
    """Which broker each target of run A is."""
    path = tmp_path / "map.toml"
    path.write_text("[nodes]\n" + "".join(f'"kafka-{node}:7071" = {node}\n' for node in (1, 2, 3)))
    return path


@pytest.fixture
def given(ends: Path, mapping: Path) -> tuple[object, ...]:
    """The words of the command that import them."""
    return ("--prometheus", ends, "--prometheus-mapping", mapping)


@pytest.fixture
def roots(run_a_node: Any) -> list[Path]:
    """The directories of two nodes of run A."""
    return [run_a_node(node) for node in (1, 2)]


def imported(roots: list[Path], out: Path, *more: object) -> Result:
    return run_import(*(part for root in roots for part in ("--metadata-log", root)), "--out", out, *more)


@contextmanager
def prometheus(text: str, asked: list[dict[str, str]]) -> Iterator[str]:
    """A Prometheus that has these samples, and knows one kind of question."""
    series: dict[str, list[tuple[float, str]]] = {}
    for line in text.splitlines():
        if found := re.fullmatch(r"(kafka_log_log_logendoffset\{.*\}) (\S+) (\S+)", line):
            series.setdefault(found[1], []).append((float(found[3]), found[2]))

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            given = {name: values[0] for name, values in parse_qs(parts.query).items()}
            asked.append({"path": parts.path, **given})
            wanted = re.fullmatch(r'\{__name__=~"\(\?i:(\w+)\)".*\}\[(\d+)ms\]', given["query"])
            assert wanted is not None, given
            until_s = float(given["time"])
            result = []
            for labels, values in series.items():
                inside = [v for v in values if until_s - int(wanted[2]) / 1000 < v[0] <= until_s]
                if inside and labels.startswith(wanted[1]):
                    metric = dict(re.findall(r'(\w+)="([^"]*)"', labels)) | {"__name__": wanted[1]}
                    result.append({"metric": metric, "values": inside})
            body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/prom/"
        finally:
            server.shutdown()
            thread.join()


def test_scrapes_of_run_a_become_samples_beside_its_decisions(
    roots: list[Path], given: tuple[object, ...], tmp_path: Path
) -> None:
    """The export names the source, its period and its bounds; the decisions are those of an import without it."""
    ran = imported(roots, tmp_path / "out", *given)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "Prometheus: 434 samples of 23 replicas on nodes 1, 2, 3, every 5,546 ms" in ran.stdout
    said = source_of(tmp_path / "out")
    assert said["levels"] == ["metadata-log", "prometheus"]
    assert said["prometheus"]["misplaced"] == 0 and said["prometheus"]["samples"] > 400
    assert imported(roots, tmp_path / "bare").exit_code == 0
    with_scrapes, bare = files_of(tmp_path / "out"), files_of(tmp_path / "bare")
    assert {name: content for name, content in with_scrapes.items() if "/transitions/" in name and name in bare} == {
        name: content for name, content in bare.items() if "/transitions/" in name
    }


def test_a_prometheus_gives_the_same_export_as_its_file(
    roots: list[Path], given: tuple[object, ...], ends: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address is asked for ranges of the metadata log's time, piece by piece, and both rule sets; no proxy that the
    environment names is."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    asked: list[dict[str, str]] = []
    with prometheus(ends.read_text(), asked) as address:
        ran = imported(roots, tmp_path / "a", "--prometheus", address, *given[2:])
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert {one["path"] for one in asked} == {"/prom/api/v1/query"}
    assert len(asked) == 2 * 3
    assert imported(roots, tmp_path / "b", *given).exit_code == 0
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


@pytest.mark.parametrize(
    ("address", "code", "said"),
    [
        ("http://127.0.0.1:1", 2, "--prometheus: http://127.0.0.1:1/api/v1/query: "),
        ("http://user:secret@127.0.0.1:1", 1, "--prometheus: http://127.0.0.1: give scheme, host, port and path"),
        ("no-such-file", 2, "no-such-file: No such file or directory"),
    ],
)
def test_a_source_that_is_not_there_is_named(
    roots: list[Path], tmp_path: Path, address: str, code: int, said: str
) -> None:
    """Nothing is written, the exit code says whether another try may help, and no password is repeated."""
    ran = imported(roots, tmp_path / "out", "--prometheus", address)
    assert ran.exit_code == code
    assert said in ran.stderr and "secret" not in ran.stderr
    assert not (tmp_path / "out").exists()


def test_a_wrong_number_of_a_broker_is_named(roots: Any, given: Any, mapping: Path, tmp_path: Path) -> None:
    """Series of logs that a broker does not have are named with the question that it raises."""
    mapping.write_text(mapping.read_text().replace("= 1", "= 7"))
    ran = imported(roots, tmp_path / "out", *given)
    assert ran.exit_code == 0
    assert "on node 7; is [nodes] right?" in ran.stderr


def test_a_mapping_needs_something_to_map(roots: Any, given: Any, tmp_path: Path) -> None:
    """The option alone is a mistake of usage."""
    assert imported(roots, tmp_path / "out", *given[2:]).exit_code == 2


def samples_of(out: Path) -> list[dict[str, Any]]:
    """Where logs ended, without what numbers the rows."""
    rows = rows_of(out)
    names = ("ts_wall_us", "node_id", "topic", "partition", "replica_id", "leo", "leader_leo", "expected_state")
    found = [{name: row.get(name) for name in names} for row in rows if row["event_type"] == "REPLICA_SAMPLE"]
    return sorted(found, key=lambda row: [str(row[name]) for name in names])


@contextmanager
def cut(roots: list[Path]) -> Iterator[None]:
    """Logs of which only the beginning is there within the block."""
    paths = [root / "__cluster_metadata-0" / SEGMENT for root in roots]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content[:30_000])
    yield
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)


def test_scrapes_are_gone_on_with(roots: Any, given: Any, tmp_path: Path) -> None:
    """No scrape is written twice, and together they are those of one import, but for the end of the first part."""
    assert imported(roots, tmp_path / "whole", *given).exit_code == 0
    with cut(roots):
        assert imported(roots, tmp_path / "parts", *given).exit_code == 0
    first = samples_of(tmp_path / "parts")
    ran = imported(roots, tmp_path / "parts", "--append", *given)
    assert (ran.exit_code, ran.stderr) == (0, "")
    whole, parts = samples_of(tmp_path / "whole"), samples_of(tmp_path / "parts")
    places = [[row[name] for name in ("ts_wall_us", "topic", "partition", "replica_id")] for row in parts]
    assert 0 < len(first) < len(parts) and len({*map(str, places)}) == len(places)
    period_us = source_of(tmp_path / "parts")["prometheus"]["period_ms"] * 1_000
    border_us = max(row["ts_wall_us"] for row in first)
    apart = [row for row in whole if row not in parts]
    assert all(abs(row["ts_wall_us"] - border_us) <= 4 * period_us for row in apart)
    assert [row for row in parts if row["ts_wall_us"] > border_us + period_us] == [
        row for row in whole if row["ts_wall_us"] > border_us + period_us
    ]
    said = source_of(tmp_path / "parts")["prometheus"]
    assert said["samples"] == len(parts)
    assert said["scraped"] <= source_of(tmp_path / "whole")["prometheus"]["scraped"]
    assert verify(LocalDirectory(tmp_path / "parts"), CLUSTER).is_sound


def test_a_broker_that_came_late_is_named(roots: Any, given: Any, ends: Path, tmp_path: Path) -> None:
    """Scrapes of a broker that the export has none of are left out as far as the export reaches, and that is said."""
    some = tmp_path / "some.txt"
    some.write_text("".join(line for line in ends.read_text().splitlines(True) if "kafka-3" not in line))
    with cut(roots):
        assert imported(roots, tmp_path / "out", "--prometheus", some, *given[2:]).exit_code == 0
    ran = imported(roots, tmp_path / "out", "--append", *given)
    assert ran.exit_code == 0
    assert "looks are of brokers that the export has no scrapes of, from the time that it has" in ran.stderr
    assert source_of(tmp_path / "out")["prometheus"]["late"] > 0


def test_scrapes_are_gone_on_with_by_scrapes(roots: Any, given: Any, tmp_path: Path) -> None:
    """An export with scrapes is not gone on with without them, nor one without them with some."""
    assert imported(roots, tmp_path / "with", *given).exit_code == 0
    assert imported(roots, tmp_path / "without").exit_code == 0
    for out, more in (("with", ()), ("without", given)):
        ran = imported(roots, tmp_path / out, "--append", *more)
        assert ran.exit_code == 1
        assert "give the same sources, or import into a new place" in ran.stderr
