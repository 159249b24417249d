"""`strandline sim ...`: run the simulator over seeds, replay one seed as lanes, or make a failing one small.

Invariant: exit code 1 means that an invariant was broken, or that a campaign did not see what its profile promises;
every broken seed is printed with the command that replays it.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.durations import Duration, duration_option, read_duration
from strandline.cli.failures import EXIT_REFUSED, EXIT_UNREACHABLE, CommandFailed, fail
from strandline.cli.output import Column, Format, show
from strandline.export.encoding import ExportFormat
from strandline_sim.commands import searches

if TYPE_CHECKING:
    from strandline_sim.runs.run import Campaign, Outcome
    from strandline_sim.runs.shape import Shape
    from strandline_sim.runs.shrink import Shrunk
    from strandline_sim.runs.to_scenario import Reported
    from strandline_sim.runs.trace import Trace, TraceLine

app = typer.Typer(
    help="Simulate clusters under faults: the production cores on virtual time, checked at every event.",
    no_args_is_help=True,
)
app.command("exhaust")(searches.exhaust)
app.command("elections")(searches.elections)
app.command("reassignments")(searches.reassignments)
app.command("reigns")(searches.reigns)
app.command("rebalances")(searches.rebalances)
app.command("transactions")(searches.transactions)

Profile = Annotated[str, typer.Option("--profile", "-p", metavar="NAME", help="Kind of run; a wrong name lists them.")]


@app.command()
def run(
    seeds: Annotated[str, typer.Option("--seeds", metavar="A..B", help="Seeds from A up to, not including, B.")],
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Number of processes.")] = 1,
    profile: Profile = "swarm",
    budget: Annotated[
        Duration | None, duration_option("--time", help="Stop starting seeds after this time.", least="1s")
    ] = None,
    table: Annotated[bool, typer.Option("--table/--no-table", help="Show how often each event happened.")] = True,
) -> None:
    """Run many seeds; the exit code says whether every invariant held and everything promised was seen."""
    span = _span(seeds)
    _check_profile(profile)
    campaign, elapsed_s = _run(span, jobs, profile, None if budget is None else budget.s)
    if table:
        rows = [{"what": what, "times": times} for what, times in sorted(campaign.counts.items())]
        show(rows, [Column("what", "what"), Column("times", "times", number=True)], Format.TABLE)
    _summarize(campaign, elapsed_s)
    if not campaign.passed:
        raise typer.Exit(EXIT_REFUSED)


def _run(span: range, jobs: int, profile: str, budget_s: float | None) -> tuple[Campaign, float]:
    """Run all seeds for which there is time, with a progress bar that shows the rate; also returns the duration."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from strandline.cli.output import console
    from strandline_sim.runs.run import Campaign, outcomes

    campaign = Campaign(profile)
    began_s = time.monotonic()
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True)) as progress:
        task = progress.add_task(profile, total=len(span), rate="")
        until_s = float("inf") if budget_s is None else began_s + budget_s
        seeds = (seed for seed in span if time.monotonic() < until_s)
        for outcome in outcomes(seeds, profile, jobs):
            campaign.take(outcome)
            if outcome.violation is not None:
                # At once, so that nobody has to wait for the end of a long campaign that found something.
                progress.console.print(f"seed {outcome.seed}: {outcome.violation.name}", highlight=False)
            rate = campaign.events / max(0.001, time.monotonic() - began_s)
            progress.update(task, advance=1, rate=f"{rate:,.0f} events/s, {len(campaign.broken)} broken")
    return campaign, time.monotonic() - began_s


def _summarize(campaign: Campaign, elapsed_s: float) -> None:
    typer.echo(
        f"{campaign.seeds:,} seeds, {campaign.events:,} events, {campaign.counts['elections']:,} elections, "
        f"{campaign.committed:,} committed records in {elapsed_s:,.1f} s: "
        f"{campaign.events / elapsed_s:,.0f} events/s, {campaign.seeds / elapsed_s:,.1f} seeds/s, "
        f"{campaign.events / (campaign.simulated_us / 1e6):,.0f} events per simulated second"
    )
    for outcome in sorted(campaign.broken, key=lambda each: each.seed):
        assert outcome.violation is not None
        typer.echo(f"seed {outcome.seed}: {outcome.violation.name}: {outcome.violation.sentence}", err=True)
        typer.echo(f"  strandline sim replay {outcome.seed} --profile {campaign.profile}", err=True)
        typer.echo(f"  strandline sim shrink {outcome.seed} --profile {campaign.profile}", err=True)
    for promise in campaign.missing:
        typer.echo(f"never happened, though the profile {campaign.profile!r} promises it: {promise}", err=True)


@app.command()
def replay(
    seed: Annotated[int, typer.Argument(help="The seed to run again.")],
    profile: Profile = "swarm",
    everything: Annotated[bool, typer.Option("--all", help="Every event of every core.")] = False,
    last: Annotated[
        Duration | None, duration_option("--last", help="Only this length of time before the end.", least="1us")
    ] = None,
    offset: Annotated[
        str | None, typer.Option("--offset", metavar="[PARTITION/]OFFSET", help="Show the history of this offset.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="DIR", help="Write the state events to this directory, as services do."),
    ] = None,
    export_format: Annotated[
        ExportFormat, typer.Option("--export-format", help="File format; parquet needs pyarrow.")
    ] = ExportFormat.JSONL,
) -> None:
    """Show one seed as lanes: ctl is the controller, n0 a node, n0* a node that leads, -- a fault."""
    from strandline_sim.runs.run import run_world
    from strandline_sim.runs.shape import PROFILES, draw_shape
    from strandline_sim.runs.trace import Trace
    from strandline_sim.world.world import World

    _check_profile(profile)
    trace = _exporting_trace(export, export_format, everything) if export else Trace(everything=everything)
    world = World(draw_shape(seed, PROFILES[profile]), recorder=trace)
    trace.watch(world)
    outcome = run_world(world)
    trace.close()
    shown_from_us = 0 if last is None else outcome.simulated_us - last.us
    for line in trace.lines:
        if line.at_us >= shown_from_us:
            typer.echo(str(line))
    violation = outcome.violation
    if violation is not None:
        typer.echo(f"!! {violation.name} at t={violation.at_us / 1000:.3f}: {violation.sentence}")
    _show_life(trace, offset, violation.offset if violation is not None else None)
    typer.echo(f"seed {seed}: {outcome.events:,} events, {outcome.committed:,} committed records")
    if violation is not None:
        raise typer.Exit(EXIT_REFUSED)


def _exporting_trace(root: Path, kind: ExportFormat, everything: bool) -> Trace:
    from strandline_sim.runs.trace import ExportingTrace

    return ExportingTrace(root, kind, everything=everything)


@app.command()
def shrink(
    seed: Annotated[int, typer.Argument(help="A seed that breaks something.")],
    profile: Profile = "swarm",
    budget: Annotated[
        Duration, duration_option("--time", help="Duration of each of the two parts.", least="1s")
    ] = read_duration("60s"),
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Output file; default: PROFILE-SEED.scenario.")
    ] = None,
) -> None:
    """Make a failing seed small, and write it as a scenario that fails alone (`strandline scenario run`)."""
    from strandline_sim.runs.shape import PROFILES, draw_shape
    from strandline_sim.runs.shrink import Shrinker

    _check_profile(profile)
    shrinker = Shrinker(draw_shape(seed, PROFILES[profile]), seconds=budget.s, clock=time.monotonic)
    if shrinker.first.violation is None:
        raise fail(CommandFailed(f"seed {seed} of {profile} breaks nothing: nothing to make small", EXIT_REFUSED))
    _say_run("broken", shrinker.first, shrinker.shape)
    shrunk = shrinker.shrink()
    _say_run(f"{shrunk.tries} tries", shrunk.outcome, shrunk.shape)
    reported = _tell(shrunk, budget.s)
    if reported is None:
        raise fail(CommandFailed("the rest cannot be written as a scenario; replay the seed", EXIT_REFUSED))
    file = out or Path(f"{profile}-{seed}.scenario")
    file.write_text(reported.text, encoding="utf-8")
    typer.echo(f"{file}: {reported.commands} commands that break {reported.invariant}")


def _tell(shrunk: Shrunk, seconds: float) -> Reported | None:
    from strandline_sim.runs.run import run_world
    from strandline_sim.runs.to_scenario import tell
    from strandline_sim.runs.trace import Deeds
    from strandline_sim.world.world import World

    until_s = time.monotonic() + seconds
    violation = shrunk.outcome.violation
    assert violation is not None
    for index in range(shrunk.shape.partitions):
        world = World(shrunk.shape)
        deeds = Deeds(world.tps[index])
        world.recorder = deeds
        run_world(world)
        reported = tell(shrunk.shape, deeds, violation, lambda: time.monotonic() < until_s)
        if reported is not None:
            return reported
    return None


def _say_run(how: str, outcome: Outcome, shape: Shape) -> None:
    violation = outcome.violation
    assert violation is not None
    clients = shape.producers + shape.consumers - len(shape.without)
    kinds = Counter(fault.kind for fault in shape.plan)
    faults = ", ".join(f"{times} {kind}" for kind, times in sorted(kinds.items())) or "no faults"
    typer.echo(
        f"{how}: {violation.name} at t={violation.at_us / 1000:.3f} ms, {outcome.events:,} events, "
        f"{shape.nodes} nodes, {clients} clients, {faults}"
    )


def _show_life(trace: Trace, asked: str | None, broken_offset: int | None) -> None:
    if asked is None and broken_offset is None:
        return
    partition, _, offset = (asked or f"0/{broken_offset}").rpartition("/")
    if not offset.isdigit() or not (partition or "0").isdigit():
        raise typer.BadParameter(f"--offset: {asked!r} is not [PARTITION/]OFFSET; write for example 0/324")
    life: list[TraceLine] = list(trace.life_of(int(partition or 0), int(offset)))
    typer.echo(f"life of offset {offset} of partition {partition or 0}:")
    for line in life:
        typer.echo(f"  {line}")


def _span(seeds: str) -> range:
    first, dots, end = seeds.partition("..")
    if not dots or not first.isdigit() or not end.isdigit() or int(first) >= int(end):
        raise typer.BadParameter(f"--seeds: {seeds!r} is not A..B with A below B; write for example 0..200")
    return range(int(first), int(end))


def _check_profile(profile: str) -> None:
    from strandline_sim.runs.shape import PROFILES

    if profile not in PROFILES:
        raise fail(CommandFailed(f"no profile {profile!r}; there are: {', '.join(PROFILES)}", EXIT_UNREACHABLE))
