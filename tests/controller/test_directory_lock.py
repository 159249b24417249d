"""One process for each data directory of a controller whose store is elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.controller.process import DirectoryLock
from strandline.metadata.store import StoreInUse


def test_a_directory_is_one_controllers_until_it_lets_go(tmp_path: Path) -> None:
    """A second one is refused by the directory's name; after the release it may have it."""
    first = DirectoryLock(tmp_path)
    with pytest.raises(StoreInUse, match=f"data_dir {tmp_path} is in use"):
        DirectoryLock(tmp_path)
    first.release()

    DirectoryLock(tmp_path).release()
