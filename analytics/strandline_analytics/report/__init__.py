"""Makes one page that shows what happened: incidents as lanes, the statistics, and how each figure was computed.

Importing this does not load Spark: a command that asks a service for a page does not need it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A page and its findings, without the material that it was made from."""

    verdict: str
    troubles: Mapping[str, str]
    page: str
    figures: str
    """The page's figures as JSON."""

    def write(self, out: Path, figures: Path | None) -> None:
        """Write the page, and its figures if requested; each file appears whole or not at all."""
        for path, text in ((out, self.page), (figures, self.figures)):
            if path is not None:
                fresh = path.with_name(f".{path.name}.{os.getpid()}")
                fresh.write_text(text, encoding="utf-8")
                fresh.replace(path)
