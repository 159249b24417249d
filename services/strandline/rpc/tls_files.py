"""The three files of TLS: a certificate with its chain, its key, and the authority's certificates.

Invariant: all three or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class TlsWrong(ValueError):
    """The files cannot be used; the sentence names the file and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Where the certificate with its chain, its key and the authority's certificates lie, all PEM."""

    cert: Path
    key: Path
    ca: Path

    @property
    def all(self) -> tuple[Path, Path, Path]:
        """The three."""
        return self.cert, self.key, self.ca


def tls_files(cert: str | Path, key: str | Path, ca: str | Path) -> TlsFiles:
    """The files, when all three are given.

    Raises:
        TlsWrong: one is not.
    """
    given = {"tls_cert": cert, "tls_key": key, "tls_ca": ca}
    absent = [name for name, value in given.items() if not str(value)]
    if absent:
        raise TlsWrong(f"{' and '.join(absent)} must be given too; TLS needs tls_cert, tls_key and tls_ca together")
    return TlsFiles(cert=Path(cert), key=Path(key), ca=Path(ca))
