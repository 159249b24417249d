"""Every fuzz target on a small budget; `make test-deep` runs the same oracles for long, guided by coverage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from target_transport import check_cut, interop_side
from targets import TARGETS, kept_inputs, oracle


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """These tests provoke rejections; their log lines would hide a find."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", TARGETS)
def test_random_bytes_hold_no_surprise(name: str) -> None:
    """For any bytes the target's oracle holds."""
    target = TARGETS[name]
    check = oracle(name)

    @settings(max_examples=target.examples * settings.default.max_examples // 100)
    @given(st.binary(min_size=target.input_bytes // 2, max_size=target.input_bytes))
    def fuzz(data: bytes) -> None:
        check(data)

    fuzz()


@pytest.mark.parametrize(
    ("name", "path"),
    [pytest.param(name, path, id=f"{name}-{path.name}") for name in TARGETS for path in kept_inputs(name)],
)
def test_what_once_failed_holds(name: str, path: Path) -> None:
    """Every committed input, earlier finds above all, passes its target's oracle."""
    oracle(name)(path.read_bytes())


@pytest.mark.parametrize("path", kept_inputs("transport-recorded"), ids=lambda path: path.name)
def test_a_recorded_connection_may_be_cut_at_every_byte(path: Path) -> None:
    """What a real client sent has the same answer however the network cuts it in two."""
    content = path.read_bytes()

    asyncio.run(check_cut(interop_side, content, range(len(content) + 1)))
