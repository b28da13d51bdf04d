"""`odedm tune`: learning rate and constants by held-out training rows, as many tries with ODEDM as without."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from odedm.cli.console import SOME_FAILED, echo, echo_json, log, out
from odedm.cli.dotted_settings import Given, pairs, read_dotted
from odedm.cli.generated_options import (
    AsJson,
    Budget,
    DryRun,
    Log,
    Only,
    Retry,
    WithResults,
    experiment_from,
    opt,
    with_settings,
)
from odedm.cli.study_command import PLACE, chosen, do_jobs, log_what_is_missing, runner_from
from odedm.core.errors import UsageError
from odedm.core.files import write_text
from odedm.core.text import counted
from odedm.execute.backend import ExecutionConfig
from odedm.execute.planning import PlannedJobs
from odedm.memory.settings import DEFAULT_RHO, ODEDM
from odedm.studies.grid import Grid
from odedm.studies.run_store import StoreStatus
from odedm.studies.runner import StudyRunner
from odedm.studies.spec import Study, ValidationSplit
from odedm.studies.tuning import TrialResult, TuningStudy, differing, rates_at_an_end
from odedm.training.experiment import Experiment

RATES = "0.01,0.03,0.1,0.3"
SHARED = ("data", "method", "imbalance", "limit", "batch", "net")
"""Settings that both arms have in common."""
OF_MEMORY = ("capacity", "replay")
"""Those of the memory: how long-term rows are met is that of the arm with ODEDM."""
CHOICES = "tuned.toml"
"""The file of the choices, as a study."""


@with_settings((Experiment, SHARED), (ODEDM, OF_MEMORY), ExecutionConfig, (Experiment, PLACE), dotted=False)
def tune(
    given: Given,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE.toml",
            help="Many base methods at once: equal-tuning, or a study with runs without ODEDM and with it.",
            show_default="one, by the options below",
        ),
    ] = None,
    only: Only = None,
    lr: Annotated[str | None, opt("Learning rates.", "Choices", default=RATES, metavar="X,Y,…")] = None,
    set_: Annotated[
        list[str] | None, opt("A constant of the method, again and again.", "Choices", "--set", metavar="NAME=X,Y,…")
    ] = None,
    rho: Annotated[
        str | None, opt("Long-term shares, with ODEDM.", "Choices", default=str(DEFAULT_RHO), metavar="X,Y,…")
    ] = None,
    tries: Annotated[
        int | None,
        opt(
            "Combinations that each arm may try.",
            "Choices",
            default="as many as the arm with fewer has",
            min=1,
            metavar="N",
        ),
    ] = None,
    validation: Annotated[
        float | None,
        opt("Share of the training rows to hold out.", "Protocol", default="0.2, or the study's", metavar="X"),
    ] = None,
    first_tasks: Annotated[
        int | None, opt("Tasks to train on.", "Protocol", default="2, or the study's", min=1, metavar="N")
    ] = None,
    seeds: Annotated[
        int | None, opt("Seeds of each try.", "Protocol", default="3, or the study's", min=1, max=10000, metavar="N")
    ] = None,
    first_seed: Annotated[
        int | None,
        opt(
            "The first of them; not one of your runs'.", "Protocol", default="1000, or the study's", min=0, metavar="N"
        ),
    ] = None,
    dry_run: DryRun = False,
    budget: Budget = None,
    retry: Retry = False,
    with_results: WithResults = None,
    out_folder: Annotated[
        Path | None, opt("Folder for what was tried.", "How", "--out", default="runs/tune-…", metavar="FOLDER")
    ] = None,
    as_json: AsJson = False,
    logs: Log = None,
) -> None:
    """Choose learning rate and constants on held-out training rows, as many tries with ODEDM as without.

    A try is run on the first tasks without a share of their training rows, and these are what it is scored on. Test
    rows are never read. With a study every base method in it is tuned by itself, and all side by side.
    """
    dotted = [text for text in set_ or [] if text.startswith("execution.")]
    given |= read_dotted(dotted, "", ["execution"])
    constants = [text for text in set_ or [] if text not in dotted]
    _check_options(what, {**given, "lr": lr, "set": constants or None, "rho": rho}, only)
    study = (
        _one_method(given, RATES if lr is None else lr, constants, rho) if what is None else _study(what, only or [])
    )
    split = _split(study.tune or ValidationSplit(), validation, first_tasks, seeds, first_seed)
    tuning = TuningStudy.of(replace(study, tune=split), tries)
    folder = out_folder or Path("runs") / tuning.trials.name
    runner = runner_from(given, folder, budget, retry=retry, with_results=with_results)
    plans = tuning.experiments()
    planned = runner.plan(tuning.trials, plans, lenient=dry_run)
    if len(planned.jobs) < len(plans):
        raise UsageError(f"Two tries of the study '{study.name}' are the same run; give each once.")
    if dry_run:
        _echo_plan(tuning, runner.status(planned), echo, retry=retry)
        for name, reason in planned.missing.items():
            echo(f"'{name}' is not here, so what is done cannot be known. {reason}")
        return
    status = _try_all(tuning, runner, planned, logs or [], quiet=as_json)
    _conclude(tuning, *tuning.decided(planned.jobs, status.done, status.failed), runner.store.folder, as_json=as_json)
    if status.failed:
        raise typer.Exit(SOME_FAILED)


def _try_all(
    tuning: TuningStudy, runner: StudyRunner, planned: PlannedJobs, logs: Sequence[str], *, quiet: bool
) -> StoreStatus:
    """Run what is to be tried, and say what is missing; return where it then stands."""
    with runner.store.opened(tuning.trials):
        status = runner.status(planned)
        _echo_plan(tuning, status, log, retry=runner.retry)
        status, summary = do_jobs(status, planned, runner, logs, quiet=quiet)
    log_what_is_missing(status, summary, runner)
    return status


def _check_options(what: str | None, of_one: Given, only: Sequence[str] | None) -> None:
    """Refuse options of one base method beside a study, which says by itself what is tried."""
    for name in (*SHARED, *OF_MEMORY, "lr", "rho", "set"):
        if what is not None and of_one.get(name) is not None:
            raise UsageError(
                f"--{name} is for one base method; the study '{what}' says what is tried. Leave one of them out."
            )
    if what is None and only:
        raise UsageError("--only is for a study; one base method is named by --method and --data.")


def _one_method(given: Given, rates: str, constants: Sequence[str], rho: str | None) -> Study:
    """Return the tries of the base method that options name, as a study; they are taken out of what was given."""
    plan = experiment_from({name: given.pop(name) for name in (*SHARED, *OF_MEMORY) if name in given})
    same: dict[str, Any] = {name: (value,) for name in SHARED if (value := getattr(plan, name)) is not None}
    same["capacity"] = (plan.memory.capacity,)
    same |= {f"options.{plan.method}.{name}": values for name, values in _choices(rates, constants).items()}
    shares = _values("--rho", str(DEFAULT_RHO) if rho is None else rho)
    dual = {**same, "memory": ("odedm",), "rho": shares, "dac": ("paper",), "replay": (plan.memory.replay,)}
    name = f"tune-{Path(plan.data).name}-{plan.method}-{plan.memory.capacity}"
    return Study(name, (Grid({**same, "memory": ("native",)}), Grid(dual)))


def _study(what: str, only: Sequence[str]) -> Study:
    """Return the tries of many base methods, by name or from a file."""
    study = chosen(what)
    wishes = (*study.only, *only)
    if seeds := next((wish for wish in wishes if wish.startswith("seed=")), None):
        raise UsageError(
            f"'{seeds}' is for the runs of a study; tries have seeds of their own: give --seeds and --first-seed in "
            "its place, or in a file seeds of [tune]."
        )
    return replace(study, only=wishes)


def _split(
    split: ValidationSplit, validation: float | None, first_tasks: int | None, seeds: int | None, first: int | None
) -> ValidationSplit:
    """Return the protocol of the study or the usual one, with what was given on the command line."""
    start = split.seeds[0] if first is None else first
    number = len(split.seeds) if seeds is None else seeds
    drawn = split.seeds if first is None and seeds is None else tuple(range(start, start + number))
    return ValidationSplit(
        split.validation if validation is None else validation, first_tasks or split.first_tasks, drawn
    )


def _echo_plan(tuning: TuningStudy, status: StoreStatus, print_line: Callable[[str], None], *, retry: bool) -> None:
    """Say what is tried of whom, and how much of it is to do."""
    names = list(tuning.tries)
    numbers = {tuning.tries_of(base) for base in names}
    up_to = "up to " if len(numbers) > 1 else ""
    whom = names[0] if len(names) == 1 else f"{len(names)} base methods"
    tasks = tuning.split.first_tasks
    where = "all tasks" if tasks is None else f"the first {counted(tasks, 'task')}"
    failed = f"; {len(status.failed)} failed before." if status.failed else "."
    print_line(
        f"{whom}: {up_to}{counted(max(numbers), 'try')} without ODEDM and {up_to}{max(numbers)} with it, "
        f"{counted(len(tuning.split.seeds), 'seed')} each, on {where}; "
        f"{counted(len(status.to_start(retry=retry)), 'run')} to do of {status.total}{failed}"
    )


def _choices(rates: str, given: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    once = "give it once, with all its values"
    texts = pairs("--set", "constant", [f"lr={rates}", *given], "NAME=X,Y,…, e.g. {} alpha=0.1,0.5", once)
    return {name: _values("--lr" if name == "lr" else f"--set {name}", text) for name, text in texts.items()}


def _values(flag: str, text: str) -> tuple[Any, ...]:
    """Return values separated by commas: numbers, true or false, or names.

    >>> _values("--set", "0.1,2,true,l2")
    (0.1, 2, True, 'l2')
    """
    values: list[Any] = []
    for word in text.split(","):
        try:
            values.append(json.loads(word))
        except ValueError:
            if not word.strip():
                raise UsageError(f"{flag} takes values separated by commas; '{text}' was given.") from None
            values.append(word.strip())
    return tuple(values)


Decided = Mapping[str, Mapping[str, Sequence[tuple[TrialResult, Grid]]]]


def _conclude(
    tuning: TuningStudy, decided: Decided, undecided: Mapping[str, int], folder: Path, *, as_json: bool
) -> None:
    """Show and write the choice of every base method, and say which are missing."""
    for base, left in undecided.items():
        missing = f"{counted(left, 'run')} left" if left else "every try of one arm failed; --retry tries them again"
        log(f"No choice yet: {base}, {missing}.")
    if not decided:
        raise UsageError("Nothing is decided yet. The same command goes on from here.")
    plain, path = tuning.to_dict(decided, undecided), folder / CHOICES
    write_text(path.with_suffix(".json"), json.dumps(plain, indent=1, ensure_ascii=False) + "\n")
    write_text(path, tuning.as_study(decided).to_toml())
    if as_json:
        echo_json({**plain, "choices": str(path)})
        return
    if len(tuning.tries) == 1:
        _show_tries(next(iter(decided.values())))
    else:
        _show_choices(decided)
    log(f"The choices as a study: odedm study {path}")


def _show_tries(arms: Mapping[str, Sequence[tuple[TrialResult, Grid]]]) -> None:
    """Show every try of one base method, the best of each arm first."""
    tried = {arm: [result for result, _ in results] for arm, results in arms.items()}
    for arm, results in tried.items():
        table = Table(f"{arm} ODEDM", "validation ACC", "seeds", title_justify="left")
        for result in results:
            table.add_row(Text(result.words), _score(result), str(len(result.scores)))
        out.print(table)
    for sentence in rates_at_an_end(tried):
        log(sentence)


def _show_choices(decided: Decided) -> None:
    """Show the best of each arm of every base method."""
    table = Table("base method", "without ODEDM", "validation ACC", "with ODEDM", "validation ACC")
    for base, arms in decided.items():
        tried = [[result for result, _ in results] for results in arms.values()]
        cells = [words for results in tried for words in (differing(results), _score(results[0]))]
        table.add_row(*map(Text, [base, *cells]))
    out.print(table)


def _score(result: TrialResult) -> str:
    scores = [*result.scores.values()]
    spread = f" (sd {statistics.stdev(scores):.1f})" if len(scores) > 1 else ""
    return f"{result.mean:.1f} %{spread}"
