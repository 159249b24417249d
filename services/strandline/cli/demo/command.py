"""`strandline demo`: which input, where it runs, and how its verdict is printed.

Invariant: the exit code is the verdict's; whatever fails on the way is a failed demo and says in one line why.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.failures import EXIT_REFUSED, EXIT_UNREACHABLE, CommandFailed, perform
from strandline.units import bytes_text, duration_text

if TYPE_CHECKING:
    from strandline.cli.demo.load import Corpus
    from strandline.cli.demo.screen import Screen
    from strandline.cli.demo.story import Story
    from strandline.cli.demo.verify import Check, DemoVerdict

CONTROLLER_SETTINGS = {"session_timeout_ms": "1500", "heartbeat_interval_ms": "300"}
"""A dead node is noticed after 1.5 s instead of 9 s, in which a viewer would see nothing happen."""
NODE_SETTINGS = {"replica_lag_time_max_ms": "10000", "sample_interval_ms": "100"}
"""Time for a follower on a busy laptop to fall behind and catch up in the ISR; looks ten times a second."""
EXPORT_SETTINGS = {"export_roll_s": "1"}
"""Short files, because a process that is killed takes its open file with it."""


def demo(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A text file; default: the standard library's sources.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="A new directory for the run; it is kept.")
    ] = None,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, max=100, help="The topic's partitions.")] = 6,
    report: Annotated[
        bool,
        typer.Option("--report/--no-report", help="Let Spark render a report of the run, and compare its figures."),
    ] = True,
) -> None:
    """Replicate a real file, kill the leader half way, and prove that nothing was lost.

    Starts a controller and three data nodes as processes of this machine, produces every line with acks=all while
    a consumer reads along, kills the node that leads most with SIGKILL, lets it come back, and checks everything.
    Then Spark computes from the exported state what happened, and has to come to the same figures.
    Exit code 1 if any check fails.
    """
    from strandline.cli.failures import require_server

    require_server()
    perform(_demo(file, directory, partitions, report))


async def _demo(file: Path | None, directory: Path | None, partitions: int, wants_report: bool) -> None:
    from strandline.cli.demo.screen import Scene, open_screen
    from strandline.cli.demo.story import Story
    from strandline.cli.demo.verify import agreement, make_report, whats_missing
    from strandline.cli.local.local_cluster import LocalCluster, Plan

    where = _fresh(directory)
    scene = Scene()
    with open_screen(scene) as screen:
        screen.tell("run", str(where))
        corpus = await asyncio.to_thread(_input, file, where, partitions)
        screen.tell("input", f"{corpus.title}: {corpus.lines:,} lines, {bytes_text(corpus.size_bytes)}")
        export = EXPORT_SETTINGS | {"export_dir": str(where / "export")}
        plan = Plan(
            directory=where, controller_settings=CONTROLLER_SETTINGS | export, node_settings=NODE_SETTINGS | export
        )
        story = Story(corpus, LocalCluster(plan), screen, scene)
        began = time.monotonic()
        await story.play()
        verdict = await asyncio.to_thread(_verdict, story, time.monotonic() - began)
        _print_checks(verdict.checks, screen)
        if wants_report and (missing := whats_missing()):
            screen.tell("no report", missing, tone="bold yellow")
        elif wants_report:
            figures = await make_report(where, story, screen, scene)
            agreed = tuple(agreement(story, figures))
            _print_checks(agreed, screen)
            verdict = replace(verdict, checks=verdict.checks + agreed)
        _print(verdict, screen)
    (where / "verdict.json").write_text(json.dumps(verdict.document(), indent=2) + "\n")
    typer.echo(f"\nThe run is left in {where}")
    if not verdict.passed:
        raise typer.Exit(EXIT_REFUSED)


def _fresh(directory: Path | None) -> Path:
    """The run's directory, new.

    Raises:
        CommandFailed: when it holds something already.
    """
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    where = (directory or Path(f"strandline-demo-{stamp}")).resolve()
    if where.exists() and any(where.iterdir()):
        raise CommandFailed(f"{where}: the directory is not empty; the demo wants a new one", EXIT_UNREACHABLE)
    where.mkdir(parents=True, exist_ok=True)
    return where


def _input(file: Path | None, where: Path, partitions: int) -> Corpus:
    from strandline.cli.demo.load import open_corpus, write_standard_library

    if file is not None:
        return open_corpus(file, partitions)
    joined = where / "input.txt"
    write_standard_library(joined)
    return open_corpus(joined, partitions, "the sources of Python's standard library")


def _verdict(story: Story, took_s: float) -> DemoVerdict:
    from strandline.cli.demo.children import spool_path
    from strandline.cli.demo.verify import DemoVerdict, Evidence, checks

    load, watch = story.load, story.watch
    assert load is not None and watch is not None, "the story was played"
    evidence = Evidence(
        corpus=story.corpus,
        acks=load.acks,
        reads=load.reads,
        spools=[spool_path(load.directory, partition) for partition in range(story.corpus.partitions)],
        data_directories=[node.directory for node in story.cluster.nodes.values()],
        topic=story.topic,
    )
    load_s = load.acks.sending_s
    cut = sum(truncation.records for truncation in story.truncations)
    raw = {
        "lines": story.corpus.lines,
        "bytes": story.corpus.size_bytes,
        "load_seconds": round(load_s, 3),
        "bytes_per_second": round(story.corpus.size_bytes / load_s),
        "elected_after_ms": round(story.elected_after_ms),
        "longest_without_ack_ms": round(load.acks.longest_silence_ms),
        "elections": len([vote for vote in watch.elections if vote.new is not None]),
        "isr_changes": watch.isr_changes,
        "truncated_records": cut,
        "run_seconds": round(took_s, 3),
    }
    figures = {
        "lines": f"{story.corpus.lines:,} in {duration_text(load_s * 1000)}, the kill included",
        "rate": f"{bytes_text(story.corpus.size_bytes / load_s)}/s, {story.corpus.lines / load_s:,.0f} lines/s",
        "longest unavailability": f"{load.acks.longest_silence_ms:,.0f} ms without an ack in one partition",
        "elections": f"{raw['elections']}",
        "ISR changes": f"{watch.isr_changes}",
        "truncated": f"{cut:,} records, none of them acknowledged" if cut else "no record",
    }
    return DemoVerdict(checks=tuple(checks(evidence)), figures=figures, raw=raw)


def _print_checks(checks: Iterable[Check], screen: Screen) -> None:
    screen.gap()
    for check in checks:
        tone = "bold green" if check.held else "bold red"
        screen.tell("verified" if check.held else "FAILED", f"{check.sentence}: {check.shown}", tone=tone)


def _print(verdict: DemoVerdict, screen: Screen) -> None:
    screen.gap()
    for name, shown in verdict.figures.items():
        screen.figure(name, shown)
    screen.gap()
    failed = sum(not check.held for check in verdict.checks)
    sentence = f"{failed} of {len(verdict.checks)} checks failed" if failed else "nothing lost, doubled or diverged"
    screen.tell("verdict", sentence, tone="bold red" if failed else "bold green")
