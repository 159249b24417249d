"""The three parts of TLS: a certificate with its chain, its key, and the authority's certificates.

Invariant: all three or none; what was given as bytes is never repeated in a sentence, because one of them is a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class TlsWrong(ValueError):
    """The files cannot be used; the sentence names the file and what to do."""


class GivenPem:
    """PEM that a program gave as bytes, in the place of a file; it never changes."""

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
    """Where the certificate with its chain, its key and the authority's certificates lie, all PEM."""

    cert: Path | GivenPem
    key: Path | GivenPem
    ca: Path | GivenPem

    @property
    def all(self) -> tuple[Path | GivenPem, Path | GivenPem, Path | GivenPem]:
        """The three."""
        return self.cert, self.key, self.ca


def tls_files(cert: str | Path | bytes, key: str | Path | bytes, ca: str | Path | bytes) -> TlsFiles:
    """The files, when all three are given: paths, or PEM as bytes.

    Raises:
        TlsWrong: one is not given, or is PEM as a string.
    """
    given = {"tls_cert": cert, "tls_key": key, "tls_ca": ca}
    absent = [name for name, value in given.items() if not is_given(value)]
    if absent:
        raise TlsWrong(f"{' and '.join(absent)} must be given too; TLS needs tls_cert, tls_key and tls_ca together")
    return TlsFiles(cert=_place("tls_cert", cert), key=_place("tls_key", key), ca=_place("tls_ca", ca))


def is_given(value: str | Path | bytes) -> bool:
    """Whether a setting of TLS says anything."""
    return bool(value) if isinstance(value, bytes) else bool(str(value))


def _place(name: str, value: str | Path | bytes) -> Path | GivenPem:
    if isinstance(value, bytes):
        return GivenPem(value)
    if str(value).lstrip().startswith("-----BEGIN"):
        raise TlsWrong(f"{name} is PEM as a string, where a path is expected; give PEM as bytes")
    return Path(value)
