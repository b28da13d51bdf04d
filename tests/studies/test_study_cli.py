"""`odedm study` and `odedm tune` as a user meets them: words in, a folder and a sentence out."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from commands import interrupted, odedm
from typer.testing import CliRunner

from odedm import ODEDM, Experiment
from odedm.cli.app import app
from odedm.cli.tune_command import _one_method
from odedm.results.folder import find_runs
from odedm.results.result import Result
from odedm.studies.run_store import RunStore
from odedm.studies.spec import parse, read, read_to_run
from odedm.studies.tuning import TrialResult, differing

TOML = """
data = "blobs"
method = "er"
memory = ["native", "odedm"]
capacity = 30
rho = [0.25, 0.5]
dac = "paper"
batch = 32
seeds = 2
evidence = true
anytime = 2
"""


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(TOML, encoding="utf-8")
    return path


def test_a_study_that_is_stopped_says_what_is_done_and_its_report_what_is_not(tmp_path, monkeypatch) -> None:
    toml, out, page = tmp_path / "small.toml", tmp_path / "study", tmp_path / "page.html"
    toml.write_text("data = 'blobs'\nmethod = 'er'\nmemory = 'native'\ncapacity = 30\nseeds = 2", encoding="utf-8")
    odedm("study", toml, "--seeds", 1, "--out", out)
    with interrupted(monkeypatch, 10):
        said = odedm("study", toml, "--out", out, code=130)
    assert f"1 of 2 runs are done: `odedm report {out}` shows them." in said
    assert "Interrupted. Finished runs are kept" in said
    said = odedm("report", out, "--out", page)
    assert "Not finished yet: 1 run, not in the table." in said
    assert "(stopped; `odedm resume` goes on)" in said
    odedm("study", toml, "--out", out)
    assert "Not finished" not in odedm("report", out, "--out", page)


def test_from_a_file_to_a_report_and_never_twice(toml: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    said = odedm("study", toml, "--out", out, "--dry-run")
    assert "6 runs" in said
    assert "study'\n" in said, "nothing is announced of a study that says nothing about itself"
    assert not out.exists()
    events, logs = tmp_path / "events.jsonl", tmp_path / "logs"
    said = odedm("study", toml, "--out", out, "--device", "cpu", "--log", f"jsonl:{events}")
    assert "chosen on the test set" in (out / "table.md").read_text(encoding="utf-8")
    assert {path.name for path in out.iterdir()} >= {"study.toml", "runs", "table.md", "table.csv", "table.tex"}
    for place in (out, out / "runs"):  # the plain report knows what the study's own one does
        page = tmp_path / "again.html"
        assert (out / "table.csv").read_text() in odedm("report", place, "--out", page, "--csv")
        assert page.read_bytes() == (out / "report.html").read_bytes()
    assert len(find_runs([out])) == 6
    assert len(list(out.glob("runs/*/*/evidence.safetensors"))) == 6
    assert all(len(Result.load(folder / "result.json").anytime or []) == 10 for folder in find_runs([out]))
    kinds = [json.loads(line)["event"] for line in events.read_text().splitlines()]
    assert kinds.count("finished") == 6
    assert kinds.count("task") == 30
    before, journal = (out / "table.csv").read_bytes(), (out / "journal.jsonl").read_bytes()
    said = odedm("study", toml, "--out", out, "--device", "cpu")
    assert "6 done" in said
    assert ((out / "table.csv").read_bytes(), (out / "journal.jsonl").read_bytes()) == (before, journal)
    said = odedm("study", toml, "--out", out, "--device", "cpu", "--seeds", 4, "--dry-run")
    assert "6 done" in said
    assert "6 to do" in said
    assert "about" in said
    said = odedm("study", toml, "--out", out, "--device", "cpu", "--only", "memory=odedm", "--dry-run")
    assert "4 runs" in said
    assert not logs.exists()


def test_failures_are_listed_retried_on_demand_and_end_with_a_code(toml: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    text = f"{TOML}[options.er]\nlr = [0.1, 1e30]\n".replace("seeds = 2", "seeds = 1")
    text = text.replace('["native", "odedm"]', '"native"').replace('rho = [0.25, 0.5]\ndac = "paper"\n', "")
    toml.write_text(text, encoding="utf-8")
    said = odedm("study", toml, "--out", out, "--device", "cpu", code=1)
    assert "diverged" in said
    assert "1 of 2 runs failed" in said
    (line,) = (out / "failures.jsonl").read_text().splitlines()
    assert "diverged" in json.loads(line)["error"]
    said = odedm("study", toml, "--out", out, "--device", "cpu", code=1)
    assert "1 failed before" in said
    assert len((out / "failures.jsonl").read_text().splitlines()) == 1
    odedm("study", toml, "--out", out, "--device", "cpu", "--retry", code=1)
    assert len((out / "failures.jsonl").read_text().splitlines()) == 2
    with (out / "table.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 1


def test_a_folder_that_is_not_a_studys_is_left_as_it_is(toml: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text.txt").write_text("mine")
    assert "not a study's folder" in odedm("study", toml, "--out", tmp_path / "thesis", code=2)
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["text.txt"]
    assert "is a file" in odedm("study", toml, "--out", tmp_path / "thesis" / "text.txt", code=2)


def test_a_budget_that_is_too_short_says_what_is_left(toml: Path, tmp_path: Path) -> None:
    said = odedm("study", toml, "--out", tmp_path / "study", "--device", "cpu", "--budget", "0.00001")
    assert "6 runs left" in said


def test_a_dry_run_needs_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    said = odedm("study", "table1", "--data", "cifar10", "--dry-run")
    assert "920 runs" in said
    assert "'cifar10' is not here" in said
    assert "odedm data get cifar10" in odedm("study", "table1", "--data", "cifar10", code=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["minii"], "did you mean 'mini'"),
        (["none.toml"], "Cannot read the study"),
        (["mini", "--budget", "soon"], "such as 90s"),
        (["mini", "--reuse", "plugin"], "did you mean 'plugins'"),
        (["mini", "--backend", "rays"], "did you mean 'ray'"),
        (["mini", "--set", "execution.address=auto"], "for --backend ray"),
        (["mini", "--set", "execution.gpus=0.5"], "for --backend ray"),
        (["mini", "--backend", "ray", "--device", "cuda", "--dry-run"], "needs --set execution.gpus"),
        (["mini", "--device", "gpu"], "Unknown device"),
        (["mini", "--only", "method"], "takes NAME=VALUE"),
        (["mini", "--only", "method=derpp,mir"], "has method=derpp,mir. There are: method="),
        (["table1", "--data", "fashion-mini"], "no such table"),
        (["mini", "--validation", "1"], "'validation' must be a number between 0 and 1"),
    ],
)
def test_a_wrong_word_is_a_sentence(words: list[str], said: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    output = odedm("study", *words, code=2)
    assert said in " ".join(output.split())
    assert list(tmp_path.iterdir()) == []


def test_a_validated_study_has_a_folder_of_its_own_and_its_choice_says_so(
    toml: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = odedm("study", toml, "--validation", 0.25, "--device", "cpu", "--seeds", 1)
    assert "Study 'small-validation': 3 runs, 0 done" in said
    folder = Path("runs/small-validation")
    assert all(Result.load(run / "result.json").experiment["validation"] == 0.25 for run in find_runs([folder]))
    assert "validation=0.25" in read(folder / "study.toml").to_toml().replace("[", "").replace("]", "").replace(" ", "")
    assert "chosen on validation rows" in (folder / "table.md").read_text(encoding="utf-8")
    odedm("study", toml, "--device", "cpu", "--seeds", 1)
    both = odedm("report", "runs", "--out", "page.html", "--markdown")
    assert "chosen on the test set" in both
    (line,) = [line for line in both.splitlines() if "chosen on validation rows" in line and "validation=" not in line]
    assert "ODEDM" in line


def test_a_command_reads_the_results_of_its_folder_once(toml: Path, tmp_path: Path, monkeypatch) -> None:
    looks = []
    results = RunStore._results
    monkeypatch.setattr(RunStore, "_results", lambda store: looks.append(store) or results(store))
    words = ("study", toml, "--out", tmp_path / "study", "--device", "cpu", "--only", "memory=native", "--seeds", 1)
    for _ in range(2):
        looks.clear()
        odedm(*words)
        assert len(looks) == 1


def test_a_narrowed_call_leaves_the_whole_study_in_the_folder(toml: Path, tmp_path: Path) -> None:
    """The command that a report prints goes on with all of it."""
    out = tmp_path / "study"
    odedm("study", toml, "--out", out, "--device", "cpu", "--only", "memory=native", "--seeds", 1)
    assert len(find_runs([out])) == 1
    assert len(read(out / "study.toml").experiments()) == 6
    assert "6 runs" in odedm("study", out / "study.toml", "--out", out, "--dry-run")


def test_tuning_gives_both_arms_as_many_tries_and_a_study(tmp_path: Path) -> None:
    out = tmp_path / "tune"
    words = ("--data", "blobs", "--method", "er", "--capacity", 20, "--lr", "0.01,0.1", "--rho", "0.25,0.5")
    words = (*words, "--seeds", 1, "--device", "cpu", "--out", out)
    plain = json.loads(CliRunner().invoke(app, ["tune", *map(str, words), "--json"]).stdout)
    assert plain["choices"] == str(out / "tuned.toml")
    (row,) = plain["tuned"]
    assert [len(row[arm]) for arm in ("without", "with")] == [2, 2]
    assert row["without"][0]["mean"] >= row["without"][1]["mean"]
    runs = find_runs([out])
    assert len(runs) == 4
    before = {run: (run / "result.json").read_bytes() for run in runs}
    said = odedm("tune", *words)
    assert "0 runs to do" in said
    assert "The best learning rate without ODEDM, 0.1, is at the end of those tried" in said
    assert {run: (run / "result.json").read_bytes() for run in find_runs([out])} == before
    assert "10 runs" in odedm("study", out / "tuned.toml", "--dry-run")
    packed = tmp_path / "most.jsonl.gz"
    odedm("runs", "pack", *runs[:3], "--out", packed)  # one arm has tried twice, the other once
    cut = (*words[:-1], tmp_path / "cut", "--with-results", packed, "--budget", "0.001s")
    said = " ".join(odedm("tune", *cut, code=2).split())
    assert "No choice yet: er on blobs, λ=20, 1 run left" in said
    assert not list(tmp_path.glob("cut/tuned.*"))
    assert "given twice" in odedm("tune", *words, "--set", "lr=1", code=2)
    assert "separated by commas" in odedm("tune", *words, "--rho", "0.25,,", code=2)


def test_runs_at_tuned_constants_say_so_in_their_label(tmp_path: Path) -> None:
    words = ("tune", "--data", "blobs", "--method", "er", "--capacity", 20, "--limit", 8, "--lr", "0.1", "--seeds", 1)
    odedm(*words, "--device", "cpu", "--out", tmp_path / "tune")
    tuned = tmp_path / "tune" / "tuned.toml"
    said = odedm("study", tuned, "--seeds", 1, "--device", "cpu", "--out", tmp_path / "runs")
    assert said.count("tuned on 20% of the") == 2


@pytest.mark.parametrize(("given", "limit"), [({"limit": 6}, 6), ({}, None)])
def test_tuning_takes_the_first_rows_of_each_class_and_its_choice_can_have_them(given, limit) -> None:
    tries = _one_method({"data": "blobs", "method": "er", **given}, "0.1", [], None)
    assert {plan.limit for plan in tries.experiments()} == {limit}
    assert {plan.limit for plan in parse(tries.to_toml()).experiments()} == {limit}


MANY = """
name = "both"
data = "blobs"
capacity = 20
method = ["er", "der"]
seeds = [5]
grid = [{ memory = "native" }, { memory = "odedm", k = 1 }]
[tune]
seeds = [70]
[options.er]
lr = [0.01, 0.1]
[options.der]
lr = [0.01, 0.03]
"""


def test_a_choice_is_shown_by_what_differs_of_the_memory_too() -> None:
    tried = [TrialResult(Experiment(ODEDM(20, k=k), "er", options={"lr": 0.1}), {0: 50.0}) for k in (3, 1)]
    assert differing(tried) == "k=3"
    assert differing(tried[:1]) == "lr=0.1"


def test_many_base_methods_are_tuned_in_one_command_whose_choices_are_one_study(tmp_path: Path) -> None:
    file, out = tmp_path / "both.toml", tmp_path / "out"
    file.write_text(MANY)
    words = ("tune", file, "--device", "cpu", "--out", out)
    assert "2 base methods: 2 tries without ODEDM and 2 with it, 1 seed each" in odedm(*words, "--dry-run")
    assert not out.exists()
    assert "er on blobs, λ=20: 2 tries" in odedm(*words, "--dry-run", "--only", "method=er")
    assert "8 runs to do of 8" in " ".join(odedm(*words).split())
    plain = json.loads((out / "tuned.json").read_text())
    assert [(row["method"], row["tries"]) for row in plain["tuned"]] == [("er", 2), ("der", 2)]
    assert plain["undecided"] == {}
    assert "4 runs" in odedm("study", out / "tuned.toml", "--dry-run")
    chosen = [row[arm][0]["experiment"]["options"]["lr"] for row in plain["tuned"] for arm in ("without", "with")]
    assert [
        grid.options_of("options", plan.method)["lr"]
        for grid in read(out / "tuned.toml").grids
        for plan in grid.experiments()
    ] == [(rate,) for rate in chosen]
    packed = tmp_path / "packed.jsonl.gz"
    odedm("runs", "pack", out, "--out", packed)
    elsewhere = (*words[:-1], tmp_path / "other", "--with-results", packed)
    assert "0 runs to do of 8" in " ".join(odedm(*elsewhere).split())
    assert (tmp_path / "other" / "tuned.toml").read_text() == (out / "tuned.toml").read_text()
    assert "8 runs left" in odedm(*words[:-1], tmp_path / "late", "--budget", "0.001s", code=2)


@pytest.mark.parametrize("command", ["study", "tune"])
def test_constants_of_a_method_that_a_study_has_not_are_refused(command: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.toml"
    file.write_text(f"{MANY}[options.derpp]\nlr = 0.1\n", encoding="utf-8")
    said = " ".join(odedm(command, file, "--dry-run", code=2).split())
    assert "[options.derpp] is of a method that the study has not; it has er, der. Leave the table out" in said
    assert read(file).name == "both", "a study's folder may hold such a file from before"
    file.write_text(MANY.replace('{ memory = "native" }', '{ memory = "native", method = "er" }'), encoding="utf-8")
    assert len(read_to_run(file).experiments()) == 6, "a table above the grids is for those that have its method"
    file.write_text("capacity = 20\n[options.derpp]\nlr = 0.1\n", encoding="utf-8")
    assert len(read_to_run(file).experiments()) == 5, "of the method that a study has without a word"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            "memory = 'reservoir'\nrho = 0.5",
            "'rho' is of the memory odedm, which none of its runs has; they have reservoir. Leave it out, or",
        ),
        ("memory = 'odedm'\npolicy = 'herded'", "'policy' is of the memory native, which none of its runs"),
        ("memory = 'none'\ncapacity = 20", "'capacity' is of the memory reservoir, which none of its runs has"),
        (
            "[[grid]]\nmemory = 'native'\nk = 2\n[[grid]]\nmemory = 'odedm'",
            "'k' is of the memory odedm, which none of its runs has; they have native.",
        ),
        (
            "[policy_options.purity]\nalpha = 0.3",
            "[policy_options.purity] is of a policy that the study has not; it has none. Leave the table out, or name "
            "the policy among those of 'policy' or 'short_policy'.",
        ),
        ("[retrieval_options.mir]\ncandidates = 9", "is of a retrieval that the study has not; it has uniform."),
        ("data = 'nope'", "Unknown data set 'nope'"),
        ("data = 'blosb'", "did you mean 'blobs'?"),
    ],
)
def test_what_no_run_of_a_study_has_is_refused(lines: str, said: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(f"method = 'er'\n{lines}\n", encoding="utf-8")
    assert said in " ".join(odedm("study", "mine.toml", "--dry-run", code=2).split())
    read(Path("mine.toml"))  # a study's folder may hold such a file from before


@pytest.mark.parametrize(
    "lines",
    [
        "memory = ['reservoir', 'odedm']\nrho = 0.5",
        "rho = 0.5",
        "rho = 0.5\n[[grid]]\nmemory = 'reservoir'\n[[grid]]\nmemory = 'odedm'",
        "memory = 'native'\npolicy = 'purity'\n[policy_options.purity]\nalpha = 0.3",
        "short_policy = 'purity'\n[policy_options.purity]\nalpha = 0.3",
        "data = 'there/is/none.npz'",
    ],
)
def test_what_some_run_of_a_study_has_is_fine(lines: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = "" if "data" in lines else "data = 'blobs'\n"
    Path("mine.toml").write_text(f"{data}method = 'er'\nseeds = 1\n{lines}\n", encoding="utf-8")
    assert " runs" in odedm("study", "mine.toml", "--dry-run")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["equal"], "Unknown study 'equal'"),
        (["equal-tuning", "--lr", "0.1"], "--lr is for one base method"),
        (["equal-tuning", "--method", "er"], "--method is for one base method"),
        (["equal-tuning", "--limit", "5"], "--limit is for one base method"),
        (["--only", "method=er"], "--only is for a study"),
        (
            ["equal-tuning", "--only", "seed=20"],
            "'seed=20' is for the runs of a study",
        ),
        (["mine.toml"], "Cannot read the study"),
        (["--with-results", "none.jsonl.gz"], "none.jsonl.gz"),
        (["equal-tuning", "--first-seed", "20"], "20 is among both"),
    ],
)
def test_a_wrong_word_about_tuning_is_a_sentence(words: list[str], said: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in " ".join(odedm("tune", *words, code=2).split())
    assert list(tmp_path.iterdir()) == []
