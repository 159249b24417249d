"""How `strandline produce` reads a line."""

from __future__ import annotations

import json

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from strandline.cli.ask.consume import record_document
from strandline.cli.ask.record_input import BadLine, Common, InputForm, LineRecord, headers_of, key_of, line_reader
from strandline.core.types import Offset
from strandline.records.codec import Record


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


@given(
    _BYTES,
    _BYTES,
    st.lists(st.tuples(st.text(max_size=4), _BYTES), max_size=3),
    st.none() | st.integers(0, 2**62),
)
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
        (b"plain", "it is no json"),
        (b"[" * 100_000, "it is no json"),
        (b"[1]", "it is no json object"),
        (b"{}", "give value"),
        (document(valeu="x"), "'valeu' is no field"),
        (document(value=5), "value is no string"),
        (document(value="x", value_base64=""), "both given"),
        (document(value_base64="%"), "value_base64 is no base64"),
        (document(value_base64=None), "value_base64 is no string"),
        (document(value="x", timestamp_ms=-1), "timestamp_ms"),
        (document(value="x", timestamp_ms=True), "timestamp_ms"),
        (document(value="x", headers={}), "headers is no list"),
        (document(value="x", headers=[{"value": "x"}]), "no object with a name"),
        (document(value="x", headers=[{"name": "n"}]), "a header has a value"),
        (document(value="x", headers=[{"name": "n", "value": "", "x": 1}]), "no field of a header"),
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
