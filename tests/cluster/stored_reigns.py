"""The log that several controllers keep in etcd, as etcd itself returns it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from strandline.core.messages import Endpoint
from strandline.etcd.client import Etcd
from strandline.etcd.operations import behind
from strandline.metadata.etcd_layout import Keys, read_log_value

_MOST = 100_000


async def stored_reigns(members: Sequence[Endpoint], prefix: str = "/strandline/default") -> list[str]:
    """The reign of each transaction that is kept, in order, each run of one reign once.

    Raises:
        AssertionError: an offset is missing, or is there twice.
    """
    keys = Keys(prefix)
    client = Etcd(members)
    try:
        kvs = await client.page(keys.logs, behind(keys.logs), 0, _MOST)
    finally:
        await client.close()
    heads = [read_log_value(kv.value, offset=keys.offset_of(kv.key), revision=0).head for kv in kvs]

    assert [head.offset for head in heads] == list(range(heads[0].offset, heads[0].offset + len(heads)))
    return [reign for reign, _ in itertools.groupby(head.reign_id for head in heads)]
