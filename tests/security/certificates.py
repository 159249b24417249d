"""Certificates of a cluster for tests: valid ones, and ones that are wrong in one way each (`WRONG`)."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
from cryptography import x509

from strandline.cli.local.authority import Authority, issue, new_authority
from strandline.rpc.permissions import parse_identity
from strandline.rpc.tls import Tls, TlsFiles

CLUSTER = "c1"
HOSTS = ("localhost", "127.0.0.1")


@dataclass(slots=True)
class Certificates:
    """Writes certificates of one authority into a folder."""

    directory: Path
    authority: Authority

    @classmethod
    def at(cls, directory: Path, cluster: str = CLUSTER) -> Certificates:
        """With a new authority."""
        return cls(directory, new_authority(cluster, 1))

    def files(
        self,
        who: str,
        *,
        cluster: str = CLUSTER,
        hosts: Sequence[str] = HOSTS,
        days: int = 1,
        now: datetime | None = None,
        signed_by: Authority | None = None,
        believes: bytes | None = None,
    ) -> TlsFiles:
        """A certificate for ``role/id``; written again by another call. ``signed_by`` another authority: foreign."""
        identity = parse_identity(f"strandline://{cluster}/{who}")
        issued = issue(signed_by or self.authority, identity, hosts, days, now=now or datetime.now(UTC))
        folder = self.directory / who.replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        found = TlsFiles(cert=folder / "tls.crt", key=folder / "tls.key", ca=folder / "ca.crt")
        for path, content in zip(found.all, (issued.cert, issued.key, believes or self.authority.pem), strict=True):
            path.write_bytes(content)
        return found

    def tls(self, who: str, *, look_every_s: float = 0.0, **given: object) -> Tls:
        """The same, loaded; its files are checked at every use."""
        return Tls(self.files(who, **given), look_every_s=look_every_s)  # type: ignore[arg-type]  # handed on


def settings_of(files: TlsFiles) -> dict[str, str]:
    """The same as a service's settings."""
    return {"tls_cert": str(files.cert), "tls_key": str(files.key), "tls_ca": str(files.ca)}


def unchecked(files: TlsFiles) -> grpc.ChannelCredentials:
    """Credentials as they are in the files: the caller's side checks nothing, like a stranger."""
    return grpc.ssl_channel_credentials(*(path.read_bytes() for path in (files.ca, files.key, files.cert)))


def shown_serial(endpoint: tuple[str, int], files: TlsFiles) -> str:
    """The serial number of the certificate on a new connection, in hexadecimal digits."""
    context = ssl.create_default_context(cafile=str(files.ca))
    context.load_cert_chain(files.cert, files.key)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(endpoint, timeout=30) as raw,
        context.wrap_socket(raw, server_hostname=endpoint[0]) as secured,
    ):
        return secured.getpeercert()["serialNumber"].lstrip("0")


def serial_in(files: TlsFiles) -> str:
    """The serial number of the certificate in the file, as `shown_serial` has it."""
    return f"{x509.load_pem_x509_certificate(files.cert.read_bytes()).serial_number:X}"


def _absent(made: Certificates) -> TlsFiles:
    found = made.files("replica/1")
    found.key.unlink()
    return found


def _directory(made: Certificates) -> TlsFiles:
    found = _absent(made)
    found.key.mkdir()
    return found


def _replaced(part: str, content: bytes) -> Callable[[Certificates], TlsFiles]:
    def make(made: Certificates) -> TlsFiles:
        found = made.files("replica/1")
        path: Path = getattr(found, part)
        path.write_bytes(content or made.files("replica/2").key.read_bytes())
        return found

    return make


def _off_by(days: int) -> Callable[[Certificates], TlsFiles]:
    return lambda made: made.files("replica/1", now=datetime.now(UTC) + timedelta(days=days))


_NO_KEY = b"-----BEGIN PRIVATE KEY-----\nnone\n-----END PRIVATE KEY-----\n"
WRONG: dict[str, tuple[Callable[[Certificates], TlsFiles], str]] = {
    "absent key": (_absent, r"tls_key .* cannot be read: No such file"),
    "directory as key": (_directory, r"tls_key .* cannot be read: Is a directory"),
    "no key": (_replaced("key", _NO_KEY), r"tls_key .* holds no private key in PEM"),
    "key of another": (_replaced("key", b""), r"tls_key .* does not belong to the certificate"),
    "no certificate": (_replaced("cert", b"\n"), r"tls_cert .* holds no certificate"),
    "no authority": (_replaced("ca", b"not a certificate"), r"tls_ca .* holds no certificate"),
    "foreign authority": (
        lambda made: made.files("replica/1", signed_by=new_authority("c1", 1)),
        r"tls_cert .* is not signed by the authority in tls_ca",
    ),
    "expired": (_off_by(-2), r"tls_cert .* expired at .* give a new certificate"),
    "not valid yet": (_off_by(1), r"tls_cert .* is not valid before .* correct the clock or wait"),
}
"""What can be wrong, and what is said of it."""
