"""From experiments to results: which runs are finished, which go on, which start; and the table in the end."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from odedm.checkpoint.manifest import inspect, working_folder
from odedm.cli.board import Board
from odedm.cli.console import err, out
from odedm.core.errors import UsageError
from odedm.core.files import writable_folder
from odedm.execute.attempt import Job, discard_leftover
from odedm.execute.job import Wishes
from odedm.execute.lanes import run_jobs
from odedm.execute.observers import Together, listeners
from odedm.results.folder import finished
from odedm.results.result import EVIDENCE_FILE, FILE, Result
from odedm.training.experiment import Experiment

GOES_ON = "Finished runs are kept; the same command goes on where the others stopped."
WORK = re.compile(r"\.(.+)\.work")


def plan_jobs(plans: Sequence[Experiment], folder: Path) -> list[Job]:
    """Each plan with every default filled in, so that one experiment has one folder however it was spelled."""
    from odedm.training.resolve import load_data, resolve

    data = {name: load_data(name) for name in {plan.data for plan in plans}}
    resolved = [resolve(plan, data[plan.data]) for plan in plans]
    return [Job(plan, folder / plan.slug() / f"seed-{plan.seed}") for plan in resolved]


def unfinished_jobs(paths: Sequence[Path]) -> list[Job]:
    """The runs at or below `paths` that have checkpoints, each as its own checkpoint describes it."""
    found: dict[Path, None] = {}
    for path in paths:
        own = WORK.fullmatch(path.name)
        run = path.with_name(own[1]) if own else path
        if (run / FILE).is_file():
            raise UsageError(
                f"'{run}' is finished. Look at it with `odedm show`; to train it again, or to go on with that, repeat "
                "its command with --overwrite."
            )
        if own or (path.name and working_folder(path).is_dir()):
            found[run] = None
        elif path.is_dir():
            found |= dict.fromkeys(_unfinished_below(path))
        else:
            raise UsageError(f"There is no '{path}'. Give the folder of an unfinished run, or one that holds some.")
    if not found:
        places = ", ".join(f"'{path}'" for path in paths)
        raise UsageError(f"Nothing is unfinished at or below {places}. Start a run with `odedm run`.")
    return [Job(Experiment.from_dict(inspect(working_folder(run))["configuration"]), run) for run in found]


def _unfinished_below(path: Path) -> Iterator[Path]:
    for folder, below, _ in os.walk(path):
        runs = [Path(folder, own[1]) for each in sorted(below) if (own := WORK.fullmatch(each))]
        yield from (run for run in runs if not (run / FILE).is_file())
        below[:] = [each for each in below if not each.startswith(".")]


def launch(
    jobs: Sequence[Job],
    *,
    lanes: int | None,
    wishes: Wishes,
    quiet: bool = False,
    writable: Path | None = None,
    events: Path | None = None,
    tensorboard: Path | None = None,
) -> list[Result]:
    """The results of all jobs: those that are finished are read, the others run.

    That a folder is taken or closed is found out before the first minute is spent. What happens goes to `events` as
    JSON lines, and to `tensorboard`, where they are given.
    """
    from odedm.results.folder import check_free

    done = {} if wishes.fresh or wishes.overwrite else _finished(jobs)
    todo = [job for number, job in enumerate(jobs) if number not in done]
    for job in todo:
        check_free(job.folder, overwrite=wishes.overwrite)
    if done:
        what = f"'{jobs[0].folder}' is" if len(jobs) == 1 else f"{len(done)} of {len(jobs)} runs are"
        _say(f"{what} finished already, and not trained again; --overwrite would.")
        _say_unlooked([(jobs[number].folder, result) for number, result in done.items()], wishes)
    names = [f"{job.folder.parent.name}/{job.folder.name}" for job in todo]
    with ExitStack() as stack:
        heard = listeners(names, events, tensorboard) if todo else []
        for each in heard:
            stack.callback(each.close)
        if writable is not None and todo:
            writable_folder(writable)
        board = stack.enter_context(Board(todo, err, quiet=quiet))
        made = iter(
            run_jobs(
                todo,
                Together(board, *heard),
                lanes=lanes,
                overwrite=wishes.overwrite,
                fresh=wishes.fresh,
                schedule=wishes.schedule,
                looks=wishes.looks,
                say=_say,
            )
        )
    return [done[number] if number in done else next(made) for number in range(len(jobs))]


def _say_unlooked(done: Sequence[tuple[Path, Result]], wishes: Wishes) -> None:
    """Say which finished runs lack what is asked for: it cannot be had without training them again."""
    if wishes.looks is None:
        return
    asked = {
        "evidence": [folder for folder, _ in done if wishes.looks.evidence and not (folder / EVIDENCE_FILE).is_file()],
        "any-time accuracy": [folder for folder, result in done if wishes.looks.anytime and result.anytime is None],
    }
    for what, lacking in asked.items():
        if lacking:
            which = f"'{lacking[0]}' was" if len(lacking) == 1 else f"{len(lacking)} of them were"
            _say(f"{which} finished without {what}. --overwrite would train again, and make it.")


def _finished(jobs: Sequence[Job]) -> dict[int, Result]:
    """Results that are there already, by the number of their job; what their processes left is cleared up."""
    from odedm.training.resolve import load_data

    there = {number: job for number, job in enumerate(jobs) if (job.folder / FILE).is_file()}
    checksums = {name: load_data(name).checksum for name in {job.experiment.data for job in there.values()}}
    found = {}
    for number, job in there.items():
        result = finished(job.experiment.reported(()), checksums[job.experiment.data], job.folder)
        if result is not None:
            found[number] = result
            discard_leftover(job.folder)
    return found


def _say(line: str) -> None:
    printable = "".join(each if each.isprintable() else "�" for each in line)
    err.print(printable, markup=False, highlight=False, soft_wrap=True)


def print_table(folders: Sequence[Path], form: str = "rich") -> None:
    """The runs side by side, on stdout."""
    from odedm.report import summary, tables
    from odedm.report.latex import to_latex
    from odedm.report.load import load
    from odedm.report.share_choice import caveats

    table = summary.summarise(load(folders))
    if form != "rich":
        sys.stdout.write({"markdown": tables.to_markdown, "csv": tables.to_csv, "latex": to_latex}[form](table))
        return
    out.print(tables.to_rich(table))
    for sentence in [*summary.verdicts(table), *caveats(table)] if len(table.rows) > 1 else ():
        out.print(sentence, markup=False, highlight=False)
