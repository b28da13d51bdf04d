"""One rule for "is it done?": whether a finished run is the one that a job asks for."""

from __future__ import annotations

from dataclasses import replace

from odedm.core.errors import UsageError
from odedm.core.plain_data import differences
from odedm.execute.job import Job
from odedm.results.folder import FILE, load_runs
from odedm.results.result import Result
from odedm.training.experiment import Experiment, content_key

WEIGHTS = "weights"
"""What a result calls the file that its network began with, beside code from outside."""


def key_of_result(result: Result, *, by_code: bool = True) -> str:
    """Return the content hash of a finished run, from what its result says.

    Without `by_code` it is the same whatever code from outside made the run.
    """
    marks = result.code_hashes() if by_code else None
    return content_key(result.experiment, result.provenance.get("data_checksum"), marks)


def changed_code(job: Job, result: Result) -> str | None:
    """Return the first setting whose code from outside is other code now than the one that made a result.

    So are other pretrained weights. What is not known of the code that made it, or of weights here, counts as the same.
    """
    marks, made_by = job.experiment.code_hashes(), result.code_hashes()
    known = {WEIGHTS: made_by.get(WEIGHTS)} | marks
    return next((setting for setting, mark in made_by.items() if mark != known.get(setting)), None)


def why_another(job: Job, result: Result) -> str | None:
    """Return why a result is not that of a job, as the end of a sentence about it; None where it is."""
    if key_of_result(result, by_code=False) != job.content:
        plans = job.experiment, Experiment.from_dict(result.experiment)
        asked, made = (replace(plan, cuda_graph=True, threads=1).describe() for plan in plans)  # these change nothing
        others, made_on = differences(asked, made), result.provenance.get("data_checksum")
        if made_on != job.checksum:
            others.append((f"data of the checksum {str(made_on)[:64]}", str(job.checksum)))
        return f"is another run: {'; '.join(f'{value} there, {wanted} here' for value, wanted in others[:5])}."
    setting = changed_code(job, result)
    if setting is None:
        return None
    if setting == WEIGHTS:
        return f"was made with other weights: '{job.experiment.net_options[WEIGHTS]}' has changed since."
    part, plugin = setting.removeprefix("memory."), job.experiment.plugins().get(setting)
    if plugin is None:
        return f"was made by code from outside in the place of the {part} that odedm has by this name."
    name, entry = plugin
    place = (entry.target or entry.plugin or name).partition(":")[0]
    return f"was made by another version of the {part} '{name}': {place} is other code here."


def finished(job: Job) -> Result | None:
    """Return the result in a job's folder if it is that of this job on its data; None where there is none.

    Another experiment's result, or one that is not as it was written, is an error that says so: it is in the way.
    """
    if job.folder.is_symlink() or not (job.folder / FILE).is_file():
        return None
    runs, faults = load_runs([job.folder])
    advice = "Give another --out, which keeps both, or --overwrite to replace it."
    try:
        fault = faults.get(job.folder) or why_another(job, runs[0].result)
    except UsageError as error:  # of a result that has settings which no experiment has
        fault = f"cannot be read: {error}"
    if fault is None:
        return runs[0].result
    raise UsageError(f"{fault} {advice}" if faults else f"What '{job.folder}' holds {fault} {advice}")
