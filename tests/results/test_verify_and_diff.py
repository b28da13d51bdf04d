"""What `verify` finds in a spoiled run, what `diff` says of two, and how the commands end."""

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sampling import EVERYTHING
from typer.testing import CliRunner

from odedm import ODEDM, Native, Reservoir, train
from odedm.cli.app import app
from odedm.core.seal import write_checksums
from odedm.results.comparison import compare
from odedm.results.result import Result
from odedm.results.verification import is_sound, verify


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
        "mixup": train(memory=ODEDM(30, k=2, mixup=True), **base),
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
    return {check.name: check.detail for check in verify(folder) if check.sound is False}


NAMES = ["odedm", "reservoir", "seed", "order", "noise", "blur", "mixup", "herded", "images", "tiny"]


@pytest.mark.parametrize("name", NAMES)
def test_sound_runs_are_sound(run, name):
    checks = verify(run(name))
    assert [check for check in checks if check.sound is not True] == []
    assert {check.name for check in checks} >= {
        "files",
        "result",
        "figures",
        "accuracies",
        "counts",
        "memory",
        "data",
    }


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
    "a better mean": (change(acc_last=99.9), "figures", "acc_last is 99.9, but the matrices give"),
    "less forgetting": (change(forgetting=-1.0), "figures", "forgetting is -1"),
    "a rate of another": (edit(lambda p: p["forgetting_rate"].reverse()), "figures", "forgetting_rate is"),
    "a mean that is a word": (change(acc_mean="good"), "result", "a summary number is not finite"),
    "a matrix without a row": (edit(lambda p: p["class_il"].pop(0)), "result", "not a triangle"),
    "a matrix of words": (cell("class_il", "x"), "result", "not a triangle"),
    "Class-IL above Task-IL": (cell("class_il", 100.0), "accuracies", "below Class-IL"),
    "more than everything": (cell("task_il", 120.0), "accuracies", "per cent"),
    "an accuracy that no count gives": (cell("task_il", 99.123), "data", "no whole number"),
    "tasks that never ran": (edit(lambda p: p["experiment"].update(tasks=9)), "accuracies", "9 tasks were to be run"),
    "a census above λ": (edit(lambda p: p["class_counts"][0]["short"].__setitem__(0, 500)), "counts", "and λ is 30"),
    "counts below zero": (edit(lambda p: p["class_counts"][0]["short"].__setitem__(0, -1)), "counts", "does not count"),
    "counts without classes": (edit(lambda p: p["class_counts"][1]["long"].pop()), "counts", "does not count"),
    "a class before its time": (edit(lambda p: p["class_counts"][0]["short"].reverse()), "counts", "had not arrived"),
    "long-term rows lost": (edit(lambda p: p["class_counts"][2].update(long=[0] * 10)), "counts", "stay for good"),
    "too many of a class": (edit(lambda p: p["experiment"]["memory"].update(k=1)), "counts", "1 are legal"),
    "no census": (change(class_counts=[]), "counts", "0 entries"),
    "a census of numbers": (change(class_counts=3), "result", "counts by part and class"),
    "no commit": (edit(lambda p: p["provenance"].pop("commit")), "origin", "does not say its commit"),
    "an experiment that is none": (change(experiment=None), "result", "not an object"),
    "another schema": (change(schema="odedm.result/9"), "result", "has the format"),
    "an entry too many": (change(extra=1), "result", "no result has: extra"),
    "half a result": (lambda f: os.truncate(f / "result.json", 300), "result", "cannot be read"),
    "a result of gigabytes": (lambda f: os.truncate(f / "result.json", 1 << 33), "result", "more than any result"),
    "a linked result": (lambda f: ((f / "result.json").rename(f / "x"), (f / "result.json").symlink_to("x")),
                        "result", "is a link"),
    "no memory": (lambda f: (f / "memory.safetensors").unlink(), "memory", "is missing"),
    "half a memory": (lambda f: os.truncate(f / "memory.safetensors", 300), "memory", "cannot be read"),
    "a memory without labels": (memory(lambda c: {k: v for k, v in c.items() if k != "label"}), "memory", "lacks"),
    "columns of other lengths": (memory(lambda c: {**c, "label": c["label"][1:]}), "memory", "equally long"),
    "a label beyond the classes": (first("label", 10), "memory", "beyond the 10 classes"),
    "a label below them": (first("label", -1), "memory", "beyond the 10 classes"),
    "a task beyond the last": (first("task", 5), "memory", "beyond the last"),
    "a label of another task": (memory(lambda c: c["task"].__setitem__(slice(None), 0)), "memory", "of another task"),
    "a prototype beyond k": (memory(lambda c: c["prototype"].__setitem__(-1, 2)), "memory", "beyond k"),
    "a prototype twice": (memory(lambda c: c["prototype"].__setitem__(slice(-16, None), 0)), "memory", "its 1 rows"),
    "a short-term row called long-term": (first("prototype", 0), "memory", "not the class counts"),
    "a row twice": (memory(lambda c: c["index"].__setitem__(slice(0, 2), 5)), "memory", "is twice"),
    "fractions as labels": (memory(lambda c: {**c, "label": c["label"].astype(np.float32)}), "memory", "whole numbers"),
    "an index beyond the data": (first("index", 10**9), "data", "beyond the data"),
    "an image of another row": (memory(lambda c: c["image"].__setitem__(0, 0)), "data", "not the data's row"),
    "images of another form": (memory(lambda c: {**c, "image": c["image"][:, :3]}), "data", "another form"),
    "a label that is not the row's": (
        memory(lambda c: c["label"].__setitem__(slice(None), c["label"] ^ 1)), "data", "not its class"),
}  # fmt: skip


@pytest.mark.parametrize("kind", SPOILED)
def test_every_spoiled_run_is_broken_with_the_reason(run, kind):
    spoil, name, sentence = SPOILED[kind]
    folder = run()
    spoil(folder)
    found = broken(folder)
    assert "files" in found, "the checksums see any change"
    (folder / "checksums.json").unlink()
    found = broken(folder)
    assert sentence in found[name], found


def test_checksums_see_what_nothing_else_could(run):
    folder = run()
    path = folder / "result.json"
    path.write_text(path.read_text().replace('"train": ', '"train": 1'))
    assert broken(folder) == {"files": broken(folder)["files"]}
    for text in ("", "[]", "{", '{"schema": "odedm.files/1", "files": {"../x": {"bytes": 1, "blake2b": ""}}}',
                 '{"schema": "odedm.files/1", "files": {}}'):  # fmt: skip
        (folder / "checksums.json").write_text(text)
        assert "files" in broken(folder)


def test_data_that_is_not_here_or_not_the_same_is_left_out(run):
    folder = run()
    edit(lambda plain: plain["experiment"].update(data="nowhere"))(folder)
    (folder / "checksums.json").unlink()
    last = verify(folder)[-1]
    assert (last.sound, last.detail) == (None, "the data set 'nowhere' is not here")
    edit(lambda plain: (plain["experiment"].update(data="blobs"), plain["provenance"].update(data_checksum="x")))(
        folder
    )
    last = verify(folder)[-1]
    assert last.sound is None
    assert "another checksum" in last.detail
    assert is_sound(verify(folder))


def cli(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_run_without_its_checksums_is_unsealed_and_passes_only_where_that_is_allowed(run, tmp_path):
    folder = run()
    (folder / "checksums.json").unlink()
    done = cli("verify", folder)
    assert done.exit_code == 1
    assert "not checked  files: unsealed, there is no checksums.json" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"'{folder}' is unsealed, but sound as far as can be seen.")
    assert cli("verify", "--allow-unsealed", folder).exit_code == 0
    assert [each["sealed"] for each in json.loads(cli("verify", "--json", folder).stdout)] == [False]
    run("reservoir")
    assert cli("verify", tmp_path).exit_code == 1
    change(acc_last=99.9)(folder)
    assert "BROKEN" in cli("verify", "--allow-unsealed", folder).stdout.splitlines()[-1]


def test_the_command_says_a_line_for_each_check_and_a_verdict(run, tmp_path):
    folder = run()
    done = cli("verify", folder)
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 9
    assert done.stdout.splitlines()[-1] == f"'{folder}' is sound."
    other = run("reservoir")
    change(acc_last=99.9)(other)
    done = cli("verify", tmp_path)
    assert done.exit_code == 1
    assert "BROKEN       figures: acc_last is 99.9" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"'{other}' is BROKEN")
    done = cli("verify", "--json", tmp_path)
    assert done.exit_code == 1
    assert [each["sound"] for each in json.loads(done.stdout)] == [True, False]
    assert cli("verify", tmp_path / "nowhere").exit_code == 2


def test_a_hostile_result_gives_no_traceback_and_no_escapes(run):
    folder = run()
    for entry in ("experiment", "class_il", "task_il", "acc", "class_counts", "provenance", "seconds", "acc_last"):
        values = (None, "\x1b[31mred", [[1]], 1e308, 3, [], {}, {"a": {"b": None}}, True)
        for value in values if EVERYTHING else values[:4]:
            spoiled = folder.with_name("spoiled")
            shutil.rmtree(spoiled, ignore_errors=True)
            shutil.copytree(folder, spoiled)
            change(**{entry: value})(spoiled)
            for command in (("verify", spoiled), ("diff", folder, spoiled), ("diff", spoiled, spoiled)):
                done = cli(*command)
                assert done.exception is None or isinstance(done.exception, SystemExit), (command, entry, value)
                assert "\x1b" not in done.stdout


def test_the_same_run_twice_has_the_same_outcome(outcomes):
    found = compare(outcomes["reservoir"].result, outcomes["again"].result)
    assert (found.configuration, found.origin, found.outcome, found.obstacles) == ([], [], [], [])
    assert found.verdict().startswith("The same outcome, to the last digit")


def clean(result, **provenance):
    return replace(result, provenance={**result.provenance, "commit": "abc", **provenance})


def test_with_and_without_is_comparable(outcomes):
    found = compare(clean(outcomes["reservoir"].result), clean(outcomes["odedm"].result))
    names = [name for name, _, _ in found.configuration]
    assert {"memory.name", "memory.distance", "memory.replay", "memory.gamma"} <= set(names)
    assert not any("several things" in each for each in found.cautions), "the memory is one thing"
    assert ("memory.k", "—", "2") in found.configuration
    assert found.obstacles == []
    assert found.verdict().startswith("Comparable: the same data, stream and evaluation. But")
    assert any(name == "ACC after the last task, %" for name, _, _ in found.outcome)
    assert any("cells differ, most after task" in second for _, _, second in found.outcome)


def test_what_makes_two_runs_incomparable_is_said(outcomes):
    base = clean(outcomes["reservoir"].result)
    for other, reason in (
        (clean(outcomes["images"].result), "other data (blobs and shapes, by their checksums)"),
        (clean(outcomes["order"].result), "another stream (by order of classes)"),
        (clean(outcomes["noise"].result), "another stream (by noise)"),
        (
            replace(base, experiment={**base.experiment, "columns": "all"}),
            "evaluated among other columns (seen and all)",
        ),
        (clean(base, data_checksum="beef"), "other data"),
        (replace(base, provenance={}), "a data checksum is missing"),
    ):
        found = compare(base, other)
        assert found.verdict().startswith("Not comparable: ")
        assert reason in found.verdict()


def test_what_else_could_explain_a_difference_is_said(outcomes):
    base = clean(outcomes["reservoir"].result)
    for other, reason in (
        (clean(outcomes["seed"].result), "not paired"),
        (clean(base, precision="bf16"), "and bf16, which may change"),
        (clean(base, device="another chip"), "device:"),
        (clean(base, torch="1.0"), "other code (torch)"),
        (clean(base, commit="def+"), "one was made by code with uncommitted changes"),
        (clean(outcomes["herded"].result), "several things were changed at once (memory, method)"),
    ):
        found = compare(base, other)
        assert found.obstacles == []
        assert any(reason in each for each in found.cautions), found.cautions


def test_numbers_have_as_many_digits_as_tell_them_apart(outcomes):
    base = outcomes["reservoir"].result
    rates = {
        rate: replace(base, experiment={**base.experiment, "options": {"lr": rate}}) for rate in (0.1 + 0.2, 0.3, 2 / 3)
    }
    noisy, plain, other = rates.values()
    assert compare(noisy, other).configuration == [("options.lr", "0.3", "0.666667")]
    assert compare(noisy, plain).configuration == [("options.lr", "0.30000000000000004", "0.3")]
    nearly = [*base.class_il[:-1], [base.class_il[-1][0] + 1e-8, *base.class_il[-1][1:]]]
    found = compare(base, replace(base, class_il=nearly)).outcome
    first, second = found[-1][2].rpartition(": ")[2].split(" and ")
    assert first != second
    assert len(second) < 14, "no digits that tell nothing"


def test_figures_have_two_digits_unless_it_takes_more_to_see_a_difference(outcomes):
    base = outcomes["reservoir"].result
    for last, shown in ((188 / 3, "62.67 (+25.67)"), (37.00004, "37.00004 (+0.00004)")):
        found = compare(replace(base, acc_last=37.0), replace(base, acc_last=last)).outcome
        assert {name: second for name, _, second in found}["ACC after the last task, %"] == shown


def test_two_runs_of_changed_code_are_both_said_to_be(outcomes):
    base = clean(outcomes["reservoir"].result, commit="abc+")
    assert compare(base, base).verdict().endswith("But both were made by code with uncommitted changes.")


def test_the_command_shows_what_differs(run):
    one, other = run("reservoir"), run("odedm")
    done = cli("diff", one, other)
    assert done.exit_code == 0
    assert "memory.name" in done.stdout
    assert "Origin: no difference" in done.stdout
    assert "Comparable" in done.stdout
    plain = json.loads(cli("diff", one, other, "--json").stdout)
    assert plain["comparable"]
    assert not plain["same_outcome"]
    assert cli("diff", one, one.parent).exit_code == 2
    assert cli("diff", one, one / "nowhere").exit_code == 2


def test_a_result_read_again_is_the_same(run, outcomes):
    assert Result.load(run() / "result.json") == outcomes["odedm"].result
