"""Keeps one link to each broker, with at most one question in flight (A25).

Invariant: a broker that does not answer costs a look one wait, and is not asked again while its answer may still come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from strandline.core.types import NodeId
from strandline_kafka.collector.cluster import Broker
from strandline_kafka.collector.connection import Connection, Refused, Security, Unreachable, open_connection
from strandline_kafka.collector.requests import Api, speaks

_AGAIN_S = 1.0
"""The time between two attempts to connect."""


class BrokerLink:
    """A link to one broker, which connects at the first question."""

    def __init__(self, broker: Broker, security: Security, connection: Connection | None = None) -> None:
        self.broker = broker
        self._security = security
        self._connection = connection
        self._asking: asyncio.Task[bytes] | None = None
        self._not_before = 0.0
        self.longest_ms = 0.0
        """The slowest answer since this was last set to 0."""
        self.trouble: str | None = None
        """Why the last question had no answer; None if it had one."""

    async def ask(self, api: Api, body: bytes, within_s: float) -> bytes | None:
        """The frame of an answer; None if none came in time, or an earlier answer is still awaited."""
        if self._asking is not None and not self._asking.done():
            return None
        began = time.monotonic()
        if self._connection is None and began < self._not_before:
            return None
        self._asking = asyncio.create_task(self._ask(api, body))
        self._asking.add_done_callback(_note_no_exception)
        await asyncio.wait({self._asking}, timeout=within_s)
        if not self._asking.done():
            self.trouble = f"{self.broker.host}:{self.broker.port}: no answer to {api.name} yet"
            return None
        try:
            frame = self._asking.result()
        except Unreachable as error:
            # The remedy is for an address given by the user; the cluster has named this one.
            self.trouble = str(error).partition(";")[0]
            return None
        except Refused as error:
            self.trouble = str(error)
            return None
        self.longest_ms = max(self.longest_ms, (time.monotonic() - began) * 1_000)
        self.trouble = None
        return frame

    async def settle(self, within_s: float) -> None:
        """Wait for the answer to a question whose caller has given up: until then no other is asked."""
        if self._asking is not None and not self._asking.done():
            await asyncio.wait({self._asking}, timeout=within_s)

    @property
    def is_connected(self) -> bool:
        """Whether the broker has reported which questions it takes."""
        return self._connection is not None

    def speaks(self, api: Api) -> bool:
        """Whether the broker is connected and takes such a question."""
        return self._connection is not None and speaks(self._connection.offered, api)

    async def close(self) -> None:
        """Give up the question in flight, and the connection."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})
        if self._connection is not None:
            self._connection.close()

    async def _ask(self, api: Api, body: bytes) -> bytes:
        try:
            if self._connection is None:
                self._connection = await open_connection(self.broker.host, self.broker.port, self._security)
            return await self._connection.ask(api, body)
        except (Unreachable, Refused):
            self._connection = None
            self._not_before = time.monotonic() + _AGAIN_S
            raise


class Links:
    """The links to the brokers of a cluster, and one to the address of the user, which is the last to be asked."""

    def __init__(self, spare: Connection, address: Broker, security: Security) -> None:
        self._security = security
        self._spare = BrokerLink(address, security, spare)
        self._preferred = self._spare
        self._links: dict[NodeId, BrokerLink] = {}

    def be_for(self, brokers: Mapping[NodeId, Broker]) -> list[BrokerLink]:
        """Have a link for each broker. Returns the links of other brokers, which must be closed."""
        kept = {node: link for node, link in self._links.items() if brokers.get(node) == link.broker}
        over = [link for node, link in self._links.items() if node not in kept and link is not self._spare]
        self._links = kept
        for node, broker in brokers.items():
            if node not in kept:
                kept[node] = self._spare if broker == self._spare.broker else BrokerLink(broker, self._security)
        return over

    def of(self, node: NodeId) -> BrokerLink:
        """The link to a broker of `be_for`."""
        return self._links[node]

    def all(self) -> list[BrokerLink]:
        """Every link once: the preferred one first, that to the user's address last."""
        links = list(self._links.values())
        if self._preferred in links:
            links.sort(key=lambda link: link is not self._preferred)
        return links if self._spare in links else [*links, self._spare]

    def prefer(self, link: BrokerLink) -> None:
        """From now on ask for the cluster's state through this link."""
        self._preferred = link

    def longest_ms(self) -> float:
        """The slowest answer since the last call; the measurement begins again."""
        longest = max(link.longest_ms for link in self.all())
        for link in self.all():
            link.longest_ms = 0.0
        return longest


def _note_no_exception(task: asyncio.Task[bytes]) -> None:
    """Ignore an answer that came too late for its look, and its failure."""
    if not task.cancelled():
        task.exception()
