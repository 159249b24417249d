"""What the tools of six releases print: every kind of batch and record, with the decoder and without."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

import pytest
from corpus_files import NAMES_CONTROLLERS, RELEASES, files_of, unpack
from kafka_export import Row, rows_of, run_import
from typer.testing import Result

from strandline.export.destination import LocalDirectory
from strandline_kafka.metadata.dump_log import open_dump
from strandline_kafka.metadata.importing import Import
from strandline_kafka.metadata.log_files import Copy, open_copy, read_records, snapshot_records
from strandline_kafka.metadata.records import MetadataRecord
from strandline_kafka.metadata.wire import Unreadable


def records_of(copy: Copy) -> list[MetadataRecord]:
    return [record for batch in copy.batches() for record in read_records(batch)]


def without_names(records: list[MetadataRecord], release: str) -> list[MetadataRecord]:
    """The records as a text of the release has them: before 4.1 it does not say which controller was elected."""
    if release in NAMES_CONTROLLERS:
        return records
    return [one._replace(fields={}, version=0) if one.kind == "LeaderChange" else one for one in records]


def command(tmp_path: Path, text: Path) -> Result:
    return run_import("--dump-log", text, "--cluster-id", "c", "--trust-tail", "--out", tmp_path / "out")


@pytest.mark.parametrize("release", RELEASES)
def test_every_kind_of_record_is_read_as_its_bytes_are(release: str, tmp_path: Path) -> None:
    """A record of each kind and version that the release knows is the same from the text as from the file."""
    root = unpack(f"records-{release}", tmp_path)
    of_file = records_of(open_copy(root))
    printed = open_dump([root / "decoder.txt"])
    assert records_of(printed) == without_names(of_file, release)
    assert len({(one.kind, one.version) for one in of_file}) == len(of_file) > 20
    assert (printed.foreign, printed.tail_bytes) == (None, 0)


@pytest.mark.parametrize("release", RELEASES)
def test_a_printed_snapshot_is_the_snapshot(release: str, tmp_path: Path) -> None:
    """The text of a snapshot, behind that of the log or in a file of its own, has the snapshot's records."""
    root = unpack(f"records-{release}", tmp_path)
    (of_file,) = open_copy(root).snapshots
    (printed,) = open_dump([root / "decoder.txt"]).snapshots
    assert printed.end_offset == of_file.end_offset == 142
    assert [*snapshot_records(printed)] == [*snapshot_records(of_file)]
    text = (root / "decoder.txt").read_text()
    (root / "alone.txt").write_text(text[text.rindex("Dumping ") :])
    alone = open_dump([root / "alone.txt"])
    assert (records_of(alone), [one.end_offset for one in alone.snapshots]) == ([], [142])


@pytest.mark.parametrize("release", RELEASES)
def test_without_metadata_a_record_has_that_of_its_batch(release: str, tmp_path: Path) -> None:
    """With --skip-record-metadata offsets and times are the batch's, and a control record is an empty line."""
    root = unpack(f"records-{release}", tmp_path)
    of_file = records_of(open_copy(root))
    printed = records_of(open_dump([root / "skip-record-metadata.txt"]))
    begin = next(place for place, one in enumerate(of_file) if one.kind == "RegisterBroker")
    assert printed[begin:] == of_file[begin:]
    assert [one.kind for one in printed[:begin]] == ["LeaderChange", *[None] * (begin - 1)]
    assert [one.offset for one in printed] == [one.offset for one in of_file]


@pytest.mark.parametrize("printed", ["print-data-log", "deep-iteration", "batches"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_text_without_the_decoder_is_refused(release: str, printed: str, tmp_path: Path) -> None:
    """Bytes printed as text, sizes alone, or batches alone: the option that is missing is named, nothing is written."""
    root = unpack(f"records-{release}", tmp_path)
    ran = command(tmp_path, root / f"{printed}.txt")
    assert ran.exit_code == 1
    assert "--cluster-metadata-decoder" in ran.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("release", RELEASES)
def test_a_text_becomes_the_events_of_its_files(release: str, tmp_path: Path) -> None:
    """The log and the snapshots of a node, printed by its release, give every event that the files give."""
    root = unpack(release, tmp_path) / "node1"
    from_file = imported(open_copy(root / "data"), tmp_path / "file")
    from_text = imported(open_dump([root / "dump.txt"]), tmp_path / "text")
    if release not in NAMES_CONTROLLERS:
        for row in from_file:
            if row.get("decision") == "controller_elected":
                row["outcome"] = "controller not known"
    assert len(from_file) > 60
    assert from_text == from_file


def imported(copy: Copy, out: Path) -> list[Row]:
    done = Import([copy], "c", trust_tail=True).write(LocalDirectory(out))
    assert done.unknown.total() == 0
    assert done.snapshots_equal == len(copy.snapshots) > 0
    return rows_of(out)


def test_a_text_and_the_files_of_another_node_are_one_log(tmp_path: Path) -> None:
    """A batch of a text is known by the CRC that the tool prints; one with another CRC is another batch."""
    root = unpack("4.3.1", tmp_path)
    text = root / "node1" / "dump.txt"
    both = [open_copy(root / "node2" / "data"), open_dump([text])]
    assert Import(both, "c", trust_tail=True).result.proof.notes == []
    text.write_text(re.sub(r" crc: \d+", " crc: 12345", text.read_text(), count=1))
    with pytest.raises(Unreadable, match="hold different batches of epoch"):
        Import(both, "c", trust_tail=True)


def test_elections_without_a_name_are_said(tmp_path: Path) -> None:
    """A text from before 4.1 is imported, and the command says that who led the quorum is not known."""
    text = tmp_path / "dump.txt"
    text.write_bytes(files_of("3.6.2")["node1/dump.txt"])
    ran = command(tmp_path, text)
    elections = text.read_text().count("controlType: LEADER_CHANGE(2)")
    assert ran.exit_code == 0
    assert f"{elections} elections of a controller are without its name, as Kafka's tool" in ran.stderr
    assert "voters not known" in ran.stdout


def of_43() -> str:
    return files_of("4.3.1")["node1/dump.txt"].decode()


@pytest.mark.parametrize(
    ("redirected", "content"),
    [
        ("PowerShell", of_43().replace("\n", "\r\n").encode("utf-16")),
        ("PowerShell, UTF-8", b"\xef\xbb\xbf" + of_43().replace("\n", "\r\n").encode()),
        ("big-endian", b"\xfe\xff" + of_43().encode("utf-16-be")),
        ("without a mark", of_43().encode("utf-16-le")),
        ("appended by PowerShell", of_43()[:9000].encode() + of_43()[9000:].encode("utf-16-le")),
        ("a terminal", of_43().replace("\n", "\r\n").replace("payload", "\x1b[32mpayload\x1b[0m").encode()),
        ("xz", lzma.compress(of_43().encode())),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_any_shell_may_redirect_a_text(redirected: str, content: bytes, tmp_path: Path) -> None:
    """Encodings, line ends, colours and packing change no record."""
    (tmp_path / "expected.txt").write_text(of_43())
    text = tmp_path / "dump.txt"
    text.write_bytes(content)
    read = open_dump([text])
    assert records_of(read) == records_of(open_dump([tmp_path / "expected.txt"]))
    assert (read.foreign, len(read.snapshots)) == (None, of_43().count("Snapshot end offset"))


def test_lines_that_are_none_of_the_tools_are_counted(tmp_path: Path) -> None:
    """What stands between is named with its first line; what the tool and its JVM say besides is not."""
    lines = of_43().splitlines(keepends=True)
    lines[3:3] = ["SLF4J: no binding\n", "$ kubectl get pods\n", "Ignored\n"]
    (tmp_path / "dump.txt").write_text("".join(lines))
    ran = command(tmp_path, tmp_path / "dump.txt")
    assert ran.exit_code == 0
    assert (
        f"2 lines are none of kafka-dump-log's, the first at {tmp_path / 'dump.txt'}:5; they are left out" in ran.stderr
    )


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("partitionLeaderEpoch: ", "partitionLeaderEpoch: 9", r"has epoch \d+ after 9\d+"),
        ("| offset: 2 ", "| offset: 3 ", "the record at offset 3 must be at 2"),
        ('payload: {"type":"TOPIC_RECORD"', "payload: Error at 9, skipping. No", "tool of the release that wrote it"),
        ('"PARTITION_CHANGE_RECORD","version":2', '"PARTITION_CHANGE_RECORD","version":9', "PartitionChange version 9"),
        ("baseOffset: 1 ", "baseOffset: x ", "is not a batch that Kafka's tool prints"),
        ("LeaderChange: {", None, "has nothing behind its sizes: the tool ended there"),
    ],
)
def test_what_a_controller_would_stop_at_is_refused(before: str, after: str | None, said: str, tmp_path: Path) -> None:
    """Epochs that go back, displaced records, and records that the tool or this reader cannot read end the import."""
    text = of_43()
    text = text[: text.index(before)] if after is None else text.replace(before, after, 1)
    (tmp_path / "dump.txt").write_text(text)
    with pytest.raises(Unreadable, match=said):
        records_of(open_dump([tmp_path / "dump.txt"]))
