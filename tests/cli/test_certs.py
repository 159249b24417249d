"""`strandline certs`, and the commands that use such files: what they support, and what they report of wrong ones."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.connect import over_tls, tls_options
from strandline.cli.local.authority import write_new
from strandline.cli.local.certificate_folder import ensure_certificates
from strandline.rpc.tls import TlsFiles, read_material


def _run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["certs", *words])
    return result.exit_code, result.output


def _files(folder: Path) -> TlsFiles:
    return TlsFiles(cert=folder / "tls.crt", key=folder / "tls.key", ca=folder / "ca.crt")


def test_a_key_is_never_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even before its mode is set, on a machine whose umask hides nothing."""
    modes: list[int] = []
    real = os.fchmod

    def fchmod(descriptor: int, mode: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        real(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", fchmod)
    before = os.umask(0)
    try:
        write_new(tmp_path / "key", b"secret", 0o600)
    finally:
        os.umask(before)

    assert modes == [0o600]
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_everybody_gets_what_tls_needs(tmp_path: Path) -> None:
    """Each folder holds a certificate of the authority, with its key and the identity that its holder must have."""
    code, out = _run("new", str(tmp_path), "--cluster", "c1", "--nodes", "2", "--client", "reports")

    assert code == 0, out
    found = {folder.name: read_material(_files(folder)).identity.uri for folder in tmp_path.iterdir() if _has(folder)}
    assert found == {
        "controller": "strandline://c1/controller/controller",
        "node-1": "strandline://c1/replica/1",
        "node-2": "strandline://c1/replica/2",
        "reports": "strandline://c1/client/reports",
        "admin": "strandline://c1/admin/admin",
    }


def _has(folder: Path) -> bool:
    return (folder / "tls.crt").exists()


def test_keys_are_their_owners_alone(tmp_path: Path) -> None:
    """No key can be read by group or others, the authority's included."""
    _run("new", str(tmp_path))

    keys = [*tmp_path.rglob("*.key")]
    assert len(keys) == 7
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_nothing_is_written_over(tmp_path: Path) -> None:
    """A second `new` ends with 2 and a line that names the file, and changes nothing."""
    _run("new", str(tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}

    code, out = _run("new", str(tmp_path))

    assert code == 2
    assert "tls.key exists; nothing was written over" in out
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def test_one_more_is_signed_by_the_same_authority(tmp_path: Path) -> None:
    """`add` takes the cluster from the existing files; a replica can be dialled by the given names."""
    _run("new", str(tmp_path), "--cluster", "c1")

    code, out = _run("add", str(tmp_path), "replica/4", "--host", "node-4.example", "-o", "json")

    assert code == 0, out
    row = json.loads(out)[0]
    assert row["identity"] == "strandline://c1/replica/4"
    assert row["hosts"].startswith("node-4.example, localhost")
    read_material(_files(tmp_path / "node-4"))


@pytest.mark.parametrize("who", ["boss/4", "replica/four", "client", "client/a b", "client/a/b"])
def test_an_identity_that_means_nobody_is_refused(tmp_path: Path, who: str) -> None:
    """An invalid identity ends with exit code 2 and one line that quotes it."""
    _run("new", str(tmp_path), "--cluster", "c1")

    code, out = _run("add", str(tmp_path), who)

    assert code == 2
    assert f"strandline://c1/{who}" in out
    assert len(out.splitlines()) == 1


def test_a_renewal_keeps_names_and_changes_keys(tmp_path: Path) -> None:
    """Every holder of a certificate gets a new pair with the same identity and hosts, signed by the same authority."""
    _run("new", str(tmp_path), "--cluster", "c1", "--valid-for", "1d")
    before = json.loads(_run("list", str(tmp_path), "-o", "json")[1])
    old = read_material(_files(tmp_path / "node-1"))

    code, out = _run("renew", str(tmp_path), "--valid-for", "30d", "-o", "json")

    assert code == 0, out
    after = json.loads(out)
    assert [(row["identity"], row["hosts"]) for row in after] == [(row["identity"], row["hosts"]) for row in before]
    new = read_material(_files(tmp_path / "node-1"))
    assert new.key != old.key
    assert new.ca == old.ca
    assert new.not_after > old.not_after


def test_a_clients_certificate_names_no_host(tmp_path: Path) -> None:
    """A client's certificate cannot be used as a server's: it has no host, and no purpose of a server."""
    _run("new", str(tmp_path), "--cluster", "c1")

    rows = {row["identity"]: row["hosts"] for row in json.loads(_run("list", str(tmp_path), "-o", "json")[1])}

    assert rows["strandline://c1/client/client"] == ""
    assert rows["strandline://c1/admin/admin"] == ""
    purposes = {name: set(_purposes(tmp_path / name)) for name in ("client", "node-1")}
    client, server = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
    assert purposes == {"client": {client}, "node-1": {client, server}}


def _purposes(folder: Path) -> x509.ExtendedKeyUsage:
    certificate = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    return certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value


def test_half_of_a_pair_is_not_completed(tmp_path: Path) -> None:
    """A folder that has a certificate alone gets no key beside it that does not belong to it."""
    _run("new", str(tmp_path), "--cluster", "c1")
    (tmp_path / "node-1" / "tls.key").unlink()

    code, out = _run("add", str(tmp_path), "replica/1", "--host", "n")

    assert code == 2
    assert "tls.crt exists" in out
    assert not (tmp_path / "node-1" / "tls.key").exists()


def test_a_renewal_puts_the_key_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that reads in between keeps its old pair; what a renewal left that was cut off is replaced."""
    _run("new", str(tmp_path), "--cluster", "c1")
    (tmp_path / "node-1" / "tls.key.new").write_text("half")
    put: list[Path] = []
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda path, to: put.append(to) or replace(path, to))
    code, out = _run("renew", str(tmp_path))

    assert code == 0, out
    assert [path.name for path in put if path.parent.name == "node-1"] == ["tls.key", "tls.crt"]
    read_material(_files(tmp_path / "node-1"))


def test_a_host_that_is_given_twice_stands_once(tmp_path: Path) -> None:
    """A host that is given twice is there once, also where every server has that name."""
    _run("new", str(tmp_path), "--nodes", "0")
    _, out = _run("add", str(tmp_path), "replica/4", "--host", "localhost", "--host", "a", "--host", "a", "-o", "json")

    assert json.loads(out)[0]["hosts"] == "localhost, a, 127.0.0.1, ::1"


def test_a_key_of_another_authority_signs_nothing(tmp_path: Path) -> None:
    """An authority's certificate beside another's key is refused before a certificate is made that nothing accepts."""
    for name in ("a", "b"):
        _run("new", str(tmp_path / name), "--cluster", "c1")
    os.replace(tmp_path / "b" / "authority" / "ca.key", tmp_path / "a" / "authority" / "ca.key")
    code, out = _run("add", str(tmp_path / "a"), "replica/4")

    assert code == 2
    assert "does not belong to" in out


def test_certificates_name_the_cluster_whose_data_is_there(tmp_path: Path) -> None:
    """A cluster that ran without TLS keeps its id, and what was made is used as it is the next time."""
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "meta.properties").write_text("cluster.id=c9\n")
    folder = ensure_certificates(tmp_path, [1])
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    ensure_certificates(tmp_path, [1])

    assert read_material(_files(folder / "node-1")).identity.uri == "strandline://c9/replica/1"
    assert {path: path.read_bytes() for path in folder.rglob("*.*")} == before


_THREE = {"--tls-cert", "--tls-key", "--tls-ca"}


def _commands(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, *path, name)
        else:
            yield " ".join((*path, name)), command


def _options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_every_command_with_a_bootstrap_speaks_tls() -> None:
    """Every command that names a cluster has an option for the certificate."""
    found = {
        name: _options(command) >= _THREE
        for name, command in _commands(typer.main.get_command(app))
        if "--bootstrap" in _options(command)
    }

    assert len(found) >= 11
    assert [name for name, speaks in found.items() if not speaks] == []


def test_variables_are_the_services_own() -> None:
    """STRANDLINE_TLS_CERT, _KEY and _CA serve commands and services alike."""
    result = CliRunner().invoke(app, ["topic", "list", "--help"])

    assert {f"STRANDLINE_TLS_{name}" for name in ("CERT", "KEY", "CA")} <= set(result.output.replace("]", " ").split())


def test_what_was_given_is_known_while_the_command_runs() -> None:
    """The given TLS settings are reset after the command."""
    seen = []

    @over_tls
    def command(name: str = "x") -> None:
        seen.append((name, tls_options()))

    command(name="a", tls_cert="c", tls_key="k", tls_ca="a")  # type: ignore[call-arg]  # added by the decorator

    assert seen == [("a", {"tls_cert": "c", "tls_key": "k", "tls_ca": "a"})]
    assert tls_options() == {"tls_cert": "", "tls_key": "", "tls_ca": ""}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tls-cert", "/nowhere/tls.crt"], "tls_key and tls_ca must be given too"),
        (
            ["--tls-cert", "/nowhere/a", "--tls-key", "/nowhere/b", "--tls-ca", "/nowhere/c"],
            "tls_cert /nowhere/a cannot be read: No such file or directory",
        ),
    ],
)
def test_wrong_files_are_one_line(words: list[str], said: str) -> None:
    """Wrong files end with exit code 2 and one line that names the wrong one."""
    result = CliRunner().invoke(app, ["topic", "list", "--bootstrap", "127.0.0.1:1", *words])

    assert result.exit_code == 2
    assert said in result.output
    assert len(result.output.splitlines()) == 1
