"""The certificate that this process presents and the authorities that it trusts, read again when their files change.

Invariant: after the first reading there is always a certificate that works. If the files change into something that
cannot be used, or into another identity, the old ones stay in use and the log gets one line.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from strandline import transport
from strandline.rpc import transports
from strandline.rpc.permissions import CallerRole, Identity, NoIdentity, only_identity
from strandline.transport import AuthContext, Security

# ---- tls_files
# The three parts of TLS: a certificate with its chain, its key, and the authority's certificates.
#
# Invariant: all three or none; content given as bytes is never repeated in a message, because one of them is a key.


class TlsWrong(ValueError):
    """The files cannot be used; the message names the file and the remedy."""


class GivenPem:
    """PEM that a program gave as bytes instead of a file; it never changes."""

    __slots__ = ("_content",)

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __repr__(self) -> str:
        return "given as bytes"

    def read_bytes(self) -> bytes:
        """The PEM."""
        return self._content


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The places of the certificate with its chain, its key and the authority's certificates, all in PEM."""

    cert: Path | GivenPem
    key: Path | GivenPem
    ca: Path | GivenPem

    @property
    def all(self) -> tuple[Path | GivenPem, Path | GivenPem, Path | GivenPem]:
        """All three places."""
        return self.cert, self.key, self.ca


def tls_files(cert: str | Path | bytes, key: str | Path | bytes, ca: str | Path | bytes) -> TlsFiles:
    """The three files, each given as a path or as PEM in bytes.

    Raises:
        TlsWrong: one is not given, or is PEM as a string.
    """
    given = {"tls_cert": cert, "tls_key": key, "tls_ca": ca}
    absent = [name for name, value in given.items() if not is_given(value)]
    if absent:
        raise TlsWrong(f"{' and '.join(absent)} must be given too; TLS needs tls_cert, tls_key and tls_ca together")
    return TlsFiles(cert=_place("tls_cert", cert), key=_place("tls_key", key), ca=_place("tls_ca", ca))


def is_given(value: str | Path | bytes) -> bool:
    """Whether a TLS setting is not empty."""
    return bool(value) if isinstance(value, bytes) else bool(str(value))


def _place(name: str, value: str | Path | bytes) -> Path | GivenPem:
    if isinstance(value, bytes):
        return GivenPem(value)
    if str(value).lstrip().startswith("-----BEGIN"):
        raise TlsWrong(f"{name} is PEM as a string, where a path is expected; give PEM as bytes")
    return Path(value)


CallMetadata = Sequence[tuple[str, str]]
"""The metadata of a call, as names and values."""

TLS_OFF = "TLS is off: any client that reaches this process's ports may read, write and administer"
"""Logged once by every process that serves without TLS."""

_LOOK_EVERY_S = 1.0
_NO_IDENTITY = Identity("-", CallerRole.CLIENT, "-")

# The standard library's, because clients use this module too; services log it in their own form.
_log = logging.getLogger("strandline.tls")

_Signature = tuple[tuple[int, int, int], ...]


class Tls:
    """The certificate of one process. gRPC reads it from its own threads."""

    def __init__(self, files: TlsFiles, *, look_every_s: float = _LOOK_EVERY_S) -> None:
        """Read the files.

        Raises:
            TlsWrong: they cannot be used.
        """
        self._files = files
        self._look_every_s = look_every_s
        self._lock = threading.Lock()
        # Taken before the content is read, so that files that change in between are read again.
        self._signature = _signature(files)
        self._material = self._read(files)
        self._looked = time.monotonic()
        self._generation = 1
        self._https: tuple[int, ssl.SSLContext] | None = None
        self._serving: dict[ssl.VerifyMode, tuple[int, ssl.SSLContext]] = {}

    def _read(self, files: TlsFiles) -> Material:
        return read_material(files)

    @property
    def identity(self) -> Identity:
        """The identity in this process's certificate; it never changes while the process runs."""
        return self._material.identity

    @property
    def generation(self) -> int:
        """A number that grows by one with every new content; checks the files at most once in ``look_every_s``."""
        self._maybe_read_again()
        return self._generation

    def must_be(self, role: CallerRole, *, name: str | None = None, cluster_id: str | None = None) -> None:
        """Refuse a certificate of another role, name or cluster; None accepts any.

        Raises:
            TlsWrong: the certificate names another identity; the message says which one is needed.
        """
        ours = self.identity
        wanted = Identity(cluster_id or ours.cluster, role, name or ours.name)
        if ours != wanted:
            raise TlsWrong(f"tls_cert {self._files.cert} names {ours.uri}; this process needs one for {wanted.uri}")

    def server_credentials(self, *, takes_tokens: bool = False) -> grpc.ServerCredentials | Security:
        """Credentials for a port whose callers must present a certificate of the authority (with ``takes_tokens``: may
        present one). The files are checked for changes at every connection."""
        if transports.aio() is transport:
            mode = ssl.CERT_OPTIONAL if takes_tokens else ssl.CERT_REQUIRED
            return Security(lambda: self.server_context(mode), peer_properties)
        assert not takes_tokens, "the settings refuse tokens with grpcio"
        shown = self._generation

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            generation = self.generation
            if generation == shown:
                return None
            shown = generation
            return _configuration(self._material)

        first: grpc.ServerCertificateConfiguration = _configuration(self._material)
        # gRPC takes None as "nothing has changed", but its type stub does not allow None.
        return grpc.dynamic_ssl_server_credentials(first, cast(Any, fetch), require_client_authentication=True)

    def channel_credentials(self) -> grpc.ChannelCredentials | Security:
        """Credentials for dialling with the current certificate."""
        now = self._material
        if transports.aio() is transport:
            context = _context(ssl.PROTOCOL_TLS_CLIENT, now)
            return Security(lambda: context)
        return grpc.ssl_channel_credentials(now.ca, now.key or None, now.cert or None)

    def server_context(self, mode: ssl.VerifyMode = ssl.CERT_REQUIRED) -> ssl.SSLContext:
        """The context for a new connection at a gRPC port of our own transport."""
        generation = self.generation
        made, context = self._serving.get(mode, (0, None))
        if context is None or made != generation:
            context = _context(ssl.PROTOCOL_TLS_SERVER, self._material, mode)
            self._serving[mode] = (generation, context)
        return context

    def https_context(self) -> ssl.SSLContext:
        """The context for a new connection at an HTTPS port, whose callers need a certificate of the authority.

        Raises:
            ssl.SSLError, OSError: the files cannot be used.
        """
        generation = self.generation
        if self._https is None or self._https[0] != generation:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.verify_mode = ssl.CERT_REQUIRED
            cert, key = self._files.cert, self._files.key
            assert isinstance(cert, Path) and isinstance(key, Path), "a service is given paths by its settings"
            context.load_cert_chain(cert, key)
            context.load_verify_locations(cadata=self._material.ca.decode("ascii"))
            self._https = (generation, context)
        return self._https[1]

    def _maybe_read_again(self) -> None:
        with self._lock:
            moment = time.monotonic()
            if moment - self._looked < self._look_every_s:
                return
            self._looked = moment
            signature = _signature(self._files)
            if signature == self._signature:
                return
            self._signature = signature
            self._read_again()

    def _read_again(self) -> None:
        try:
            fresh = self._read(self._files)
            if fresh.identity != self.identity:
                raise TlsWrong(f"tls_cert {self._files.cert} names {fresh.identity.uri} and not {self.identity.uri}")
        except TlsWrong as error:
            _log.error("the new certificate is not used, the old one stays", extra={"fields": {"reason": str(error)}})
            return
        if fresh == self._material:
            return
        self._material = fresh
        self._generation += 1
        fields = {"identity": fresh.identity.uri, "valid_until": str(fresh.not_after)}
        _log.info("a new certificate is used", extra={"fields": fields})


class TlsWithToken(Tls):
    """TLS of a client that has no certificate and sends a token in each call; ``metadata`` returns the current one."""

    def __init__(self, ca: str | Path | bytes, metadata: Callable[[], CallMetadata]) -> None:
        """See `Tls`."""
        self._metadata = metadata
        super().__init__(TlsFiles(cert=GivenPem(b""), key=GivenPem(b""), ca=_place("tls_ca", ca)))

    def _read(self, files: TlsFiles) -> Material:
        ca = _read("ca", files.ca)
        _certificates("ca", files.ca, ca)
        return Material(cert=b"", key=b"", ca=ca, identity=_NO_IDENTITY, not_after=datetime.max.replace(tzinfo=UTC))

    def channel_credentials(self) -> grpc.ChannelCredentials | Security:
        """Credentials for dialling with the token."""
        made = super().channel_credentials()
        if isinstance(made, Security):
            return replace(made, call_metadata=self._metadata)
        shown = grpc.metadata_call_credentials(cast(Any, lambda _, give: give(self._metadata(), None)))
        return grpc.composite_channel_credentials(made, shown)


def open_tls(tls_cert: str | Path | bytes, tls_key: str | Path | bytes, tls_ca: str | Path | bytes) -> Tls | None:
    """TLS as the three settings say, paths or PEM as bytes; None when they are empty.

    Raises:
        TlsWrong: a setting is missing, or a file cannot be used.
    """
    if not any(is_given(one) for one in (tls_cert, tls_key, tls_ca)):
        return None
    return Tls(tls_files(tls_cert, tls_key, tls_ca))


def https_of(tls: Tls | None, *, wanted: bool) -> Callable[[], ssl.SSLContext] | None:
    """The source of contexts for a port that speaks HTTPS, if ``wanted``; None for plain HTTP."""
    return tls.https_context if tls is not None and wanted else None


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(material.key, material.cert)], material.ca)


_CIPHERS_OF_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2, ciphers like those of TLS 1.3: authenticated, and with forward secrecy."""


def _context(side: ssl._SSLMethod, material: Material, mode: ssl.VerifyMode = ssl.CERT_REQUIRED) -> ssl.SSLContext:
    """TLS for HTTP/2 (RFC 9113, 9.2) between two peers that both present a certificate, if ``mode`` requires it."""
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS_OF_1_2)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.verify_mode = mode
    context.set_alpn_protocols(["h2"])
    if side is ssl.PROTOCOL_TLS_SERVER:
        # In a resumed session the peer does not present its certificate, which may have expired meanwhile.
        context.num_tickets = 0
    context.load_verify_locations(cadata=material.ca.decode("ascii"))
    if not material.cert:
        return context
    # ssl reads only files; this one is in memory, and holds exactly the content that was checked.
    with os.fdopen(os.memfd_create("tls"), "wb") as pair:
        pair.write(material.cert + b"\n" + material.key)
        pair.flush()
        context.load_cert_chain(f"/proc/self/fd/{pair.fileno()}")
    return context


def peer_properties(der: bytes) -> AuthContext:
    """The properties of a verified peer's certificate, under the names that gRPC uses in `auth_context`."""
    shown = x509.load_der_x509_certificate(der)
    try:
        names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName(())
    uris = tuple(uri.encode() for uri in names.get_values_for_type(x509.UniformResourceIdentifier))
    hosts = tuple(host.encode() for host in names.get_values_for_type(x509.DNSName))
    addresses = tuple(str(address).encode() for address in names.get_values_for_type(x509.IPAddress))
    return {
        "transport_security_type": (b"ssl",),
        "x509_pem_cert": (shown.public_bytes(Encoding.PEM),),
        "x509_subject_alternative_name": (*uris, *hosts, *addresses),
        "peer_uri": uris,
    }


def _signature(files: TlsFiles) -> _Signature:
    """A value that changes when a file is replaced, written or removed."""
    found = []
    for path in files.all:
        if isinstance(path, GivenPem):
            continue
        try:
            status = path.stat()
        except OSError:
            found.append((0, 0, 0))
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


# ---- certificate
# Checks that three files are a usable certificate, its key, and the authority to trust.
#
# Invariant: files that cannot work are refused before anything is served or dialled, with a message that names the
# file: later a peer would see nothing but a broken handshake.

_LONGEST_CHAIN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """The content of the three files, and the identity in the certificate."""

    cert: bytes
    key: bytes
    ca: bytes
    identity: Identity
    not_after: datetime


def read_material(files: TlsFiles, *, now: datetime | None = None) -> Material:
    """Read the files and check that they belong together and are valid now.

    Raises:
        TlsWrong: they cannot be read, do not belong together, or are not valid now.
    """
    cert, key, ca = (_read(name, path) for name, path in zip(("cert", "key", "ca"), files.all, strict=True))
    try:
        return _checked(files, cert, key, ca, now or datetime.now(UTC))
    except TlsWrong:
        raise
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.InvalidVersion) as error:
        raise TlsWrong(f"tls_cert {files.cert} cannot be parsed: {error}") from error


def _checked(files: TlsFiles, cert: bytes, key: bytes, ca: bytes, now: datetime) -> Material:
    chain = _certificates("cert", files.cert, cert)
    authorities = _certificates("ca", files.ca, ca)
    leaf = chain[0]
    _check_key(files, leaf, key)
    _check_time(files.cert, leaf, now)
    _check_signed(files, chain, authorities)
    return Material(cert=cert, key=key, ca=ca, identity=_identity(files.cert, leaf), not_after=leaf.not_valid_after_utc)


def _read(name: str, path: Path | GivenPem) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsWrong(f"tls_{name} {path} cannot be read: {error.strerror}") from error


def _certificates(name: str, path: Path | GivenPem, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise TlsWrong(f"tls_{name} {path} holds no certificate in PEM") from error


def _check_key(files: TlsFiles, leaf: x509.Certificate, content: bytes) -> None:
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise TlsWrong(f"tls_key {files.key} holds no private key in PEM without a password") from error
    ours, theirs = (
        one.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        for one in (key.public_key(), leaf.public_key())
    )
    if ours != theirs:
        raise TlsWrong(f"tls_key {files.key} does not belong to the certificate {files.cert}; give the pair together")


def _check_time(path: Path | GivenPem, leaf: x509.Certificate, now: datetime) -> None:
    if now < leaf.not_valid_before_utc:
        raise TlsWrong(
            f"tls_cert {path} is not valid before {_moment(leaf.not_valid_before_utc)} and this machine's clock says "
            f"{_moment(now)}; correct the clock or wait"
        )
    if now > leaf.not_valid_after_utc:
        raise TlsWrong(
            f"tls_cert {path} expired at {_moment(leaf.not_valid_after_utc)} and this machine's clock says "
            f"{_moment(now)}; give a new certificate"
        )


def _moment(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _check_signed(files: TlsFiles, chain: Sequence[x509.Certificate], authorities: Sequence[x509.Certificate]) -> None:
    """Follow the signatures from the certificate, through its chain, to one of the authorities."""
    at = chain[0]
    for _ in range(_LONGEST_CHAIN):
        if any(_signed(at, authority) for authority in authorities):
            return
        above = next((one for one in chain[1:] if _signed(at, one)), None)
        if above is None:
            break
        at = above
    raise TlsWrong(f"tls_cert {files.cert} is not signed by the authority in tls_ca {files.ca}; give those that belong")


def _signed(one: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        one.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _identity(path: Path | GivenPem, leaf: x509.Certificate) -> Identity:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return only_identity(names.get_values_for_type(x509.UniformResourceIdentifier))
    except x509.ExtensionNotFound as error:
        raise TlsWrong(f"tls_cert {path} has no alternative names; `strandline certs` makes ones that do") from error
    except NoIdentity as error:
        raise TlsWrong(f"tls_cert {path}: {error}") from error
