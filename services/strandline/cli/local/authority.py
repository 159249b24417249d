"""The content of the certificates that `strandline certs` makes: names, purposes, validity.

Invariant: a certificate is valid for servers only if it names a host, so a client's certificate cannot be used by a
server; a key on disk is never readable by other users, not even for a moment.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from strandline.rpc.permissions import Identity

_SLACK = timedelta(minutes=5)
"""Certificates are valid from a little before they are made, because other machines' clocks may be behind."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate that signs others, and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        """The certificate for `tls_ca`."""
        return self.certificate.public_bytes(Encoding.PEM)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its key, both PEM."""

    cert: bytes
    key: bytes


def new_authority(cluster: str, days: int) -> Authority:
    """An authority for one cluster; it may sign certificates of processes and nothing below them."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{cluster} authority"[:64])])
    builder = (
        _unsigned(name, key, days, datetime.now(UTC))
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Authority(builder.sign(key, SHA256()), key)


def issue(
    authority: Authority, identity: Identity, hosts: Sequence[str], days: int, *, now: datetime | None = None
) -> Issued:
    """A certificate for one identity. ``hosts`` are the names and addresses it may be dialled by; none for clients."""
    key = ec.generate_private_key(ec.SECP256R1())
    above = authority.certificate
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity.uri), *map(_general_name, hosts)]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{identity.role}-{identity.name}"[:64])])
    builder = (
        _unsigned(subject, key, days, now or datetime.now(UTC))
        .issuer_name(above.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
    )
    certificate = builder.sign(authority.key, SHA256())
    return Issued(certificate.public_bytes(Encoding.PEM), key_pem(key))


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A key as file content, without a password."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_authority(cert: Path, key: Path) -> Authority:
    """An authority from its files.

    Raises:
        ValueError: the files are no certificate and no key of our kind.
        OSError: they cannot be read.
    """
    loaded = load_pem_private_key(key.read_bytes(), password=None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{key} holds no key on an elliptic curve")
    certificate = x509.load_pem_x509_certificate(cert.read_bytes())
    if certificate.public_key() != loaded.public_key():
        raise ValueError(f"{key} does not belong to {cert}")
    return Authority(certificate, loaded)


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that must not exist yet, with its mode from the first byte on.

    Raises:
        FileExistsError: it exists.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(content)


def _unsigned(subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int, now: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
