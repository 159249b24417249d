"""`strandline analytics collect kafka`: what it refuses before it asks anybody, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from strandline.cli.app import app


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["analytics", "collect", "kafka", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bootstrap", "kafka"], "--bootstrap: 'kafka' is no HOST:PORT, as kafka-1.example.org:9092"),
        (["--bootstrap", ","], "--bootstrap: name a broker as HOST:PORT"),
        (["--bootstrap", "k:9092", "--topics", ","], "--topics: name at least one topic"),
        (["--bootstrap", "k:9092", "--period", "1ms"], "1ms is too short; give 50ms or more"),
        (["--bootstrap", "k:9092", "--assume", "min.insync.replicas=0"], "must be min.insync.replicas=N"),
        (["--bootstrap", "k:9092", "--assume", "retention.ms=1"], "must be min.insync.replicas=N"),
        (["--bootstrap", "k:9092", "--user", "ann"], "--user and --password-file go with --sasl"),
        (["--bootstrap", "k:9092", "--sasl", "PLAIN"], "--sasl needs --user and --password-file"),
        (["--bootstrap", "k:9092", "--sasl", "GSSAPI"], "'GSSAPI' is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        (["--bootstrap", "k:9092", "--tls-key", "k.pem"], "--tls-key goes with --tls-cert"),
        (["--bootstrap", "k:9092", "--tls-ca", "nowhere.pem"], "No such file or directory"),
    ],
)
def test_wrong_usage_names_the_option(arguments: list[str], said: str, tmp_path: Path) -> None:
    """A wrong option is named with its rule, the exit code is 2, and nothing is written."""
    ran = run(*arguments, "--out", tmp_path / "out")
    assert ran.exit_code == 2
    assert said in " ".join(ran.stderr.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


def test_a_password_is_read_without_its_line_end(tmp_path: Path) -> None:
    """A file that an editor ended with a line break holds the same password; a missing one is named."""
    from strandline_kafka.commands.collect import _login

    (tmp_path / "password").write_text("secret \n")
    login = _login("scram-sha-256", "ann", tmp_path / "password")
    assert login is not None
    assert (login.mechanism, login.password) == ("SCRAM-SHA-256", "secret ")
    file = tmp_path / "nowhere"
    ran = run("--bootstrap", "k:9092", "--out", "x", "--sasl", "PLAIN", "--user", "ann", "--password-file", file)
    assert ran.exit_code == 2
    assert "No such file" in " ".join(ran.stderr.replace("│", " ").split())


def test_nobody_answers(tmp_path: Path) -> None:
    """An address where nobody listens is one line with the remedy and exit code 2, and no export is begun."""
    ran = run("--bootstrap", "127.0.0.1:1", "--out", tmp_path / "out")
    assert ran.exit_code == 2
    said = "127.0.0.1:1: nobody listens there; give the address of a broker's listener for clients"
    assert ran.stderr == f"strandline: --bootstrap: {said}\n"
    assert not (tmp_path / "out").exists()


def test_an_export_is_not_written_over_another(tmp_path: Path) -> None:
    """A place that is not empty is refused before any broker is asked."""
    (tmp_path / "mine.txt").write_text("mine")
    ran = run("--bootstrap", "127.0.0.1:1", "--out", tmp_path)
    assert ran.exit_code == 1
    assert "is not empty, and one collection is one export; name another" in ran.stderr
