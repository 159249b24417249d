"""The console as a process: what it serves, streams to browsers, and a cluster over TLS."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, MutableMapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from http_calls import ask, create, fresh_form, stream
from running_cluster import plan, running
from running_console import HELD_UP, console, console_here

from strandline.cli.local.local_cluster import LocalCluster
from strandline.console import streams as streams_module
from strandline.console.pages import Page, Part
from strandline.console.settings import ConsoleSettings
from strandline.console.streams import Pulse, Streams, TooManyBrowsers
from strandline.runtime.exit_codes import ExitCode
from strandline.runtime.settings import SettingsWrong, load_settings


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address without a server, which no other process takes while the test runs."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


async def test_pages_are_served_before_any_controller_answers(nowhere: str) -> None:
    """Each page is served, shows that nothing is known and which address was used, with a policy without exceptions."""
    async with console_here(nowhere) as address:
        for path in ("/", "/partitions", "/nodes", "/topics"):
            page = await ask(address, path)

            assert page.status == 200
            assert "Nothing is known yet: no controller has answered" in page.text
            assert nowhere in page.text
            assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
            assert "unsafe" not in page.headers["content-security-policy"]
            assert page.headers["cache-control"] == "no-store"
        assert (await ask(address, "/nowhere")).status == 404
        assert (await ask(address, "/static/../settings.py")).status == 404
        assert (await ask(address, "/static/console.css")).headers["content-type"].startswith("text/css")


async def test_a_name_that_is_not_ours_is_not_answered(nowhere: str) -> None:
    """A foreign host name that was rebound to this address reaches nothing, by no method."""
    async with console_here(nowhere, allow_changes=True) as address:
        headers = {"Host": "stranger.example:80", "Origin": "http://stranger.example:80"}

        assert (await ask(address, "/", headers=headers)).status == 421
        assert (await create(address, headers)).status == 421


async def test_nothing_is_changed_without_leave(nowhere: str) -> None:
    """Without --allow-changes a form is rejected, and no page sets a cookie."""
    async with console_here(nowhere) as address:
        refused = await create(address, {"Origin": address})

        assert (refused.status, "--allow-changes" in refused.text) == (403, True)
        assert "set-cookie" not in (await ask(address, "/topics")).headers


async def test_a_form_of_strangers_is_refused(nowhere: str) -> None:
    """Another origin, no origin, another encoding, too large a body, an unknown token: no request is sent."""
    async with console_here(nowhere, allow_changes=True) as address:
        token, headers = await fresh_form(address)
        foreign = [
            headers | {"Origin": "http://stranger.example"},
            headers | {"Origin": "null"},
            {"Cookie": headers["Cookie"]},
            {"Cookie": headers["Cookie"], "Sec-Fetch-Site": "cross-site"},
            headers | {"Content-Type": "text/plain"},
        ]
        for each in foreign:
            assert (await create(address, each, token=token)).status == 403, each
        assert (await create(address, headers, token=token, configs="a=" + "b" * 70_000)).status == 403
        for wrong in ("", "0" * 64, "é"):
            answer = await create(address, headers, token=wrong)
            assert (answer.status, "an earlier run of the console" in answer.text) == (422, True)
        without_cookie = await create(address, {"Origin": address}, token=token)
        assert without_cookie.status == 422


async def test_a_form_is_asked_once_and_its_trouble_is_shown(nowhere: str) -> None:
    """With valid token and origin: an invalid number is reported with field and remedy; so is a missing controller.

    The input stays in the form.
    """
    async with console_here(nowhere, allow_changes=True) as address:
        token, headers = await fresh_form(address)
        answer = await create(address, headers, token=token, partitions="three<")

        assert answer.status == 422
        assert "<dt>field</dt><dd>partitions</dd>" in answer.text
        assert "must be a whole number" in answer.text
        assert 'value="three&lt;"' in answer.text
        answer = await create(address, headers, token=token, configs="min.insync.replicas")
        assert "<dt>field</dt><dd>configs</dd>" in answer.text
        answer = await create(address, headers, token=token, partitions="3")
        assert (answer.status, "no controller has answered yet" in answer.text) == (422, True)


async def test_streams_are_bounded_and_end_with_the_console(tmp_path: Path, nowhere: str) -> None:
    """One page too many is rejected; streams that are not read block neither the others nor the stop."""
    flags = ("--tune", "max_browsers=3", "--look-interval-ms", "100", *HELD_UP)
    async with console(tmp_path, nowhere, *flags) as running, AsyncExitStack() as streams:
        opened = [await streams.enter_async_context(stream(running.address, "/live/")) for _ in range(3)]
        assert [status for _, _, status in opened] == [200, 200, 200]
        async with stream(running.address, "/live/") as refused:
            assert refused[2] == 503
        for _ in range(3):
            await asyncio.wait_for(opened[0][0].readuntil(b"\n\n"), 10)
        opened[1][1].close()

        async def again() -> None:
            while (await streams.enter_async_context(stream(running.address, "/live/")))[2] != 200:
                pass

        await asyncio.wait_for(again(), 10)
        await running.stop()


def _ended(*flags: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "strandline.console", *flags]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return ran.returncode, ran.stderr.strip()


@pytest.fixture
def key(tmp_path: Path) -> str:
    """A file of keys without a key."""
    path = tmp_path / "key.pem"
    path.write_text("no key")
    return str(path)


async def test_a_start_that_cannot_be_ends_with_one_line(key: str) -> None:
    """A port in use, invalid keys: each has its exit code and one sentence that names what to change."""
    free = ("--bootstrap", "127.0.0.1:1", "--bind", "127.0.0.1:0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        starts = {
            address: ("--bootstrap", "127.0.0.1:1", "--bind", address),
            "https_cert": (*free, "--https-cert", key, "--https-key", key),
            "tls_cert": (*free, "--tls-cert", key, "--tls-key", key, "--tls-ca", key),
        }
        ends = await asyncio.gather(*(asyncio.to_thread(_ended, *flags) for flags in starts.values()))

    assert [code for code, _ in ends] == [ExitCode.PORT_TAKEN, ExitCode.USAGE, ExitCode.USAGE]
    for (_, said), named in zip(ends, [address, key, key], strict=True):
        assert (len(said.splitlines()), named in said) == (1, True), said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bind": "0.0.0.0:8080"}, "insecure"),
        ({"bind": "[::]:8080"}, "insecure"),
        ({"bind": "0.0.0.0:8080", "insecure": "true", "allow_changes": "true"}, "needs hosts"),
        ({"bind": "8080"}, "not an address"),
        ({"https_cert": "x"}, "https_key"),
        ({"tls_cert": "x"}, "tls_key and tls_ca"),
        ({"report": "javascript:alert(1)"}, "not an address for browsers"),
    ],
)
def test_settings_that_open_the_console_by_accident_are_refused(given: dict[str, str], said: str) -> None:
    """Beyond loopback the start needs an option for how browsers are protected."""
    with pytest.raises(SettingsWrong, match=said):
        load_settings(ConsoleSettings, flags={"bootstrap": "127.0.0.1:1", **given}, variables={})


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"bind": "[::1]:0"},
        {"bind": "0.0.0.0:8080", "insecure": "true"},
        {"bind": "0.0.0.0:8443", "https_cert": "c", "https_key": "k", "allow_changes": "true", "hosts": "a.example"},
    ],
)
def test_settings_that_are_meant_are_taken(given: dict[str, str]) -> None:
    """Loopback needs nothing; elsewhere TLS, or an explicit option."""
    load_settings(ConsoleSettings, flags={"bootstrap": "127.0.0.1:1", **given}, variables={})


async def test_the_health_port_tells_of_the_console(tmp_path: Path, nowhere: str) -> None:
    """Liveness and readiness are those of the console itself: it serves while the cluster is gone."""
    from grpc import aio
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    async with console(tmp_path, nowhere, "--health-bind", "127.0.0.1:0") as running:
        deadline = time.monotonic() + 10
        while not (found := re.search(r"health is served.*?address\W+([\d.:]+)", running.output.read_text())):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        async with aio.insecure_channel(found[1]) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for name in ("liveness", "readiness", ""):
                answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING, name


DEADLINE_S = 10.0


class Browser:
    """One browser: accepts data only while it reads, and leaves on request."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.reads.set()
        self.leaves = asyncio.Event()
        self.taken: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.offered = asyncio.Event()

    async def receive(self) -> MutableMapping[str, Any]:
        """Blocks until it leaves."""
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Accept a piece, when it reads."""
        self.offered.set()
        await self.reads.wait()
        for line in message.get("body", b"").decode().splitlines():
            if line.startswith("data: "):
                self.taken.put_nowait(json.loads(line.removeprefix("data: ")))

    async def event(self) -> dict[str, Any]:
        """The next event it received."""
        return await asyncio.wait_for(self.taken.get(), DEADLINE_S)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part's HTML depends only on the page's values for it."""
    monkeypatch.setattr(streams_module, "write_part", lambda page, part: page.values[part.name])


def _page(version: int) -> Page:
    """A part that never changes, one that always does, and one that is not live."""
    return Page(
        title=f"t{version}", section="", parts=(Part(name="same"), Part(name="other"), Part(name="form", live=False)),
        values={"same": "s", "other": f"v{version}", "form": "f"},
    )  # fmt: skip


@pytest.mark.usefixtures("parts")
async def test_only_what_changed_is_reported() -> None:
    """First every live part, then those that differ; parts that are not live never."""
    pulse, browser = Pulse(0), Browser()
    beat = asyncio.create_task(pulse.run())
    serving = asyncio.create_task(Streams(pulse, 1).serve(_page, browser.receive, browser.send))
    first = await browser.event()
    pulse.mark()
    second = await browser.event()
    browser.leaves.set()
    await asyncio.wait_for(serving, DEADLINE_S)
    beat.cancel()

    assert first == {"title": "t0", "parts": {"same": "s", "other": "v0"}}
    assert second == {"title": "t1", "parts": {"other": "v1"}}


@pytest.mark.usefixtures("parts")
async def test_a_slow_browser_gets_the_newest_state() -> None:
    """While it does not read, a hundred versions pass; it gets only the one it was offered, then the last."""
    pulse, browser = Pulse(0), Browser()
    made: list[int] = []

    def make(version: int) -> Page:
        made.append(version)
        return _page(version)

    beat = asyncio.create_task(pulse.run())
    serving = asyncio.create_task(Streams(pulse, 1).serve(make, browser.receive, browser.send))
    await browser.event()
    browser.reads.clear()
    browser.offered.clear()
    pulse.mark()
    await asyncio.wait_for(browser.offered.wait(), DEADLINE_S)
    while pulse.version < 100:
        pulse.mark()
        await asyncio.sleep(0)
    beat.cancel()
    await asyncio.gather(beat, return_exceptions=True)
    newest = pulse.version
    browser.reads.set()

    assert (await browser.event())["parts"] == {"other": "v1"}
    assert (await browser.event())["parts"] == {"other": f"v{newest}"}
    assert made == [0, 1, newest]
    browser.leaves.set()
    await asyncio.wait_for(serving, DEADLINE_S)


@pytest.mark.usefixtures("parts")
async def test_one_that_never_reads_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that reads nothing for the deadline of a send loses its stream, and its slot is free again."""
    monkeypatch.setattr(streams_module, "SEND_DEADLINE_S", 0.05)
    pulse, browser = Pulse(0), Browser()
    streams = Streams(pulse, 1)
    browser.reads.clear()
    serving = asyncio.create_task(streams.serve(_page, browser.receive, browser.send))
    await asyncio.wait_for(serving, DEADLINE_S)

    assert streams.open == 0


@pytest.mark.usefixtures("parts")
async def test_places_are_bounded_and_a_stop_ends_all() -> None:
    """The one too many is rejected at once; a stop ends the open ones, and no new one is accepted after it."""
    pulse, streams = Pulse(0), Streams(Pulse(0), 2)
    browsers = [Browser(), Browser(), Browser()]
    serving = [asyncio.create_task(streams.serve(_page, each.receive, each.send)) for each in browsers[:2]]
    for each in browsers[:2]:
        await each.event()
    with pytest.raises(TooManyBrowsers):
        await streams.serve(_page, browsers[2].receive, browsers[2].send)

    streams.stop()
    await asyncio.wait_for(asyncio.gather(*serving), DEADLINE_S)
    assert streams.open == 0
    with pytest.raises(TooManyBrowsers):
        await streams.serve(_page, browsers[2].receive, browsers[2].send)
    assert pulse.version == 0


_KNOWN_S = 20.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One node and a controller, with certificates; at the end each must stop cleanly."""
    with running(plan(tmp_path_factory.mktemp("cluster"), nodes=1, tls=True)) as one:
        yield one


async def _says(address: str, words: str) -> None:
    deadline = time.monotonic() + _KNOWN_S
    while words not in (page := (await ask(address, "/")).text):
        assert time.monotonic() < deadline, page
        await asyncio.sleep(0.05)


async def test_a_client_may_look_and_an_admin_may_create(cluster: LocalCluster) -> None:
    """With a client's certificate the pages are complete and a creation is rejected; with an admin's it succeeds."""
    async with console_here(cluster.bootstrap, allow_changes=True, **cluster.client_tls("client")) as address:
        await _says(address, "Nothing is wrong.")
        token, headers = await fresh_form(address)
        refused = await create(address, headers, token=token, name="mine", replication_factor="1")
        assert (refused.status, 'id="refusal"' in refused.text) == (422, True)

    async with console_here(cluster.bootstrap, allow_changes=True, **cluster.client_tls("admin")) as address:
        await _says(address, "Nothing is wrong.")
        token, headers = await fresh_form(address)
        made = await create(address, headers, token=token, name="mine", replication_factor="1")
        assert (made.status, made.headers["location"]) == (303, "/topics?created=mine")


async def test_without_a_certificate_nothing_is_known(cluster: LocalCluster) -> None:
    """A console with a certificate of another authority shows that nothing answers, not an empty healthy cluster."""
    async with console_here(cluster.bootstrap) as address:
        await _says(address, "Nothing is known yet: no controller has answered")
