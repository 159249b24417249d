"""`strandline produce`: how it reads its input, and what each of its options sends."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, strategies as st
from tests.client.fake_cluster import TOPIC, FakeCluster, Refuse, fake_cluster
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.ask import produce as command, record_input
from strandline.cli.ask.consume_options import record_document
from strandline.cli.ask.record_input import (
    BadLine,
    Common,
    InputForm,
    LineRecord,
    headers_of,
    key_of,
    line_reader,
    lines_of,
    open_source,
    split_line,
)
from strandline.cli.failures import CommandFailed
from strandline.core.errors import ErrorCode
from strandline.core.types import Offset
from strandline.records.codec import Record


async def collect(descriptor: int) -> list[bytes]:
    """All lines."""
    return [line async for line in lines_of(descriptor)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"one\n\nthree", [b"one", b"", b"three"]), (b"x" * 700_000 + b"\nend\n", [b"x" * 700_000, b"end"])],
    ids=["empty lines are lines", "a line longer than one read stays one"],
)
async def test_a_file_gives_its_lines(tmp_path: Path, content: bytes, expected: list[bytes]) -> None:
    """Each as it is, whatever its length; the last needs no line feed."""
    path = tmp_path / "text"
    path.write_bytes(content)
    with open_source(path) as source:
        assert await collect(source) == expected


async def test_a_pipe_gives_each_line_when_it_comes() -> None:
    """A line is available before the next is written, and nothing blocks meanwhile."""
    reading, writing = os.pipe()
    lines = lines_of(reading)
    os.write(writing, b"first\nsec")
    async with asyncio.timeout(10):
        first = await anext(lines)
        os.write(writing, b"ond\n")
        second = await anext(lines)
        os.close(writing)
        rest = [line async for line in lines]
    os.close(reading)

    assert (first, second, rest) == (b"first", b"second", [])


@pytest.mark.parametrize(
    ("line", "parts"), [(b"k:v", (b"k", b"v")), (b"k:v:w", (b"k", b"v:w")), (b"v", (None, b"v")), (b":v", (b"", b"v"))]
)
def test_a_separator_parts_key_and_value(line: bytes, parts: tuple[bytes | None, bytes]) -> None:
    """The first separator counts; a line without one has no key, an empty key is a key."""
    assert split_line(line, b":") == parts
    assert split_line(line, None) == (None, line)


def read(line: bytes, *, form: InputForm = InputForm.TEXT, common: Common | None = None) -> LineRecord:
    """One line, read."""
    return line_reader(form, common or Common())(line)


def document(**fields: object) -> bytes:
    """A line of json."""
    return json.dumps(fields).encode()


def test_k_is_the_key_and_a_capital_k_the_separator() -> None:
    """Every line has the given key, or its own before the separator; both at once are rejected."""
    assert read(b"a:b", common=Common(key=b"user1")) == (b"user1", b"a:b", (), None)
    assert read(b"a:b", common=Common(separator=b":")) == (b"a", b"b", (), None)
    assert read(b"a:b") == (None, b"a:b", (), None)
    with pytest.raises(typer.BadParameter, match="not both"):
        line_reader(InputForm.TEXT, Common(key=b"user1", separator=b":"))


@pytest.mark.parametrize("text", [":", "::", "\t", "="])
def test_a_separator_is_not_taken_for_a_key(text: str) -> None:
    """One or two characters that are neither letters nor digits are rejected as a key, because -k was the separator."""
    with pytest.raises(typer.BadParameter, match="that is -K"):
        key_of(text)


@pytest.mark.parametrize(("text", "key"), [("user1", b"user1"), (":::", b":::"), ("7", b"7"), ("", b""), (None, None)])
def test_any_other_key_is_taken(text: str | None, key: bytes | None) -> None:
    """A letter, a digit, or three characters of any kind are a key."""
    assert key_of(text) == key


def test_an_empty_value_may_be_a_tombstone() -> None:
    """With -Z an empty value is null in both forms of input; without it, it is an empty value."""
    assert read(b"a:", common=Common(separator=b":", empty_is_tombstone=True)).value is None
    assert read(b"a:", common=Common(separator=b":")).value == b""
    assert read(document(value=""), form=InputForm.JSON, common=Common(empty_is_tombstone=True)).value is None


def test_headers_and_time_go_to_every_line() -> None:
    """-H gives headers in order, a name twice if asked, the value with any further equals signs; --timestamp a time."""
    common = Common(headers=headers_of(["a=1", "a=b=c", "empty="]), timestamp_ms=7)

    assert read(b"x", common=common) == (None, b"x", (("a", b"1"), ("a", b"b=c"), ("empty", b"")), 7)


@pytest.mark.parametrize("entry", ["a", "=1", ""])
def test_a_header_is_a_name_and_a_value(entry: str) -> None:
    """A header without a name or an equals sign is rejected with an example."""
    with pytest.raises(typer.BadParameter, match="trace=42"):
        headers_of([entry])


_BYTES = st.none() | st.binary(max_size=8) | st.text(max_size=4).map(str.encode)


@given(_BYTES, _BYTES, st.lists(st.tuples(st.text(max_size=4), _BYTES), max_size=3), st.none() | st.integers(0, 2**62))
def test_what_consume_prints_can_be_produced(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp_ms: int | None
) -> None:
    """A record printed by `consume -o json` is read with the same key, value, headers and timestamp."""
    record = Record(Offset(5), timestamp_ms, key, value, tuple(headers))
    line = json.dumps(record_document("orders", 2, record)).encode()

    assert read(line, form=InputForm.JSON) == (key, value, tuple(headers), timestamp_ms)


def test_a_line_of_json_says_more_than_the_options() -> None:
    """Its own key and time count before those of the options; headers of the options come behind its own."""
    common = Common(key=b"k", headers=(("o", b"2"),), timestamp_ms=1)
    own = document(value="v", key=None, timestamp_ms=5, headers=[{"name": "l", "value": "1"}])

    assert read(own, form=InputForm.JSON, common=common) == (None, b"v", (("l", b"1"), ("o", b"2")), 5)
    assert read(document(value="v"), form=InputForm.JSON, common=common) == (b"k", b"v", (("o", b"2"),), 1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"plain", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[1]", "it is not a JSON object"),
        (b"{}", "give value"),
        (document(valeu="x"), "'valeu' is not a field"),
        (document(value=5), "value is not a string"),
        (document(value="x", value_base64=""), "both given"),
        (document(value_base64="%"), "value_base64 is not base64"),
        (document(value_base64=None), "value_base64 is not a string"),
        (document(value="x", timestamp_ms=-1), "timestamp_ms"),
        (document(value="x", timestamp_ms=True), "timestamp_ms"),
        (document(value="x", headers={}), "headers is not a list"),
        (document(value="x", headers=[{"value": "x"}]), "not an object with a name"),
        (document(value="x", headers=[{"name": "n"}]), "a header has a value"),
        (document(value="x", headers=[{"name": "n", "value": "", "x": 1}]), "not a field of a header"),
        (document(value="\ud800"), "surrogate"),
    ],
)
def test_a_line_that_is_no_record_names_the_field(line: bytes, said: str) -> None:
    """A wrong line of json is rejected with the field and what it may be."""
    with pytest.raises(BadLine, match=said):
        read(line, form=InputForm.JSON)


def test_json_has_no_separator() -> None:
    """-K with --input json is rejected: the key is a field there."""
    with pytest.raises(typer.BadParameter, match="a key is a field"):
        line_reader(InputForm.JSON, Common(separator=b":"))


NO_PRODUCER = -1


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of two lines."""
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\n")
    return path


def work_of(monkeypatch: pytest.MonkeyPatch, *words: str) -> Coroutine[Any, Any, None]:
    """What the command would run in an event loop of its own."""
    works: list[Coroutine[Any, Any, None]] = []
    monkeypatch.setattr(command, "perform", works.append)
    result = CliRunner().invoke(app, ["produce", TOPIC, *words])
    assert result.exit_code == 0, result.output
    return works[0]


def acks_sent(cluster: FakeCluster) -> set[int]:
    """Filled with the acks of every request that the first node gets."""
    found: set[int] = set()
    (node, *_), produce = cluster.nodes, cluster.nodes[0]._produce

    def noted(request: Any, action: Any) -> Any:
        found.add(request.acks)
        return produce(request, action)

    node._produce = noted  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize(("acks", "sent", "is_idempotent"), [("0", 0, False), ("1", 1, False), ("all", -1, True)])
async def test_acks_decide_what_is_waited_for_and_whether_retries_write_twice(
    monkeypatch: pytest.MonkeyPatch, source: Path, acks: str, sent: int, is_idempotent: bool
) -> None:
    """The node is asked for these acks, and only acks=all comes with a producer id; every line arrives."""
    async with fake_cluster() as cluster:
        asked = acks_sent(cluster)
        await work_of(monkeypatch, str(source), "-b", cluster.bootstrap, "--acks", acks)

        assert asked == {sent}
        assert {producer != NO_PRODUCER for _, producer, _, _ in cluster.nodes[0].produced} == {is_idempotent}
        assert cluster.log().values() == [b"a", b"b"]


async def test_nothing_is_read_after_a_refusal(monkeypatch: pytest.MonkeyPatch, source: Path) -> None:
    """The line that was taken meanwhile is still sent; the one behind it stays where it is."""
    given, refused, note = [], asyncio.Event(), command.Tally.note

    async def lines(_: int) -> AsyncIterator[bytes]:
        for line in (b"first", b"second", b"third"):
            given.append(line)
            yield line
            await refused.wait()

    def noted(tally: command.Tally, outcome: Any) -> None:
        note(tally, outcome)
        refused.set()

    monkeypatch.setattr(record_input, "lines_of", lines)
    monkeypatch.setattr(command.Tally, "note", noted)
    async with fake_cluster() as cluster:
        cluster.nodes[0].next_produce.append(Refuse(ErrorCode.MESSAGE_TOO_LARGE))
        with pytest.raises(CommandFailed, match="1 of 2 records refused"):
            await work_of(monkeypatch, str(source), "-b", cluster.bootstrap)

        assert given == [b"first", b"second"]
        assert cluster.log().values() == [b"second"]
