"""The authority and the issuer of a test."""

from __future__ import annotations

from pathlib import Path

import pytest
from certificates import Certificates
from issued_tokens import TokenIssuer


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    """Certificates of one authority."""
    return Certificates.at(tmp_path)


@pytest.fixture
def issuer(tmp_path: Path) -> TokenIssuer:
    return TokenIssuer(tmp_path)
