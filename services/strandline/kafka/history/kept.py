"""The merged log as it was read, so that the files of Kafka are read once.

A controller deletes segments behind its snapshots at any time, and appends meanwhile: what was proved is what has to be
written, whatever became of the files since.

Invariant: at most `MOST_IN_MEMORY` bytes are in memory; with more, all of it is in a file without a name, in the
directory for temporary files. What is given back is what was read, byte by byte, and was checked then.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Iterator
from pathlib import Path
from tempfile import SpooledTemporaryFile

from strandline.kafka.history.log_files import FoundBatch
from strandline.records.batch import HEADER_BYTES, parse_header

MOST_IN_MEMORY = 16 << 20
_PLACE = struct.Struct(">II")
"""Which file a batch was in, and its size."""


class Kept:
    """Batches in the order in which they were added."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=MOST_IN_MEMORY)  # noqa: SIM115 - closed with this object
        weakref.finalize(self, self._file.close)
        self._paths: dict[Path, int] = {}
        self.is_complete = True
        """Whether everything that was added is here: what was read from a text has no bytes to keep."""

    def add(self, batch: FoundBatch) -> None:
        """Keep one more.

        Raises:
            OSError: there is no room for temporary files.
        """
        if batch.records is not None:
            self.is_complete = False
            return
        number = self._paths.setdefault(batch.path, len(self._paths))
        self._file.write(_PLACE.pack(number, len(batch.content)))
        self._file.write(batch.content)

    def batches(self) -> Iterator[FoundBatch]:
        """Every batch, from the first on; one reading at a time."""
        paths = list(self._paths)
        self._file.seek(0)
        while place := self._file.read(_PLACE.size):
            number, size = _PLACE.unpack(place)
            content = self._file.read(size)
            yield FoundBatch(parse_header(content[:HEADER_BYTES]), content, paths[number])
