"""What somebody meets on the first day: a few rows of a class, one task, a table as data, help."""

import pytest
import typer
from commands import odedm
from plausible import check_run

from odedm import ODEDM, Experiment, Reservoir, Run, UsageError, blobs, split, train
from odedm.cli.app import app
from odedm.results.comparison import compare
from odedm.results.folder import FinishedRun
from odedm.training.experiment import content_key

FEW = 7


def test_a_limit_takes_the_first_rows_of_each_class():
    data = blobs()
    stream = split(data, tasks=5, limit=FEW)
    for task, test in zip(stream.tasks, stream.tests, strict=True):
        for rows, own in ((task.rows, data.label), (test, data.test_label)):
            assert rows["label"].bincount()[-2:].tolist() == [FEW, FEW]
            for label in task.classes:
                first = (own == label).nonzero().flatten()[:FEW]
                assert rows["index"][rows["label"] == label].sort().values.tolist() == first.tolist()
    half = split(data, tasks=5, limit=FEW, imbalance="imbalanced")
    assert half.tasks[0].rows["label"].bincount().tolist() == [FEW // 2, FEW], "a setting goes by what is left"
    with pytest.raises(UsageError, match="limit must be a whole number, 1 or more"):
        split(data, limit=0)
    larger = split(data, tasks=5, limit=10**6)
    assert len(larger.tasks[0].rows["label"]) == len(split(data, tasks=5).tasks[0].rows["label"])


def test_a_limited_run_is_another_run():
    plan = Experiment(ODEDM(20, k=1), method="er", data="blobs").describe()
    assert content_key({**plan, "limit": FEW}) != content_key(plan)


def test_a_limited_run_is_sound_and_another_problem(tmp_path):
    odedm("run", "--data", "blobs", "--method", "er", "--limit", FEW, "--capacity", 20, "--out", tmp_path)
    (folder,) = (path.parent for path in tmp_path.rglob("result.json"))
    check_run(folder)
    few = FinishedRun.load(folder).result
    whole = train("blobs", method="er", memory=ODEDM(20), device="cpu").result
    assert "another stream (by limit)" in compare(few, whole).verdict()
    assert "limit must be a whole number, 1 or more" in odedm("run", "--data", "blobs", "--limit", 0, code=2)


def test_validation_rows_are_of_the_limited_ones():
    plan = Experiment(Reservoir(20), method="er", data="blobs", tasks=5, limit=FEW, validation=0.25, first_tasks=2)
    stream = Run(plan).stream
    held_out = sum(len(test["label"]) for test in stream.tests)
    assert held_out == 4 * round(0.25 * FEW)
    assert sum(map(len, stream.tasks)) + held_out == 4 * FEW


def test_one_task_is_said_to_leave_odedm_nothing_to_do(tmp_path):
    words = ("run", "--data", "blobs", "--method", "er", "--limit", FEW, "--capacity", 20, "--tasks", 1)
    assert "with one task nothing is ever consolidated" in odedm(*words, "--out", tmp_path / "dual")
    said = odedm(*words, "--memory", "reservoir", "--out", tmp_path / "plain")
    assert "consolidated" not in said


def test_data_that_are_not_read_are_told_what_is(tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text("a,b,label\n1,2,0\n")
    said = odedm("run", "--data", table, "--out", tmp_path / "runs", code=2)
    for words in (
        f"'{table}'",
        "train/<class>/*",
        "tar.xz, zip",
        ".npz",
        "numpy.savez('mine.npz', x=rows, y=labels)",
    ):
        assert words in said
    assert not (tmp_path / "runs").exists()


def every_command():
    root = typer.main.get_command(app)
    yield ()
    for name, command in root.commands.items():
        yield (name,)
        yield from ((name, each) for each in getattr(command, "commands", ()))


@pytest.mark.parametrize("words", [*every_command()], ids=" ".join)
def test_help_shows_switches_without_a_type(words):
    said = odedm(*words, "--help")
    assert "bool" not in said.lower()
    assert "--help" in said


def test_what_belongs_to_the_memory_is_pointed_there():
    with pytest.raises(UsageError, match=r"capacity belongs to the memory: memory=odedm\.ODEDM\(capacity=40\)"):
        train("blobs", capacity=40)
    said = odedm("run", "--data", "blobs", "--memory", "herded", code=2)
    assert "give --memory native --set memory.policy=herded" in " ".join(said.split())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--lr", 1e30), 2, "Lower the learning rate"),
        (("--lr", 1e30, "--seeds", 2, "--workers", 1), 2, "2 of 2 runs failed: "),
        (("--capacity", 10**12), 2, "Give a smaller capacity"),
        (("--set", "nosuch=1"), 2, "Unknown hyper-parameter of er 'nosuch'"),
    ],
    ids=["diverges", "all-diverge", "no-room", "refused"],
)
def test_what_failed_leaves_no_empty_folder(words, code, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = ("run", "--data", "blobs", "--method", "er", "--limit", FEW, "--memory", "reservoir", *words)
    output = odedm(*run, code=code)
    assert said in output
    assert "Failed: " not in output or "--seeds" in words, "one sentence is enough for one run"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    odedm(*run, "--out", "mine", code=code)
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"], "which was there before"
