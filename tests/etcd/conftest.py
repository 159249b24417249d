"""Starts three members of etcd for each file."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from etcd_members import READY_S, client_of, started, until_healthy

from strandline.etcd.client import Etcd
from strandline.etcd.members import Members


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """Three members that serve, all of them running at the beginning of each test that leaves them so."""
    with started(tmp_path_factory.mktemp("etcd")) as cluster:
        until_healthy(cluster)
        yield cluster


@pytest.fixture
async def etcd(members: Members) -> AsyncIterator[Etcd]:
    """A client of all three."""
    async with client_of(members.endpoints) as client:
        await client.until_serving(READY_S)
        yield client


@pytest.fixture
def prefix() -> str:
    """Keys that no other test uses."""
    return f"/strandline/{uuid.uuid4().hex}"
