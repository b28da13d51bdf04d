"""`odedm tune`: learning rate and constants by held-out training rows, as many tries with ODEDM as without."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odedm.cli import console
from odedm.cli.board import Board
from odedm.cli.console import SOME_FAILED, err, say, tell, tell_json
from odedm.cli.dotted_settings import Given, pairs
from odedm.cli.generated_options import experiment_from, opt, with_settings
from odedm.cli.study_command import PLACE, runner_from
from odedm.cli.tuned_choices import conclude, conclude_one
from odedm.core.errors import UsageError
from odedm.core.files import no_empty_folders, writable_folder
from odedm.core.text import counted
from odedm.execute.backend import ExecutionConfig, get_ready
from odedm.execute.time_estimate import parse_time
from odedm.memory.settings import DEFAULT_RHO, ODEDM
from odedm.paper.equal_tuning import NAME, equal_tuning
from odedm.study.choice_files import CHOICES, STEM
from odedm.study.grid import PLAIN, Grid
from odedm.study.run_store import FAILURES, TOML, TRIALS, failures_in, scores_in
from odedm.study.study import Study, read, read_to_run
from odedm.study.study_runner import deadline
from odedm.training.experiment import Experiment
from odedm.training.hold_out import Selection

if TYPE_CHECKING:
    from odedm.execute.job import Job
    from odedm.study.contests import Contests

guarded = console.guarded("Trials that are over are kept, and the same command goes on from here.")

RATES = "0.01,0.03,0.1,0.3"
MOST_NAMED = 6
"""Combinations that were not drawn; there can be hundreds."""
SHARED = ("data", "method", "imbalance", "limit", "batch", "net")
"""Settings that both sides of a contest have in common."""
OF_MEMORY = ("capacity", "replay")
"""Those of the memory: the reading is that of the side with ODEDM."""


@guarded
@with_settings((Experiment, SHARED), (ODEDM, OF_MEMORY), ExecutionConfig, (Experiment, PLACE), dotted=False)
def tune(
    given: Given,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE.toml",
            help=f"Many hosts at once: {NAME}, or a study of your own with runs without ODEDM and with it.",
            show_default="one host, by the options below",
        ),
    ] = None,
    only: Annotated[
        list[str] | None, opt("Of a study only these, e.g. method=er,derpp.", "What", metavar="NAME=VALUE")
    ] = None,
    lr: Annotated[str | None, opt("Learning rates.", "Choices", default=RATES, metavar="X,Y,…")] = None,
    set_: Annotated[
        list[str] | None, opt("A constant of the method, again and again.", "Choices", "--set", metavar="NAME=X,Y,…")
    ] = None,
    rho: Annotated[
        str | None, opt("Long-term shares, with ODEDM.", "Choices", default=str(DEFAULT_RHO), metavar="X,Y,…")
    ] = None,
    tries: Annotated[
        int | None,
        opt("Combinations that each side may try.", "Choices", default="as many as the side with fewer has", min=1),
    ] = None,
    first_tasks: Annotated[
        int | None, opt("Tasks to train on.", "Protocol", default="2, or the study's", min=1)
    ] = None,
    share: Annotated[
        float | None, opt("Share of their training rows to hold out.", "Protocol", default="0.2, or the study's")
    ] = None,
    seeds: Annotated[
        int | None, opt("Seeds of each try.", "Protocol", default="3, or the study's", min=1, max=10000)
    ] = None,
    first_seed: Annotated[
        int | None,
        opt("The first of them; not one of your runs'.", "Protocol", default="1000, or the study's", min=0),
    ] = None,
    dry_run: Annotated[bool, opt("Say what would be tried, and try nothing.", "How", "--dry-run")] = False,
    budget: Annotated[str | None, opt("Start nothing that ends later, e.g. 30m.", "How", metavar="TIME")] = None,
    retry: Annotated[bool, opt("Try again what failed before.", "How", "--retry")] = False,
    with_results: Annotated[
        list[Path] | None,
        opt(
            f"Trials of other machines, which count as done; so do failures in {FAILURES} beside them.",
            "How",
            metavar="TRIALS.jsonl",
        ),
    ] = None,
    out_folder: Annotated[Path | None, opt("Folder for what was tried.", "How", "--out", default="runs/tune-…")] = None,
    as_json: Annotated[bool, opt("Print JSON, and nothing else, on stdout.", "How", "--json")] = False,
) -> None:
    """Choose learning rate and constants on held-out training rows, as many tries with ODEDM as without.

    The first tasks are trained without a share of their training rows, and these are what a try is scored on. Test
    rows are never read. With a study every host in it, method and data, is tuned by itself, and all side by side.
    """
    from odedm.study.contests import contests

    _refuse_what_does_not_go_together(what, {**given, "lr": lr, "set": set_, "rho": rho}, {"only": only})
    rates, seconds = RATES if lr is None else lr, None if budget is None else parse_time(budget)
    study = _one_host(given, rates, set_ or [], rho) if what is None else _study(what, only or [])
    select = _selection(study.select or Selection(), first_tasks, share, seeds, first_seed)
    if what is not None:
        study = replace(study, select=select)  # seeds that are among its own are refused
    runner = runner_from(given, out_folder or Path("runs") / study.name)
    number = len(study.experiments())  # what is too large is refused before it is taken apart
    if not dry_run:
        get_ready(number, runner.execution)
    rivals, planned = contests(study, select, runner, tries, lenient=dry_run)
    store, (known, lost) = runner.store, _of_others(with_results or [])
    name = STEM if what is None else rivals.tuned_name
    _check_free(store.folder, name)

    def outcomes() -> tuple[dict[str, float], dict[str, str]]:
        return {**known, **store.scores()}, {**lost, **store.failures()}

    scores, failed = outcomes()
    if dry_run:
        jobs, before = _to_do(rivals, scores, failed, retry=retry)
        if as_json:
            plan = {"hosts": list(rivals.hosts), "trials": rivals.trials, "left": len(jobs), "failed": len(before)}
            tell_json({**plan, "not_tried": rivals.not_tried, "missing": planned.missing})
            return
        _say_plan(rivals, len(jobs), len(before), tell)
        for data, why in planned.missing.items():
            tell(f"'{data}' is not here, so what is done cannot be known. {why}")
        return
    until = deadline(seconds)
    with no_empty_folders([store.folder]):
        writable_folder(store.folder)
        with store.lock():
            scores, failed = outcomes()  # nobody else adds to them now
            jobs, before = _to_do(rivals, scores, failed, retry=retry)
            _say_plan(rivals, len(jobs), len(before), say)
            with Board(err, len(jobs), quiet=as_json) as board:
                summary = runner.run(jobs, planned, [board], until=until)
            scores, failed = outcomes()
    if summary.left:
        say(f"The budget is spent: {counted(len(summary.left), 'trial')} left. The same command goes on.")
    sentences = [failed[job.key] for job in rivals.to_do(scores) if job.key in failed]
    if sentences:
        hint = "" if retry else " Try them again with --retry."
        say(
            f"{len(sentences)} of {rivals.trials} trials failed; {FAILURES} says which.{hint} The first: {sentences[0]}"
        )
    if what is None:
        conclude_one(rivals, scores, failed, store.folder, as_json=as_json)
    else:
        conclude(rivals, scores, failed, store.folder, as_json=as_json)
    if sentences:
        raise typer.Exit(SOME_FAILED)


def _to_do(
    rivals: Contests, scores: Mapping[str, float], failed: Mapping[str, str], *, retry: bool
) -> tuple[list[Job], list[Job]]:
    """The trials to start now, and those that failed before and have no score since."""
    missing = rivals.to_do(scores)
    before = [job for job in missing if job.key in failed]
    return missing if retry else [job for job in missing if job.key not in failed], before


def _refuse_what_does_not_go_together(what: str | None, of_one: Given, of_study: Given) -> None:
    """A study says by itself what is tried; one host is all that the other options name."""
    flags = {"set": "--set", **{name: f"--{name.replace('_', '-')}" for name in (*SHARED, *OF_MEMORY, "lr", "rho")}}
    for name, flag in flags.items():
        if what is not None and of_one.get(name) is not None:
            raise UsageError(f"{flag} is for one host; the study '{what}' says what is tried. Leave one of them out.")
    if what is None and of_study["only"]:
        raise UsageError("--only is for a study; one host is named by --method and --data.")


def _one_host(given: Given, rates: str, constants: Sequence[str], rho: str | None) -> Study:
    """The tries of the host that options name, as a study; they are taken out of what was given."""
    plan = experiment_from({name: given.pop(name) for name in (*SHARED, *OF_MEMORY) if name in given})
    same: dict[str, Any] = {name: (own,) for name in SHARED if (own := getattr(plan, name)) is not None}
    same["capacity"] = (plan.memory.capacity,)
    options = {plan.method: _choices(rates, constants)}
    shares = _values("--rho", str(DEFAULT_RHO) if rho is None else rho)
    dual = {**same, "memory": ("odedm",), "rho": shares, "dac": ("paper",), "replay": (plan.memory.replay,)}
    name = f"tune-{Path(plan.data).name}-{plan.method}-{plan.memory.capacity}"
    return Study(name, (Grid({**same, "memory": (PLAIN,)}, options), Grid(dual, options)))


def _study(what: str, only: Sequence[str]) -> Study:
    """The tries of many hosts, by name or from a file."""
    if what == NAME:
        plan = equal_tuning()
    elif what.endswith(".toml") or Path(what).is_file():
        plan = read_to_run(Path(what))
    else:
        raise UsageError(f"'{what}' is no study to tune: give {NAME}, or a TOML file with the tries as grids.")
    wishes = (*plan.only, *only)
    if seeds := next((wish for wish in wishes if wish.startswith("seed=")), None):
        raise UsageError(
            f"'{seeds}' is for the runs of a study; tries have seeds of their own: give --seeds and --first-seed in "
            "its place, or in a file seeds of [select]."
        )
    return replace(plan, only=wishes)


def _selection(
    own: Selection, tasks: int | None, share: float | None, seeds: int | None, first: int | None
) -> Selection:
    """The protocol of the study or the usual one, with what was given on the command line."""
    start = own.seeds[0] if first is None else first
    number = len(own.seeds) if seeds is None else seeds
    drawn = own.seeds if first is None and seeds is None else tuple(range(start, start + number))
    return Selection(tasks or own.tasks, own.share if share is None else share, drawn)


def _of_others(paths: Sequence[Path]) -> tuple[dict[str, float], dict[str, str]]:
    """The trials of other machines: scores, and what those said that failed."""
    scores: dict[str, float] = {}
    failed: dict[str, str] = {}
    for path in paths:
        if not path.is_file():
            raise UsageError(f"--with-results takes the {TRIALS} of another folder; there is no file '{path}'.")
        given = path.resolve()  # the user named it, so it may be a link; what lies beside it may not
        own, lost = scores_in(given), {**failures_in(path.with_name(FAILURES)), **failures_in(given)}
        if not own and not lost:
            raise UsageError(
                f"'{path}' has no trial with a score. --with-results takes the {TRIALS} of another folder."
            )
        scores, failed = {**scores, **own}, {**failed, **lost}
    return scores, failed


def _check_free(folder: Path, name: str) -> None:
    """Refuse a folder that is a study's, or has the choices of other tries; `name` is what ours are called."""
    if (folder / TOML).is_file():
        raise UsageError(f"'{folder}' holds the study '{read(folder / TOML).name}', and no tries. Give another --out.")
    if (folder / CHOICES).is_file() and (owner := read(folder / CHOICES).name) != name:
        raise UsageError(f"'{folder}' holds the choices '{owner}', not '{name}'. Give another --out.")


def _say_plan(rivals: Contests, left: int, failed: int, speak: Callable[[str], None]) -> None:
    """What is tried of whom, and how much of it is to do."""
    numbers, select, names = {each.tries for each in rivals.hosts.values()}, rivals.select, list(rivals.hosts)
    most = max(numbers)
    up_to = "up to " if len(numbers) > 1 else ""
    whom = names[0] if len(names) == 1 else f"{len(names)} hosts"
    seeds, first = counted(len(select.seeds), "seed"), counted(select.tasks, "task")
    speak(
        f"{whom}: {up_to}{counted(most, 'try')} without ODEDM and {up_to}{most} with it, {seeds} each, on the first "
        f"{first}; {counted(left, 'trial')} to do of {rivals.trials}"
        + (f"; {failed} failed before." if failed else ".")
    )
    if rivals.not_tried:
        speak(_drawn(rivals))


def _drawn(rivals: Contests) -> str:
    """That not all combinations are tried, and which are not; of several hosts those of the first."""
    host, sides = next(iter(rivals.not_tried.items()))
    words = []
    for side, left in sides.items():
        drawn, further = rivals.hosts[host].tries, len(left) - MOST_NAMED
        named = "; ".join(left[:MOST_NAMED]) + (f"; and {further} more" if further > 0 else "")
        number = f"{drawn} of {drawn + len(left)} combinations"
        words.append(f"{side.capitalize()} ODEDM {number} drawn; not tried: {named}.")
    hosts = len(rivals.not_tried)
    return f"Of {hosts} hosts some are drawn. {host}: {' '.join(words)}" if hosts > 1 else " ".join(words)


def _choices(rates: str, given: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    once = "give it once, with all its values"
    found = pairs("--set", "constant", [f"lr={rates}", *given], "NAME=X,Y,…, e.g. {} alpha=0.1,0.5", once)
    return {name: _values("--lr" if name == "lr" else f"--set {name}", text) for name, text in found.items()}


def _values(flag: str, text: str) -> tuple[Any, ...]:
    """Values separated by commas: numbers, true or false, or names.

    >>> _values("--set", "0.1,2,true,l2")
    (0.1, 2, True, 'l2')
    """
    found = []
    for word in text.split(","):
        try:
            found.append(json.loads(word))
        except ValueError:
            if not word.strip():
                raise UsageError(f"{flag} takes values separated by commas; '{text}' was given.") from None
            found.append(word.strip())
    return tuple(found)
