"""Makes the helpers of this folder importable for its tests, and starts three members of etcd for each file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from strandline.etcd.client import Etcd
from strandline.etcd.members import Members


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """Three members that serve, all of them running at the beginning of each test that leaves them so."""
    from etcd_members import started, until_healthy

    with started(tmp_path_factory.mktemp("etcd")) as cluster:
        until_healthy(cluster)
        yield cluster


@pytest.fixture
async def etcd(members: Members) -> AsyncIterator[Etcd]:
    """A client of all three."""
    from etcd_members import READY_S

    client = Etcd(members.endpoints)
    try:
        await client.until_serving(READY_S)
        yield client
    finally:
        await client.close()
