"""What `verify` finds in a spoiled run, what `diff` says of two, and how the commands end."""

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from plausible import check_run
from safetensors.numpy import load_file, save_file
from sampling import EVERYTHING
from typer.testing import CliRunner

from odedm import ODEDM, Native, Prototypes, Reservoir, UsageError, train
from odedm.cli.app import app
from odedm.core.checksums import write_checksums
from odedm.report.load import load
from odedm.results.comparison import STREAM, compare
from odedm.results.metrics import compute_metrics
from odedm.results.result import Result
from odedm.results.verification import is_valid, verify
from odedm.training.experiment import Experiment, settings_of


@pytest.fixture(scope="module")
def outcomes():
    base = {"data": "blobs", "batch": 16, "device": "cpu"}
    return {
        "odedm": train(memory=ODEDM(30, k=2), **base),
        "reservoir": train(memory=Reservoir(30), **base),
        "again": train(memory=Reservoir(30), **base),
        "seed": train(memory=Reservoir(30), seed=1, **base),
        "order": train(memory=Reservoir(30), class_order="seed", **base),
        "noise": train(memory=ODEDM(30, k=2), noise=0.2, **base),
        "blur": train(memory=ODEDM(30, k=2, rows_per_prototype=1), blur=0.3, **base),
        "mixup": train(memory=ODEDM(30, k=2, selection=Prototypes(mixup=True)), **base),
        "herded": train(memory=Native(30, "herded"), method="icarl", **base),
        "images": train("shapes", memory=ODEDM(30, k=2, candidates=4), batch=16, device="cpu"),
        "tiny": train(memory=Reservoir(0), **base),
    }


@pytest.fixture
def run(outcomes, tmp_path):
    def make(name="odedm"):
        folder = outcomes[name].save(tmp_path / name, keep_model=False)
        write_checksums(folder)
        return folder

    return make


def broken(folder):
    return {check.name: check.detail for check in verify(folder) if check.valid is False}


NAMES = ["odedm", "reservoir", "seed", "order", "noise", "blur", "mixup", "herded", "images", "tiny"]


@pytest.mark.parametrize("name", NAMES)
def test_trained_runs_are_sound_and_plausible(run, name):
    check_run(run(name))


IMPLAUSIBLE = {
    "rows beyond the capacity": lambda p: p["class_counts"][0]["short"].__setitem__(0, 500),
    "a class before its time": lambda p: p["class_counts"][0]["short"].reverse(),
    "long-term rows lost": lambda p: p["class_counts"][2].update(long=[0] * 10),
    "more than the quota": lambda p: p["experiment"]["memory"].update(k=1),
    "no share of test rows": lambda p: p["task_il"][2].__setitem__(1, 99.123),
    "Class-IL above Task-IL": lambda p: p["class_il"][2].__setitem__(1, 100.0),
}


@pytest.mark.parametrize("kind", IMPLAUSIBLE)
def test_an_implausible_run_is_noticed(run, kind):
    folder = run()
    plain = json.loads((folder / "result.json").read_text())
    IMPLAUSIBLE[kind](plain)
    plain |= compute_metrics(plain["class_il"], plain["task_il"])
    (folder / "result.json").write_text(json.dumps(plain))
    write_checksums(folder)
    assert is_valid(verify(folder)), "files alone do not tell"
    with pytest.raises(AssertionError):
        check_run(folder)


def change(**entries):
    def spoil(folder):
        path = folder / "result.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))

    return spoil


def edit(function):
    def spoil(folder):
        path = folder / "result.json"
        plain = json.loads(path.read_text())
        function(plain)
        path.write_text(json.dumps(plain))

    return spoil


def memory(function):
    def spoil(folder):
        columns = load_file(folder / "memory.safetensors")
        save_file(function(columns) or columns, folder / "memory.safetensors")

    return spoil


def cell(matrix, value):
    return edit(lambda plain: plain[matrix][2].__setitem__(1, value))


def first(name, value):
    return memory(lambda columns: columns[name].__setitem__(0, value))


SPOILED = {
    "a better mean": (change(acc_last=99.9), "metrics", "acc_last is 99.9, but the matrices give"),
    "less forgetting": (change(forgetting=-1.0), "metrics", "forgetting is -1"),
    "a rate of another": (edit(lambda p: p["forgetting_rate"].reverse()), "metrics", "forgetting_rate is"),
    "a mean that is a word": (change(acc_mean="good"), "result", "a summary number is not finite"),
    "a matrix without a row": (edit(lambda p: p["class_il"].pop(0)), "result", "not a triangle"),
    "a matrix of words": (cell("class_il", "x"), "result", "not a triangle"),
    "more than everything": (cell("task_il", 120.0), "metrics", "not between 0 and 100 per cent"),
    "tasks that never ran": (edit(lambda p: p["experiment"].update(tasks=9)), "metrics", "9 were to be run"),
    "no counts": (change(class_counts=[]), "memory", "not the class counts"),
    "counts that are a number": (change(class_counts=3), "result", "counts by part and class"),
    "an experiment that is none": (change(experiment=None), "result", "not an object"),
    "another schema": (change(schema="odedm.result/9"), "result", "has the format"),
    "an entry too many": (change(extra=1), "result", "no result has: extra"),
    "half a result": (lambda f: os.truncate(f / "result.json", 300), "result", "cannot be read"),
    "a result of gigabytes": (lambda f: os.truncate(f / "result.json", 1 << 33), "result", "more than 67108864 bytes"),
    "no memory": (lambda f: (f / "memory.safetensors").unlink(), "memory", "is missing"),
    "half a memory": (lambda f: os.truncate(f / "memory.safetensors", 300), "memory", "cannot be read"),
    "a memory without labels": (memory(lambda c: {k: v for k, v in c.items() if k != "label"}), "memory", "lacks"),
    "columns of other lengths": (memory(lambda c: {**c, "label": c["label"][1:]}), "memory", "of one length"),
    "a label beyond the classes": (first("label", 10), "memory", "beyond the 10 classes"),
    "a label below them": (first("label", -1), "memory", "beyond the 10 classes"),
    "a short-term row called long-term": (first("prototype", 0), "memory", "not the class counts"),
    "fractions as labels": (memory(lambda c: {**c, "label": c["label"].astype(np.float32)}), "memory", "not integers"),
}  # fmt: skip


@pytest.mark.parametrize("kind", SPOILED)
def test_every_spoiled_run_is_broken_with_the_reason(run, kind):
    spoil, name, sentence = SPOILED[kind]
    folder = run()
    spoil(folder)
    faults = broken(folder)
    assert "files" in faults, "the checksums see any change"
    (folder / "checksums.json").unlink()
    faults = broken(folder)
    assert sentence in faults[name], faults
    if all(path.stat().st_size < 1 << 20 for path in folder.iterdir()):
        write_checksums(folder)  # by someone who knows how
        assert name in broken(folder)
    done = cli("results", "pack", folder, "--out", folder.parent / "packed.jsonl.gz")
    assert done.exit_code != 0, "what is broken is not packed"
    assert not (folder.parent / "packed.jsonl.gz").exists()


def test_checksums_see_what_nothing_else_could(run):
    folder = run()
    path = folder / "result.json"
    path.write_text(path.read_text().replace('"train": ', '"train": 1'))
    assert broken(folder) == {"files": broken(folder)["files"]}
    for text in ("", "[]", "{", '{"schema": "odedm.files/1", "files": {"../x": {"bytes": 1, "blake2b": ""}}}',
                 '{"schema": "odedm.files/1", "files": {}}'):  # fmt: skip
        (folder / "checksums.json").write_text(text)
        assert "files" in broken(folder)


def test_links_of_a_store_of_large_files_are_read_everywhere_or_nowhere(run, tmp_path):
    """Such as git-annex and DVC leave in the place of files; `report` reads what `verify` calls sound."""
    folder, store = run(), tmp_path / "store"
    store.mkdir()
    for path in list(folder.iterdir()):
        path.rename(store / path.name)
        path.symlink_to(store / path.name)
    assert broken(folder) == {}
    assert len(load([folder])) == 1
    packed = tmp_path / "store.jsonl.gz"
    assert cli("runs", "pack", folder, "--out", packed).exit_code == 0
    (tmp_path / "link.jsonl.gz").symlink_to(packed)
    assert len(load([tmp_path / "link.jsonl.gz"])) == 1
    for target in ("result.json", "nowhere", "/dev/zero", str(tmp_path)):
        (folder / "result.json").unlink()
        (folder / "result.json").symlink_to(target)
        assert {"files", "result"} <= set(broken(folder))
        with pytest.raises(UsageError):
            load([folder])


def cli(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_run_without_its_checksums_is_broken(run):
    folder = run()
    (folder / "checksums.json").unlink()
    done = cli("runs", "verify", folder)
    assert done.exit_code == 1
    assert "BROKEN  files: checksums.json is missing" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"'{folder}' is BROKEN")


def test_the_command_says_a_line_for_each_check_and_a_verdict(run, tmp_path):
    folder = run()
    done = cli("runs", "verify", folder)
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 5
    assert done.stdout.splitlines()[-1] == f"'{folder}' is sound."
    other = run("reservoir")
    change(acc_last=99.9)(other)
    done = cli("runs", "verify", tmp_path)
    assert done.exit_code == 1
    assert "BROKEN  metrics: acc_last is 99.9" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"'{other}' is BROKEN")
    done = cli("runs", "verify", "--json", tmp_path)
    assert done.exit_code == 1
    assert [check["sound"] for check in json.loads(done.stdout)] == [True, False]
    assert cli("runs", "verify", tmp_path / "nowhere").exit_code == 2


def test_a_hostile_result_gives_no_traceback_and_no_escapes(run):
    folder = run()
    for entry in ("experiment", "class_il", "task_il", "acc", "class_counts", "provenance", "seconds", "acc_last"):
        values = (None, "\x1b[31mred", [[1]], 1e308, 3, [], {}, {"a": {"b": None}}, True)
        for value in values if EVERYTHING else values[:4]:
            spoiled = folder.with_name("spoiled")
            shutil.rmtree(spoiled, ignore_errors=True)
            shutil.copytree(folder, spoiled)
            change(**{entry: value})(spoiled)
            for command in (
                ("runs", "verify", spoiled),
                ("runs", "diff", folder, spoiled),
                ("runs", "diff", spoiled, spoiled),
            ):
                done = cli(*command)
                assert done.exception is None or isinstance(done.exception, SystemExit), (command, entry, value)
                assert "\x1b" not in done.stdout


def test_the_same_run_twice_has_the_same_outcome(outcomes):
    difference = compare(outcomes["reservoir"].result, outcomes["again"].result)
    assert (difference.configuration, difference.origin, difference.outcome, difference.obstacles) == ([], [], [], [])
    assert difference.verdict().startswith("The same outcome")


def clean(result, **provenance):
    return replace(result, provenance={**result.provenance, "commit": "abc", **provenance})


def test_with_and_without_is_comparable(outcomes):
    difference = compare(clean(outcomes["reservoir"].result), clean(outcomes["odedm"].result))
    names = [name for name, _, _ in difference.configuration]
    assert {"memory.name", "memory.distance", "memory.replay", "memory.gamma"} <= set(names)
    assert ("memory.k", "—", "2") in difference.configuration
    assert difference.obstacles == []
    assert difference.verdict().startswith("Comparable: the same data, stream and evaluation. But")
    assert any(name == "ACC_T" for name, _, _ in difference.outcome)
    assert any(second.endswith("other accuracies") for _, _, second in difference.outcome)


def test_what_makes_two_runs_incomparable_is_said(outcomes):
    base = clean(outcomes["reservoir"].result)
    for other, reason in (
        (clean(outcomes["images"].result), "other data (blobs and shapes, by their checksums)"),
        (clean(outcomes["order"].result), "another stream (by order of classes)"),
        (clean(outcomes["noise"].result), "another stream (by noise)"),
        (
            replace(base, experiment={**base.experiment, "eval_classes": "all"}),
            "evaluated among other classes (seen and all)",
        ),
        (clean(base, data_checksum="beef"), "other data"),
        (replace(base, provenance={}), "a data checksum is missing"),
    ):
        difference = compare(base, other)
        assert difference.verdict().startswith("Not comparable: ")
        assert reason in difference.verdict()


def test_every_setting_of_the_stream_makes_two_runs_incomparable():
    """Data and order of classes are compared by what came of them; training views are the method's."""
    settings = {name for name, setting in settings_of(Experiment).items() if setting.panel == "Stream"}
    assert {*STREAM} == settings - {"data", "class_order", "transform"}


def test_what_else_could_explain_a_difference_is_said(outcomes):
    base = clean(outcomes["reservoir"].result)
    for other, reason in (
        (clean(outcomes["seed"].result), "not paired"),
        (clean(base, precision="bf16"), "and bf16, which may change"),
        (clean(base, device="another chip"), "device:"),
        (clean(base, torch="1.0"), "other code (torch)"),
        (clean(base, commit="def+"), "made by code with uncommitted changes"),
    ):
        difference = compare(base, other)
        assert difference.obstacles == []
        assert any(reason in caution for caution in difference.cautions), difference.cautions


def test_numbers_have_as_many_digits_as_tell_them_apart(outcomes):
    base = outcomes["reservoir"].result
    rates = {
        rate: replace(base, experiment={**base.experiment, "options": {"lr": rate}}) for rate in (0.1 + 0.2, 0.3, 2 / 3)
    }
    noisy, plain, other = rates.values()
    assert compare(noisy, other).configuration == [("options.lr", "0.3", "0.666667")]
    assert compare(noisy, plain).configuration == [("options.lr", "0.30000000000000004", "0.3")]
    nearly = [*base.class_il[:-1], [base.class_il[-1][0] + 1e-8, *base.class_il[-1][1:]]]
    (row,) = compare(base, replace(base, class_il=nearly)).outcome
    assert row == ("class_il", "5 tasks", "5 tasks, other accuracies")
    for last, shown in ((188 / 3, "62.6667 (+25.6667)"), (37.00004, "37.00004 (+4e-05)")):
        outcome = compare(replace(base, acc_last=37.0), replace(base, acc_last=last)).outcome
        assert {name: second for name, _, second in outcome}["ACC_T"] == shown


def test_code_with_uncommitted_changes_is_said(outcomes):
    base = clean(outcomes["reservoir"].result, commit="abc+")
    assert compare(base, base).verdict().endswith("But made by code with uncommitted changes.")


def test_the_command_shows_what_differs(run):
    one, other = run("reservoir"), run("odedm")
    done = cli("runs", "diff", one, other)
    assert done.exit_code == 0
    assert "memory.name" in done.stdout
    assert "Origin: no difference" in done.stdout
    assert "Comparable" in done.stdout
    plain = json.loads(cli("runs", "diff", one, other, "--json").stdout)
    assert plain["comparable"]
    assert not plain["same_outcome"]
    assert cli("runs", "diff", one, one.parent).exit_code == 2
    assert cli("runs", "diff", one, one / "nowhere").exit_code == 2


def test_a_result_read_again_is_the_same(run, outcomes):
    assert Result.load(run() / "result.json") == outcomes["odedm"].result
