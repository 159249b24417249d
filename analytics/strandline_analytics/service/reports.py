"""A report as the service keeps and sends it: what it found, and the page and its figures in pieces.

Invariant: the pieces in their order are the page that `strandline analytics report` writes over the same files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from strandline.v1 import analytics_service_pb2 as pb
from strandline_analytics.report.material import Material
from strandline_analytics.report.page import page, render

PIECE_BYTES = 256 * 1024
"""Far below what a message may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a page says, without the material that it was made from."""

    verdict: str
    troubles: Mapping[str, str]
    page: bytes
    figures: bytes

    def parts(self) -> Iterator[pb.GetReportResponse]:
        """The messages of an answer, in order."""
        yield pb.GetReportResponse(found=pb.ReportFound(verdict=self.verdict, troubles=self.troubles))
        for piece in _pieces(self.page):
            yield pb.GetReportResponse(page=piece)
        for piece in _pieces(self.figures):
            yield pb.GetReportResponse(figures=piece)


def report_of(material: Material) -> Report:
    """The page of a material, and its figures as JSON."""
    shown = page(material)
    return Report(
        verdict=shown["verdict"].sentence,
        troubles=shown["data"]["troubles"],
        page=render(material).encode(),
        figures=(json.dumps(shown["data"], indent=2) + "\n").encode(),
    )


def _pieces(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]
