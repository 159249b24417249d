"""How the command line parses its arguments, before any request to a cluster."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from strandline.cli.__main__ import main
from strandline.cli.app import app
from strandline.cli.ask.consume_options import record_document
from strandline.cli.failures import CommandFailed, explain, fail
from strandline.cli.options import FORMER, addresses, in_todays_words, key_values, partition_list
from strandline.cli.output import cell
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import Offset
from strandline.records.codec import Record
from strandline.units import bytes_text, duration_text

COMMANDS = [
    *(("topic", name) for name in ("create", "list", "describe", "alter", "delete", "offsets", "elect")),
    ("produce",),
    ("consume",),
    ("cluster", "status"),
    *(("node", name) for name in ("list", "shutdown", "remove")),
    *(("log", name) for name in ("dump", "verify")),
    ("up",),
    ("demo",),
    ("settings",),
    ("completion",),
]


def run(*words: str) -> tuple[int, str, str]:
    """Runs the command line; returns exit code, stdout, stderr."""
    result = CliRunner().invoke(app, list(words), prog_name="strandline")
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(words: tuple[str, ...]) -> None:
    """--help of every command ends with 0 and shows its usage."""
    code, out, _ = run(*words, "--help")

    assert code == 0
    assert f"strandline {' '.join(words)}" in out


def test_help_lists_the_commands_in_order() -> None:
    """A newcomer meets topics first and completion last."""
    _, out, _ = run("--help")
    places = [out.index(f"\n  {name} ") for name in ("topic", "produce", "cluster", "up", "completion")]

    assert places == sorted(places)


def test_a_misspelled_variable_is_named_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A variable that no setting has is wrong usage, and the sentence names the one that was meant."""
    monkeypatch.setenv("STRANDLINE_BOOTSTRP", "127.0.0.1:1")
    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "strandline: variable STRANDLINE_BOOTSTRP is not a setting; did you mean STRANDLINE_BOOTSTRAP?\n"
    )


def test_a_cluster_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --bootstrap and without its variable a command is wrong usage and names both."""
    monkeypatch.delenv("STRANDLINE_BOOTSTRAP", raising=False)
    code, _, err = run("topic", "list")

    assert code == 2
    assert "--bootstrap" in err
    assert "STRANDLINE_BOOTSTRAP" in err


@pytest.mark.parametrize("answer", ["", "n\n"], ids=["no terminal", "no"])
def test_a_deletion_that_is_not_confirmed_names_the_option(answer: str) -> None:
    """Without a terminal, and after a no: exit code 1, and no request is sent."""
    result = CliRunner().invoke(app, ["topic", "delete", "tides", "--bootstrap", "127.0.0.1:1"], input=answer)

    assert result.exit_code == 1
    assert "topic tides is not deleted: it was not confirmed; answer y, or give --yes" in result.stderr


def test_what_others_sent_says_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """In tables and in error lines control characters are escaped; a message of several lines stays one."""
    shown = cell("node\x1b[2J\r\n\u202e")
    fail(CommandFailed("two\nlines\x1b]0;title\x07"))

    assert shown == "node\\x1b[2J\\r\\n\\u202e"
    assert cell(["a\x1b", "ä"]) == "a\\x1b,ä"
    assert capsys.readouterr().err == "strandline: two\nlines\\x1b]0;title\\x07\n"


def test_a_wrong_setting_is_exit_code_2() -> None:
    """A setting that cannot be read is reported in one line that names it."""
    code, _, err = run("settings", "replica", "--node-id", "minus")

    assert code == 2
    assert len(err.splitlines()) == 1
    assert "node_id" in err


@pytest.mark.parametrize("text", ["here", ":1", "a:b", "a:²", "a:99999", "", ","])
def test_an_address_is_host_and_port(text: str) -> None:
    """An address that is not host and port is rejected with an example."""
    with pytest.raises(typer.BadParameter, match=r"127\.0\.0\.1:9092"):
        addresses(text)


def test_a_bootstrap_is_a_list() -> None:
    """Addresses are separated by commas; spaces do not count."""
    assert addresses("a:1, b:2,") == ["a:1", "b:2"]


def test_settings_are_pairs() -> None:
    """NAME=VALUE, the value may hold further equals signs; anything else is rejected."""
    assert key_values(["a=1", "b=x=y"], "--config") == {"a": "1", "b": "x=y"}
    with pytest.raises(typer.BadParameter, match="NAME=VALUE"):
        key_values(["a"], "--config")


def test_partitions_are_a_list_of_numbers() -> None:
    """An empty value means all; a word is rejected."""
    assert partition_list(None) is None
    assert partition_list("0, 2") == [0, 2]
    for text in ("first", "²", "9" * 5_000):
        with pytest.raises(typer.BadParameter, match="partition numbers"):
            partition_list(text)


def test_a_record_as_json() -> None:
    """Text stays text, other bytes become base64 in a field of their own, an absent value is null."""
    record = Record(Offset(5), 1_500, None, b"\xff", (("h", b"v"),))

    assert json.loads(json.dumps(record_document("orders", 2, record))) == {
        "topic": "orders",
        "partition": 2,
        "offset": 5,
        "timestamp_ms": 1500,
        "key": None,
        "value_base64": "/w==",
        "headers": [{"name": "h", "value": "v"}],
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic is named 'x'"), 1),
        (Refused(ErrorCode.NETWORK_EXCEPTION, "connection refused"), 2),
        (ConnectionRefusedError("refused"), 2),
        (TimeoutError(), 2),
        (FileNotFoundError(2, "No such file or directory", "x.txt"), 2),
        (OSError(28, "No space left on device"), 2),
        (ValueError("Value out of range: 99999999999"), 2),
        (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"), 2),
        (CommandFailed("no"), 1),
    ],
)
def test_expected_failures_have_their_exit_code(error: Exception, code: int) -> None:
    """A rejection is 1, no answer and wrong input are 2, each in one line."""
    failure = explain(error)

    assert failure is not None and failure.exit_code == code
    assert "\n" not in failure.message


def test_a_refusal_says_the_remedy() -> None:
    """The line names what was rejected and what to do; a remedy that it contains already is not repeated."""
    bare = explain(Refused(ErrorCode.INVALID_REPLICATION_FACTOR, "replication factor 5 is above 3 nodes"))
    whole = explain(Refused(ErrorCode.INVALID_PARTITIONS, "count 2: there are 3; ask for more"))

    assert bare is not None and whole is not None
    assert "INVALID_REPLICATION_FACTOR: replication factor 5 is above 3 nodes; use at most as many" in bare.message
    assert whole.message == "INVALID_PARTITIONS: count 2: there are 3; ask for more"


def test_a_defect_is_not_explained_away() -> None:
    """An unexpected exception keeps its traceback."""
    assert explain(ValueError("bug")) is None


def test_cells_are_for_people() -> None:
    """An absent value is a dash, thousands are separated, lists have commas."""
    found = [cell(value) for value in (None, True, 1234567, [1, 2], [], "x")]

    assert found == ["-", "yes", "1,234,567", "1,2", "-", "x"]


def test_units_are_for_people() -> None:
    """Bytes in powers of 1,024, durations in the one or two units that fit, a dash for an unknown value."""
    assert [bytes_text(size) for size in (12, 3_277, 31_500_000, None)] == ["12 B", "3.2 KiB", "30.0 MiB", "–"]
    assert [duration_text(ms) for ms in (0.85, 12.44, 850, 12_400)] == ["850 µs", "12.4 ms", "850 ms", "12.4 s"]
    assert [duration_text(ms) for ms in (200_000, 7_500_000, 273_600_000)] == ["3 min 20 s", "2 h 5 min", "3 d 4 h"]


@pytest.mark.parametrize(
    ("words", "today"),
    [
        ("node shutdown 1 --deadline-s 30", "node shutdown 1 --deadline 30s"),
        ("produce t --linger-ms=5.0 --acks 1", "produce t --linger 5.0ms --acks 1"),
        ("sim run --minutes 2", "sim run --time 2m"),
        ("certs renew d --days 90", "certs renew d --valid-for 90d"),
    ],
)
def test_a_former_option_is_todays_with_a_unit(words: str, today: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The number gets the unit that the name had, and stderr says how to write it."""
    assert in_todays_words(words.split()) == today.split()
    option = next(word for word in today.split() if word.startswith("--"))
    assert f"is now {option} {today.split()[today.split().index(option) + 1]}; " in capsys.readouterr().err


def test_other_words_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """A former name counts for its own command only, and never behind `--`."""
    for words in ("topic list --minutes 2", "produce -- --linger-ms 5", "produce t --linger 5ms", ""):
        assert in_todays_words(words.split()) == words.split()
    assert capsys.readouterr().err == ""


def test_a_former_option_reaches_its_command() -> None:
    """The value is checked like today's, under today's name; without a number it is a usage error."""
    wrong = CliRunner().invoke(app, ["certs", "renew", ".", "--days", "9999"])
    missing = CliRunner().invoke(app, ["certs", "renew", ".", "--days"])

    assert (wrong.exit_code, missing.exit_code) == (2, 2)
    assert "9999d is too long; give 3650d or less" in wrong.stderr
    assert "Invalid value for '--valid-for'" in missing.stderr


def test_every_former_option_has_a_successor() -> None:
    """Each command has the option that replaces a former one, and no longer the former."""
    root = typer.main.get_command(app)
    for name, options in FORMER.items():
        command = root
        for word in name.split():
            command = command.commands[word]  # type: ignore[attr-defined]  # a click group
        known = {option for parameter in command.params for option in parameter.opts}
        assert {today for today, _ in options.values()} <= known, name
        assert set(options) & known == set(), name
