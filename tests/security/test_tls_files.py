"""The three files of TLS: unusable ones are rejected at once, with one sentence that names the file."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from certificates import WRONG, Certificates

from strandline.rpc.permissions import CallerRole, NoIdentity, parse_identity
from strandline.rpc.tls import Tls, TlsFiles, TlsWrong, open_tls, read_material


@pytest.fixture
def files(made: Certificates) -> TlsFiles:
    return made.files("replica/1")


def test_right_files_name_their_bearer(files: TlsFiles) -> None:
    """A certificate with its key and its authority is accepted, and has its identity."""
    assert read_material(files).identity == parse_identity("strandline://c1/replica/1")


@pytest.mark.parametrize("case", WRONG)
def test_each_wrong_file_is_named(made: Certificates, case: str) -> None:
    """One sentence names the wrong file, and the problem."""
    make, said = WRONG[case]
    with pytest.raises(TlsWrong, match=said) as caught:
        Tls(make(made))

    assert "\n" not in str(caught.value)


def test_the_clock_decides_what_holds_now(files: TlsFiles) -> None:
    """The same certificate is too old for a clock that is a week ahead, and too new for one a week behind."""
    now = datetime.now(UTC)

    with pytest.raises(TlsWrong, match="expired"):
        read_material(files, now=now + timedelta(days=7))
    with pytest.raises(TlsWrong, match="not valid before"):
        read_material(files, now=now - timedelta(days=7))


def test_all_three_or_none(files: TlsFiles) -> None:
    """No files means no TLS; a part of them is an error that names the missing ones."""

    assert open_tls("", "", "") is None
    with pytest.raises(TlsWrong, match="tls_key and tls_ca must be given too"):
        open_tls(files.cert, "", "")


def test_pem_may_be_given_as_bytes(files: TlsFiles) -> None:
    """The content in place of the paths gives the same identity, and files that change later change nothing."""
    cert, key, ca = (path.read_bytes() for path in files.all)
    tls = open_tls(cert, key, ca)
    mixed = open_tls(str(files.cert), key, ca)

    assert tls.identity == mixed.identity == parse_identity("strandline://c1/replica/1")
    assert tls.generation == 1


def test_bytes_are_never_repeated(made: Certificates) -> None:
    """What is wrong with PEM in bytes is named by its setting, without a byte of it: it may be a key."""
    mine, other = made.files("replica/1"), made.files("replica/2")

    with pytest.raises(TlsWrong) as caught:
        open_tls(mine.cert.read_bytes(), other.key.read_bytes(), mine.ca.read_bytes())

    assert str(caught.value) == (
        "tls_key given as bytes does not belong to the certificate given as bytes; give the pair together"
    )


def test_pem_in_a_string_is_no_path(files: TlsFiles) -> None:
    """A string is a path; one that is PEM is rejected with what to give instead, and not repeated."""

    with pytest.raises(TlsWrong, match="tls_key is PEM as a string, where a path is expected; give PEM as bytes"):
        open_tls(str(files.cert), files.key.read_bytes().decode(), str(files.ca))


@pytest.mark.parametrize(
    "uri",
    [
        "strandline://c1/replica/x",
        "strandline://c1/replica/1/2",
        "strandline://c1/boss/1",
        "strandline:///client/x",
        "strandline://c1/client/",
        "strandline://c1/client/a%20b",
        "https://c1/client/x",
        "",
    ],
)
def test_only_whole_identities_are_read(uri: str) -> None:
    """An identity of another form is not accepted."""
    with pytest.raises(NoIdentity):
        parse_identity(uri)


def test_a_certificate_must_be_the_processs_own(made: Certificates) -> None:
    """A node does not start with another node's certificate, nor with one of another cluster or role."""
    tls = made.tls("replica/2")

    tls.must_be(CallerRole.REPLICA, name="2", cluster_id="c1")
    for wrong in ({"name": "3"}, {"cluster_id": "c2"}):
        with pytest.raises(TlsWrong, match="needs one for"):
            tls.must_be(CallerRole.REPLICA, **wrong)
    with pytest.raises(TlsWrong, match="needs one for"):
        tls.must_be(CallerRole.CONTROLLER)


@pytest.mark.parametrize(("since_s", "generation"), [(9.9, 1), (10.0, 2)])
def test_the_files_are_looked_at_at_most_once_in_a_while(
    made: Certificates, monkeypatch: pytest.MonkeyPatch, since_s: float, generation: int
) -> None:
    """Each connection asks for the generation; the disk is read at most once in ``look_every_s``."""
    now_s = time.monotonic()
    monkeypatch.setattr("strandline.rpc.tls.time", SimpleNamespace(monotonic=lambda: now_s))
    tls = made.tls("replica/1", look_every_s=10.0)
    made.files("replica/1")
    now_s += since_s

    assert tls.generation == generation
