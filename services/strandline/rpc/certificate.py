"""Whether three files are a certificate that can be shown, its key, and an authority to believe.

Invariant: what cannot work is refused before anything is served or dialled, with one sentence that names the file:
a peer that meets it later would see nothing but a broken handshake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from strandline.rpc.identity import Identity, NoIdentity, only_identity
from strandline.rpc.tls_files import GivenPem, TlsFiles, TlsWrong

_LONGEST_CHAIN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """The content of the three files, and whom the certificate names."""

    cert: bytes
    key: bytes
    ca: bytes
    identity: Identity
    not_after: datetime


def read_material(files: TlsFiles, *, now: datetime | None = None) -> Material:
    """Read the files and see whether they belong together and hold now.

    Raises:
        TlsWrong: with one sentence.
    """
    cert, key, ca = (_read(name, path) for name, path in zip(("cert", "key", "ca"), files.all, strict=True))
    try:
        return _checked(files, cert, key, ca, now or datetime.now(UTC))
    except TlsWrong:
        raise
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.InvalidVersion) as error:
        raise TlsWrong(f"tls_cert {files.cert} holds what cannot be understood: {error}") from error


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
    """Follow who signed whom, through the certificates that came along, to one of the authorities."""
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
