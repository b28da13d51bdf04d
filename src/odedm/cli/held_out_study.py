"""`odedm study --held-out`: a study's configurations compared on held-out training rows, without the test set."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.table import Table
from rich.text import Text

from odedm.cli.board import watched
from odedm.cli.console import SOME_FAILED, out, say, tell
from odedm.core.files import writable_folder, write_text
from odedm.report.held_out_table import HEAD, held_out_csv, held_out_markdown, held_out_rows
from odedm.study.held_out_trials import Scored, held_out_trials, scored
from odedm.study.study import Study
from odedm.study.study_runner import StudyRunner, deadline

TABLE, SCORES = "held-out.md", "held-out.csv"


def score_held_out(
    plan: Study, runner: StudyRunner, share: float, *, dry_run: bool, seconds: float | None, retry: bool
) -> None:
    """Do the trials that are not done, and show what every configuration scored; or say what would be done."""
    store, planned = runner.store, runner.plan(plan, lenient=dry_run)
    trials = held_out_trials(planned, share)
    if dry_run:
        number, done = len(planned.jobs), len({trial.key for trial in trials} & {*store.scores()})
        tell(f"Study '{plan.name}' on held-out rows in '{store.folder}': {number} trials, {number - done} to do")
        for name, why in planned.missing.items():
            tell(f"'{name}' is not here, so what is done cannot be known. {why}")
        return
    store.check(plan)
    writable_folder(store.folder)
    with store.lock():
        store.init(plan)
        before, failures = store.scores(), store.failures()
        todo = [each for each in trials if each.key not in before and (retry or each.key not in failures)]
        say(f"Study '{plan.name}': {len(trials)} trials on {share:.0%} of the training rows, {len(todo)} to do.")
        with watched(len(trials), len(trials) - len(todo), (None, None)) as (_, observers):
            summary = runner.run(todo, planned, observers, until=deadline(seconds))
        scores, failures = store.scores(), store.failures()
        found = scored(trials, scores)
        if found:
            write_text(store.folder / TABLE, held_out_markdown(found))
            write_text(store.folder / SCORES, held_out_csv(found))
            _show(found)
        failed = [failures[trial.key] for trial in trials if trial.key not in scores and trial.key in failures]
    if summary.left:
        say(f"The budget is spent: {len(summary.left)} trials left. The same command goes on.")
    if failed:
        hint = "" if retry else " Run them again with --retry."
        say(f"{len(failed)} of {len(trials)} trials failed; failures.jsonl says which.{hint} The first: {failed[0]}")
        raise typer.Exit(SOME_FAILED)


def _show(found: Sequence[Scored]) -> None:
    """The table in the terminal; names wrap, numbers do not."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for place, head in enumerate(HEAD):
        table.add_column(head, justify="right" if place else "left", no_wrap=bool(place))
    for words in held_out_rows(found):
        table.add_row(*map(Text, words))
    out.print(table)
