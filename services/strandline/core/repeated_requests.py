"""Which request to create or to grow a topic was done before, so that its repeat is answered as the first time (C32).

Invariant: what a request did is remembered in the record of the topic that it changed, in the same transaction; a
repeat changes nothing. The id of a topic has nothing to do with the id of the request: a late copy that arrives after
the topic was deleted creates another topic, with an id that was never given.
"""

from __future__ import annotations

import re
from typing import Any

from strandline.core.controller_messages import CreatePartitions, CreateTopics
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import TopicImage

KEPT_GROWTHS = 8
"""How many requests that added partitions a topic remembers; a repeat comes while few others do."""

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def bad_request_id(request: Any) -> Refusal | None:
    """Why the whole request is refused: its id is kept, so it has the form and the length of a UUID."""
    if not isinstance(request, CreateTopics | CreatePartitions):
        return None
    if request.request_id is None or _UUID.fullmatch(request.request_id):
        return None
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"request_id '{request.request_id[:40]}' is no UUID in lower-case hex with dashes; draw one or leave it out",
        field="request_id",
    )


def was_created_by(topic: TopicImage, request: CreateTopics) -> bool:
    """Whether this very request created the topic before."""
    return not request.validate_only and topic.created_by == request.request_id


def has_grown_by(topic: TopicImage, request: CreatePartitions) -> bool:
    """Whether this very request added partitions to the topic before."""
    return not request.validate_only and request.request_id in topic.grown_by


def with_growth(topic: TopicImage, request_id: str) -> tuple[str, ...]:
    """``grown_by`` of the topic after one more growth."""
    return (*topic.grown_by, request_id)[-KEPT_GROWTHS:]
