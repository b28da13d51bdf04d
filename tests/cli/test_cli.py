"""The command line as people use it: good words work, bad words end in one sentence and leave nothing behind."""

import json
import os
import re
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

import odedm
from odedm.cli.app import app
from odedm.cli.console import out
from odedm.cli.list_command import LISTS
from odedm.core.checksums import write_checksums
from odedm.core.choices import REPLAYS
from odedm.core.registry import METHODS
from odedm.results.result import Result

TINY = ["--data", "blobs", "--batch", "32", "--capacity", "30"]


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    for memory in ("reservoir", "odedm"):
        done = call("run", *TINY, "--memory", memory, "--seeds", 2, "--workers", 1, "--out", out)
        assert done.exit_code == 0, done.output
    return out


def test_run_prints_a_table_and_says_where_the_results_are(tmp_path):
    done = call("run", *TINY, "--out", tmp_path)
    assert done.exit_code == 0
    assert "DER++" in done.stdout
    folder = re.search(r"Results: (.+)", done.stdout)[1]
    assert json.loads((tmp_path / folder / "seed-0" / "result.json").read_text())["schema"] == "odedm.result/3"


def test_json_is_alone_on_stdout(tmp_path):
    words = [sys.executable, "-m", "odedm", "run", *TINY, "--seeds", "2", "--json", "--out", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    results = json.loads(done.stdout)
    assert [each["experiment"]["seed"] for each in results] == [0, 1]
    assert all("acc_last" in each and "folder" in each for each in results)
    assert done.stderr == ""


def test_the_papers_memory_is_one_word_and_the_caption_says_so(tmp_path):
    done = call("run", *TINY, "--paper", "--rho", "0.5", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "ODEDM as in the paper" in call("report", tmp_path, "--latex").stdout
    (path,) = tmp_path.rglob("result.json")
    memory = Result.load(path).experiment["memory"]
    preset = odedm.ODEDM.paper(30, rho=0.5).flat()
    assert {**memory, "short_policy": "native", "k": None, "dac": (3, 2)} == {"name": "odedm", **preset}
    assert memory["short_policy"] == "reservoir"


def test_the_papers_memory_beside_another_is_refused(tmp_path):
    done = call("run", *TINY, "--paper", "--memory", "reservoir", "--out", tmp_path)
    assert done.exit_code == 2
    assert "--paper is for the memory 'odedm'" in " ".join(plain(done.output).split())


def test_every_option_reaches_the_result(tmp_path):
    words = [
        "--method",
        "der",
        "--set",
        "alpha=0.7",
        "--lr",
        "0.05",
        "--k",
        "2",
        "--replay",
        "both",
        "--set",
        "memory.gamma=0.5",
    ]
    words += [
        "--set",
        "memory.gamma_rule=share",
        "--set",
        "training.updates=2",
        "--set",
        "training.stream_loss=adjusted",
        "--set",
        "training.predict=nearest-mean",
    ]
    words += [
        "--distance",
        "l2",
        "--dac",
        "4,2",
        "--set",
        "memory.space=pixels",
        "--set",
        "memory.candidates=4",
        "--set",
        "memory.rows_per_prototype=1",
    ]
    words += [
        "--imbalance",
        "long-tail",
        "--set",
        "stream.factor=3",
        "--set",
        "stream.class_order=seed",
        "--tasks",
        "2",
        "--set",
        "training.replay_batch=5",
    ]
    words += ["--seed", "7", "--device", "cpu", "--threads", "2", "--net", "mlp"]
    done = call("run", "--data", "blobs", "--batch", 16, "--capacity", 60, *words, "--json", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)[0]["experiment"]
    assert plan["options"] == {"lr": 0.05, "momentum": 0.0, "weight_decay": 0.0, "alpha": 0.7}
    assert plan["memory"] == {
        "name": "odedm", "capacity": 60, "rho": None, "k": 2, "distance": "l2", "dac": [4, 2], "space": "pixels",
        "candidates": 4, "rows_per_prototype": 1, "mixup": False, "screen": None, "short_policy": "reservoir",
        "annotate": "end", "replay": "both", "gamma": 0.5, "gamma_rule": "share", "epsilon": 0.05,
        "pair_epsilon": None, "ground": None,
        "dac_distance": "sinkhorn", "dac_sample": 256, "bandwidth": None, "policy_options": {},
    }  # fmt: skip
    wanted = {
        "method": "der", "imbalance": "long-tail", "factor": 3.0, "class_order": "seed", "tasks": 2,
        "batch": 16, "replay_batch": 5, "seed": 7, "device": "cpu", "threads": 2, "net": "mlp", "data": "blobs",
        "updates": 2, "stream_loss": "adjusted", "predict": "nearest-mean", "views": "crop",
    }  # fmt: skip
    assert {name: plan[name] for name in wanted} == wanted


BAD = {
    "method": (["--method", "derp"], "did you mean 'derpp'"),
    "data": (["--data", "fashion-mimi"], "did you mean 'fashion-mini'"),
    "memory": (["--memory", "oded"], "did you mean 'odedm'"),
    "distance": (["--distance", "sinkorn"], "did you mean 'sinkhorn'"),
    "imbalance": (["--imbalance", "imbalance"], "did you mean 'imbalanced'"),
    "device": (["--device", "gpu"], "Known: auto, cpu, cuda"),
    "net": (["--net", "resnet"], "did you mean 'resnet18'"),
    "capacity": (
        ["--capacity", "-1"],
        "capacity must be a whole number of rows, 0 or more, or of bytes such as '500kB' or '2MB'; '-1'",
    ),
    "capacity as word": (["--capacity", "many"], "or of bytes such as '500kB' or '2MB'; 'many'"),
    "rho": (["--rho", "1.5"], "from 0 to 1; '1.5'"),
    "rho NaN": (["--rho", "nan"], "rho must be a number from 0 to 1; 'nan'"),
    "rho and k": (["--rho", "0.5", "--k", "3"], "give one"),
    "rho too small": (["--rho", "0.01"], "rho"),
    "k too large": (["--k", "50"], "30"),
    "k below zero": (["--k", "-2"], "0 or more; '-2'"),
    "tasks": (["--tasks", "3"], "10 classes do not split into 3 tasks"),
    "batch": (["--batch", "0"], "batch must be a whole number, 1 or more; '0'"),
    "a word for a number, repeated": (["--capacity", "many"], "'many'"),
    "seeds": (["--seeds", "0"], "Invalid value for '--seeds'"),
    "too many seeds": (["--seeds", "100000000"], "Invalid value for '--seeds'"),
    "threads": (["--threads", "100000"], "the cores of this machine"),
    "capacity beyond the machine": (["--capacity", "100000000000"], "GiB"),
    "fewer candidates than prototypes": (["--set", "memory.candidates=1", "--k", "3"], "cannot give 3 prototypes"),
    "policy": (["--memory", "native", "--set", "memory.policy=herd"], "did you mean 'herded'"),
    "policy for odedm": (
        ["--set", "memory.policy=herded"],
        "--set memory.policy is for the memory 'native', not for 'odedm'",
    ),
    "short policy": (["--set", "memory.short_policy=purty"], "did you mean 'purity'"),
    "annotate": (["--set", "memory.annotate=later"], "Known: end, stream"),
    "eval classes": (["--set", "training.eval_classes=some"], "Known: seen, all"),
    "seed": (["--seed", "-1"], "seed must be a whole number, 0 or more; '-1'"),
    "lr": (["--lr", "-0.1"], "lr must be 0 or more"),
    "lr NaN": (["--lr", "nan"], "finite number"),
    "dac": (["--dac", "3"], "dac must be a pair of whole numbers such as 3,4, or none"),
    "dac words": (["--dac", "a,b"], "'a,b' was given"),
    "dac too small": (["--dac", "1,2"], "1"),
    "candidates": (["--set", "memory.candidates=all"], "'task' or a whole number"),
    "candidates too many": (["--set", "memory.candidates=40"], "need 80 rows"),
    "set without value": (["--set", "alpha"], "NAME=VALUE"),
    "set foreign": (["--method", "er", "--set", "alpha=1"], "Unknown hyper-parameter of er 'alpha'"),
    "set twice": (["--lr", "0.1", "--set", "lr=0.2"], "given twice"),
    "factor without long tail": (["--set", "stream.factor=10"], "belongs to imbalance='long-tail'"),
    "rho for a reservoir": (
        ["--memory", "reservoir", "--rho", "0.5"],
        "--rho is for the memory 'odedm'",
    ),
    "dac for a reservoir": (["--memory", "reservoir", "--dac", "none"], "--dac is for the memory 'odedm'"),
    "replay for a reservoir": (["--memory", "reservoir", "--replay", "union"], "is for the memory 'odedm', not for"),
    "screen without sinkhorn": (["--distance", "l1", "--set", "memory.screen=9"], "does nothing beside"),
    "cnn for vectors": (["--net", "cnn"], "is for images"),
    "checkpoint": (["--checkpoint", "often"], "--checkpoint takes 'auto', 'task' (after each task), 'N steps'"),
    "checkpoint every nothing": (["--checkpoint", "0 steps"], "'0 steps' was given"),
    "unknown option": (["--nonsense"], "No such option"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_words_end_in_one_sentence_and_leave_nothing(case, tmp_path):
    words, sentence = BAD[case]
    done = call("run", *TINY, *words, "--out", tmp_path / "out")
    said = " ".join(plain(done.stderr).split())
    assert done.exit_code == 2, done.output
    assert sentence in said
    assert "Traceback" not in done.output
    assert done.stdout == ""
    assert not list(tmp_path.rglob("*.json"))
    assert not list(tmp_path.rglob(".*"))


def test_divergence_ends_in_a_sentence(tmp_path):
    done = call("run", *TINY, "--lr", "1e30", "--out", tmp_path)
    assert done.exit_code == 2
    assert "diverged" in plain(done.stderr)
    assert "At step 2, in task 1 of 5, the loss is" in plain(done.stderr)
    assert "Lower the learning rate (--lr), which is 1e+30" in plain(done.stderr)
    assert not list(tmp_path.rglob("*.json"))
    assert not list(tmp_path.rglob(".*")), "and no working folder"


def test_an_existing_run_is_kept_unless_told_otherwise(tmp_path):
    words = ["run", *TINY, "--memory", "reservoir", "--out", tmp_path]
    first = call(*words)
    assert first.exit_code == 0
    (path,) = tmp_path.rglob("result.json")
    before = path.stat().st_mtime_ns
    again = call(*words)
    assert again.exit_code == 0
    assert "is finished already" in plain(again.stderr)
    assert again.stdout == first.stdout, "its result is shown"
    assert path.stat().st_mtime_ns == before, "and was not made again"
    fresh = call(*words, "--restart")
    assert fresh.exit_code == 0
    assert "is finished already" in plain(fresh.stderr), "a result is replaced by --overwrite alone"
    assert path.stat().st_mtime_ns == before
    assert call(*words, "--overwrite").exit_code == 0
    assert path.stat().st_mtime_ns > before
    assert call(*words, "--seed", 1).exit_code == 0, "another seed is another run"


IN_THE_WAY = {
    "another configuration": (lambda plain: plain["experiment"].update(batch=7), "batch=7 there, 32 here"),
    "other data": (lambda plain: plain["provenance"].update(data_checksum="else"), "of the checksum else there"),
    "another format": (lambda plain: plain.update(schema="odedm.result/9"), "has the format 'odedm.result/9'"),
    "no experiment": (lambda plain: plain.update(experiment=3), "'experiment' is not an object"),
    "a setting that is none": (
        lambda plain: plain["experiment"].update(bacth=7),
        "this version of odedm does not know",
    ),
    "a changed file": (None, "has changed since it was written"),
}


@pytest.mark.parametrize("case", IN_THE_WAY)
def test_a_result_of_something_else_is_in_the_way(case, tmp_path):
    change, sentence = IN_THE_WAY[case]
    words = ["run", *TINY, "--memory", "reservoir", "--out", tmp_path]
    assert call(*words).exit_code == 0
    (path,) = tmp_path.rglob("result.json")
    result = json.loads(path.read_text())
    if change is None:
        path.write_text(path.read_text().replace('"train"', '"Train"'))
        result = json.loads(path.read_text())
    else:
        change(result)
        path.write_text(json.dumps(result))
        write_checksums(path.parent)
    again = call(*words)
    assert again.exit_code == 2
    assert sentence in plain(again.stderr)
    assert "--overwrite to replace it" in plain(again.stderr)
    assert json.loads(path.read_text()) == result


def test_only_missing_seeds_run(tmp_path):
    words = ["run", *TINY, "--memory", "reservoir", "--workers", 1, "--out", tmp_path, "--json"]
    first = json.loads(call(*words, "--seed", 1).stdout)
    done = call(*words, "--seeds", 3)
    assert "1 of 3 runs are finished already" in plain(done.stderr)
    results = json.loads(done.stdout)
    assert [each["experiment"]["seed"] for each in results] == [0, 1, 2]
    assert results[1] == first[0]


@pytest.mark.parametrize("below", ["file", "file/below"])
def test_a_folder_that_cannot_be_written_is_refused_before_training(below, tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = call("run", *TINY, "--out", tmp_path / below)
    assert done.exit_code == 2
    assert "Cannot write into the folder" in plain(done.stderr) or "not a run's folder" in plain(done.stderr)
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    done = call("run", *TINY, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "Permission denied" in plain(done.stderr)


def test_report_compares_runs_in_a_page_and_a_table(runs, tmp_path):
    page = tmp_path / "report.html"
    done = call("report", runs, "--out", page)
    assert done.exit_code == 0, done.output
    assert "ODEDM" in done.stdout
    assert "data:image/svg+xml" in page.read_text()
    assert str(page) in plain(done.stderr).replace("\n", "")
    assert call("report", runs, "--out", page, "--markdown").stdout.startswith("|")
    assert "," in call("report", runs, "--out", page, "--csv").stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["report", "nowhere"], "There is no 'nowhere'"),
        (["report", "."], "No finished run"),
        (["runs", "show", "nowhere"], "There is no 'nowhere'"),
        (["list", "method"], "did you mean 'methods'"),
        (["rum"], "Error: No such command 'rum'. Did you mean 'run', 'resume'? `odedm --help` says"),
        (["--nonsense"], "Error: No such option: --nonsense"),
        (["study"], "Error: Missing argument 'NAME|FILE.toml'. `"),
        (["data", "gett"], "--help` says what it takes."),
    ],
)
def test_other_commands_refuse_bad_words(words, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call(*words)
    assert done.exit_code == 2
    assert sentence in " ".join(plain(done.stderr).split())
    assert not list(tmp_path.iterdir())


def test_a_damaged_result_is_named_in_the_report(runs, tmp_path):
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "result.json").write_text("{")
    done = call("report", bad, "--out", tmp_path / "report.html")
    assert done.exit_code == 2
    assert "Cannot read the result" in plain(done.stderr)
    assert not (tmp_path / "report.html").exists()


def test_one_experiment_has_one_folder_however_it_is_spelled(tmp_path):
    words = ["run", *TINY, "--memory", "reservoir", "--method", "er", "--out", tmp_path]
    assert call(*words).exit_code == 0
    same = ["--lr 0.1", "--tasks 5", "--set lr=0.1", "--device cpu", "--set training.replay_batch=32"]
    for more in map(str.split, same):
        again = call(*words, *more)
        assert again.exit_code == 0
        assert "is finished already" in plain(again.stderr), more


def test_runs_that_fail_are_named_with_the_reason(tmp_path):
    done = call("run", *TINY, "--lr", "1e30", "--seeds", 2, "--out", tmp_path)
    assert done.exit_code == 2
    said = plain(done.stderr)
    assert "2 of 2 runs failed: " in said
    assert "seed-1" in said
    assert "diverged" in said
    assert not list(tmp_path.rglob("result.json"))


HOSTILE = {
    "missing names": lambda result: result.update(classes=[]),
    "markup": lambda result: result["experiment"].update(data="[/nope]"),
    "escapes": lambda result: result["experiment"].update(data="\x1b[2J\x1b]0;pwned\x07"),
    "short class counts": lambda result: result["class_counts"][-1].update(short=[1]),
    "no method": lambda result: result["experiment"].pop("method"),
    "empty matrix": lambda result: result.update(class_il=[]),
    "null seconds": lambda result: result.update(seconds=None),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_show_and_report_survive_damaged_results(case, runs, tmp_path):
    result = json.loads(next(runs.rglob("result.json")).read_text())
    HOSTILE[case](result)
    (tmp_path / "result.json").write_text(json.dumps(result))
    for words in (["runs", "show", tmp_path], ["report", tmp_path, "--out", tmp_path / "page.html"]):
        done = call(*words)
        assert done.exit_code in (0, 2), done.output
        assert done.exception is None or isinstance(done.exception, SystemExit)
        assert "\x1b]0;" not in done.output


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema": ' + "9" * 5000 + "}"])
def test_absurd_json_is_refused(text, tmp_path):
    (tmp_path / "result.json").write_text(text)
    assert call("runs", "show", tmp_path).exit_code == 2


def test_what_a_killed_process_left_is_not_read(runs, tmp_path):
    folder = next(runs.rglob("seed-0"))
    for name in ("seed-0", ".seed-0.123.abc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text((folder / "result.json").read_text())
    assert call("report", tmp_path, "--out", tmp_path / "page.html").exit_code == 0


def test_a_terminal_that_knows_no_greek_is_served(runs):
    words = [sys.executable, "-m", "odedm", "report", str(runs), "--out", str(runs / "page.html")]
    done = subprocess.run(words, capture_output=True, check=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert b"ODEDM" in done.stdout


PARTS = ["Method", "Memory", "Stream", "Run", "Cost", "Provenance"]


def test_show_one_run(runs):
    folder = next(runs.rglob("seed-0"))
    done = call("runs", "show", folder)
    assert done.exit_code == 0
    assert "Class-IL accuracy" in done.stdout
    assert "long-term rows" in done.stdout
    heads = [line for line in done.stdout.splitlines() if line in PARTS]
    assert heads == PARTS
    method = done.stdout.split("\nMethod\n")[1].split("\nMemory\n")[0].splitlines()
    assert method == sorted(method)
    assert any(line.split() == ["options.lr", "0.03"] for line in method)
    assert "{" not in done.stdout
    shown = json.loads(call("runs", "show", folder, "--json").stdout)
    assert shown == Result.load(folder / "result.json").to_dict()
    assert call("runs", "show", runs).exit_code == 2


def test_list_shows_every_name():
    done = call("list")
    for name in ("er", "der", "derpp", "reservoir", "odedm", "fashion-mini", "sinkhorn", "long-tail", "auxiliary"):
        assert name in done.stdout
    assert "derpp" in call("list", "methods").stdout
    assert re.findall(r"^  ([a-z]+)", call("list", "replays").stdout, re.MULTILINE) == ["auto", *REPLAYS]


def test_list_alone_is_a_screen_and_one_list_is_whole(monkeypatch):
    monkeypatch.setattr(out, "_width", 80)
    said = call("list").stdout
    assert len(said.splitlines()) < 40
    for title, names in LISTS.items():
        assert re.search(rf"^  {title}\s", said, re.MULTILINE), title
        assert title == "recipes" or all(name in said for name in names), title
    assert re.search(r"^  recipes +best *$", said, re.MULTILINE), "and not its cases, which are pages"
    assert "odedm list NAME" in said
    assert METHODS["derpp"].about not in said
    assert METHODS["derpp"].about in " ".join(call("list", "methods").stdout.split())
    assert "test rows, seeds" in " ".join(call("list", "recipes").stdout.split())


def test_help_is_quick_and_grouped():
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "odedm", "run", "--help"], capture_output=True, text=True, check=True)
    assert time.perf_counter() - start < 3
    for panel in ("Stream", "Method", "Memory", "Run"):
        assert f"─ {panel} ─" in done.stdout


@pytest.mark.slow
def test_demo_from_nothing_to_the_page(tmp_path):
    out = tmp_path / "demo"
    done = call("demo", "--seeds", 1, "--out", out)
    assert done.exit_code == 0, done.output
    assert "DER++" in done.stdout
    page = (out / "report.html").read_text()
    assert "data:image/svg+xml" in page
    assert len(list(out.rglob("result.json"))) == 5
    again = call("demo", "--seeds", 1, "--out", out)
    assert again.exit_code == 0, "the demo may be run again"
    assert "5 of 5 runs are finished already" in plain(again.stderr)
