"""Results that travel: packed into one file, brought together, counted by a study; files of anyone's are checked."""

import gzip
import json
from pathlib import Path

import pytest
from commands import odedm

from odedm import ODEDM, Reservoir, UsageError, train
from odedm.core.plain_data import json_hash
from odedm.report.load import load
from odedm.report.summary import summarise
from odedm.report.tables import to_csv, to_markdown
from odedm.results import packed
from odedm.results.folder import FinishedRun
from odedm.results.metrics import compute_metrics
from odedm.results.packed import read_packed, to_line, write_packed
from odedm.results.result import Result
from odedm.studies.merging import read_all

OLD = Path(__file__).parent / "runs"
ROOT = Path(__file__).parents[2]
STUDY = 'name = "small"\ndata = "blobs"\nmethod = "er"\nmemory = ["native", "odedm"]\ncapacity = 20\nseeds = 2\n'


@pytest.fixture
def ledger(tmp_path):
    """Five runs of the first format, packed."""
    odedm("runs", "pack", OLD, "--out", tmp_path / "ledger.jsonl.gz")
    return tmp_path / "ledger.jsonl.gz"


def lines_of(path):
    return gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True)


def rewrite(path, lines):
    path.write_bytes(gzip.compress("".join(lines).encode()))
    return path


def changed(line, change):
    """A line with a change and a seal that fits: by someone who knows how."""
    result = json.loads(line)["result"]
    change(result)
    return json.dumps({"result": result, "checksum": json_hash(result)}) + "\n"


def test_what_is_packed_comes_back_whole_and_the_bytes_depend_on_nothing_else(ledger, tmp_path):
    packed = sorted(to_line(FinishedRun.load(folder).result) for folder in OLD.iterdir())
    assert [to_line(run.result) for run in read_packed(ledger)] == packed
    folders = sorted(OLD.iterdir(), reverse=True)
    odedm("runs", "pack", *folders, "--out", tmp_path / "elsewhere" / "other.jsonl.gz")
    assert (tmp_path / "elsewhere" / "other.jsonl.gz").read_bytes() == ledger.read_bytes()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_line_of_the_runs_is_read_as_this_version_would_have_written_it(ledger, tmp_path):
    plain = json.loads((OLD / "er-native" / "result.json").read_text())
    line = json.dumps({"result": plain, "checksum": json_hash(plain)})
    (run,) = read_packed(rewrite(tmp_path / "old.jsonl.gz", [line]))
    assert run.result == FinishedRun.load(OLD / "er-native").result


def test_merging_counts_a_run_once_and_does_not_depend_on_the_order(ledger, tmp_path):
    one, two = tmp_path / "one.jsonl.gz", tmp_path / "two.jsonl.gz"
    odedm("runs", "pack", OLD / "er-native", OLD / "er-odedm", "--out", one)
    output = odedm("runs", "merge", one, ledger, "--out", two)
    assert "5 runs" in output
    assert "2 that were there twice count once" in output
    assert two.read_bytes() == ledger.read_bytes()
    slower = [changed(line, lambda result: result["seconds"].update(train=99.0)) for line in lines_of(ledger)]
    rewrite(tmp_path / "slower.jsonl.gz", slower)
    both = []
    for files in ([ledger, tmp_path / "slower.jsonl.gz"], [tmp_path / "slower.jsonl.gz", ledger]):
        odedm("runs", "merge", *files, "--out", tmp_path / f"both-{len(both)}.jsonl.gz")
        both.append((tmp_path / f"both-{len(both)}.jsonl.gz").read_bytes())
    assert both[0] == both[1], "how long it took is no contradiction"
    odedm("runs", "merge", one, ledger, "--out", one)
    assert one.read_bytes() == ledger.read_bytes(), "a file may grow in its place"


def test_two_results_of_one_run_that_differ_are_refused_with_both_named(ledger, tmp_path):
    def better(result):
        result["class_il"][-1][0] = 0.0
        result |= compute_metrics(result["class_il"], result["task_il"])

    other = tmp_path / "other.jsonl.gz"
    rewrite(other, [changed(line, better) for line in lines_of(ledger)[:1]])
    output = odedm("runs", "merge", ledger, other, "--out", tmp_path / "both.jsonl.gz", code=2)
    assert f"'{ledger}:1' and '{other}:1' are the same run" in output
    assert "leave one of the two out" in output
    assert not (tmp_path / "both.jsonl.gz").exists()
    output = odedm("report", ledger, other, "--out", tmp_path / "page.html", code=2)
    assert "are the same run" in output


def marked(code):
    def change(result):
        result["provenance"]["plugins"] = {"method": {"title": "ER", "from": "mine:ER", "again": True, "code": code}}

    return change


def test_a_run_that_says_which_code_made_it_takes_the_place_of_one_that_does_not(ledger, tmp_path):
    new, both = tmp_path / "new.jsonl.gz", tmp_path / "both.jsonl.gz"
    rewrite(new, [changed(lines_of(ledger)[0], marked("12ab"))])
    for files in ([ledger, new], [new, ledger]):
        both.unlink(missing_ok=True)
        output = odedm("runs", "merge", *files, "--out", both)
        assert "5 runs" in output
        assert "1 that were there twice count once" in output
        assert [run.result.code_hashes() for run in read_packed(both)].count({"method": "12ab"}) == 1
    odedm("report", both, "--out", tmp_path / "page.html")


def test_one_run_by_two_versions_of_ones_code_is_not_merged(ledger, tmp_path):
    one, two, both = (tmp_path / f"{name}.jsonl.gz" for name in ("one", "two", "both"))
    for path, code in ((one, "12ab"), (two, "34cd")):
        rewrite(path, [changed(lines_of(ledger)[0], marked(code))])
    output = odedm("runs", "merge", one, two, "--out", both, code=2)
    assert (
        f"'{one}:1' and '{two}:1' are the same run by two versions of the code of its method (12ab and 34cd)" in output
    )
    assert "leave one of the two out" in output
    assert not both.exists()
    assert len(read_all([one, two])) == 2, "a study takes the one that its code would make"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda line: line[:40], "Line 2 of .* it is not JSON"),
        (lambda line: "[" * 100_000, "Line 2 of .* it is not JSON"),
        (lambda line: "[1]", "it is not a 'checksum' and a 'result'"),
        (lambda line: line.replace('"seed":0', '"seed":7'), "changed since it was packed"),
        (lambda line: line.replace('"acc_last":', '"acc_last":NaN,"x":'), "NaN is no JSON"),
        (lambda line: changed(line, lambda result: result.update(acc_last=99.0)), "acc_last is 99"),
        (lambda line: changed(line, lambda result: result.update(schema="odedm.result/9")), "has the format"),
        (lambda line: changed(line, lambda result: result.update(more=1)), "entries that no result has: more"),
        (lambda line: changed(line, lambda result: result.pop("class_counts")), "lacks class_counts"),
        (
            lambda line: changed(line, lambda result: result["class_il"][0].__setitem__(0, 101.0)),
            "not between 0 and 100",
        ),
    ],
)
def test_a_wrong_line_is_named(ledger, change, message):
    lines = lines_of(ledger)
    rewrite(ledger, [lines[0], change(lines[1]).rstrip("\n") + "\n", *lines[2:]])
    with pytest.raises(UsageError, match=message) as error:
        read_packed(ledger)
    assert f"Line 2 of '{ledger}'" in str(error.value)


def test_settings_beyond_all_numbers_are_refused(ledger):
    lines = lines_of(ledger)
    rewrite(
        ledger, [changed(lines[0], lambda result: result["experiment"]["memory"].update(capacity=10**400)), *lines[1:]]
    )
    with pytest.raises(UsageError, match="Line 1 of .* its capacity is 1000.*, not a whole number"):
        load([ledger])


def test_names_that_are_no_text_are_carried_and_shown(ledger, tmp_path):
    """As of files whose names are no UTF-8."""
    line = lines_of(ledger)[0]
    odd = changed(line, lambda result: result["experiment"]["options"].update({"\udcff": "\ud800"}))
    odedm("runs", "merge", rewrite(ledger, [odd, line]), "--out", tmp_path / "merged.jsonl.gz")
    merged = read_packed(tmp_path / "merged.jsonl.gz")
    assert [run.result.experiment["options"].get("\udcff") for run in merged].count("\ud800") == 1
    odedm("report", ledger, "--out", tmp_path / "page.html")
    assert "options.�" in (tmp_path / "page.html").read_text()


def test_a_file_that_is_none_is_a_sentence(ledger, tmp_path, monkeypatch):
    whole = ledger.read_bytes()
    for content, message in (
        (whole[: len(whole) // 2], "is damaged or no gzip file"),
        (b"hello", "is damaged or no gzip file"),
        (whole[:-8] + bytes(8), "is damaged or no gzip file"),
        (gzip.compress(b""), "holds no result"),
        (b"", "holds no result"),
    ):
        (tmp_path / "other.jsonl.gz").write_bytes(content)
        with pytest.raises(UsageError, match=message):
            read_packed(tmp_path / "other.jsonl.gz")
    with pytest.raises(UsageError, match="Cannot read"):
        read_packed(tmp_path / "missing.jsonl.gz")
    (tmp_path / "link.jsonl.gz").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="Cannot read|not a regular file"):
        read_packed(tmp_path / "link.jsonl.gz")
    bomb = tmp_path / "bomb.jsonl.gz"
    bomb.write_bytes(gzip.compress(b"[" * (packed.MAX_LINE + 10)))
    with pytest.raises(UsageError, match="goes on beyond"):
        read_packed(bomb)
    monkeypatch.setattr(packed, "MAX_RUNS", 3)
    with pytest.raises(UsageError, match="more than 3 runs"):
        read_packed(ledger)
    monkeypatch.setattr(packed, "MAX_FILE", 100)
    with pytest.raises(UsageError, match="more than 100 bytes"):
        read_packed(ledger)


def test_nothing_is_written_over_and_nothing_broken_is_packed(ledger, tmp_path):
    before = ledger.read_bytes()
    assert "is there already" in odedm("runs", "pack", OLD / "er-native", "--out", ledger, code=2)
    assert "ends in .jsonl.gz" in odedm("runs", "pack", OLD, "--out", tmp_path / "ledger.json", code=2)
    assert ledger.read_bytes() == before
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in (OLD / "er-native").iterdir():
        (broken / file.name).write_bytes(file.read_bytes().replace(b"reservoir", b"reservoiR"))
    (broken / "result.json").write_text((broken / "result.json").read_text() + " ")
    output = odedm("runs", "pack", broken, "--out", tmp_path / "new.jsonl.gz", code=2)
    assert f"'{broken}' is broken and is not packed" in output
    (broken / "checksums.json").unlink()
    output = odedm("runs", "pack", broken, "--out", tmp_path / "new.jsonl.gz", code=2)
    assert f"'{broken}' is broken and is not packed: files: checksums.json is missing" in output
    assert not (tmp_path / "new.jsonl.gz").exists()


def test_packed_results_are_reported_alone_and_beside_the_folders_they_came_from(ledger, tmp_path):
    folders, alone, beside = (to_markdown(summarise(load(paths))) for paths in ([OLD], [ledger], [OLD, ledger]))
    assert folders == alone == beside
    output = odedm("report", ledger, "--out", tmp_path / "page.html", "--markdown")
    assert folders in output
    assert "ledger.jsonl.gz:3" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_study_is_carried_on_from_machine_to_machine(tmp_path):
    toml, file, out = tmp_path / "small.toml", tmp_path / "there.jsonl.gz", tmp_path / "here"
    toml.write_text(STUDY, encoding="utf-8")
    for memory in (Reservoir(20), ODEDM(20)):
        train("blobs", method="er", memory=memory, device="cpu").save(tmp_path / "there" / memory.name)
    odedm("runs", "pack", tmp_path / "there", "--out", file)
    words = ("study", toml, "--device", "cpu", "--out", out)
    output = odedm(*words, "--with-results", file, "--dry-run")
    assert "2 done (2 of them packed)" in output
    assert "2 to do" in output
    output = odedm(*words, "--with-results", file, "--seeds", 1)
    assert "2 runs, 2 done (2 of them packed)" in output
    assert list(out.glob("runs/*")) == [], "what is packed is not run again"
    assert (out / "table.csv").read_text(encoding="utf-8") == to_csv(summarise(load([file])))
    other = [changed(line, lambda result: result["provenance"].update(odedm="0.0.1")) for line in lines_of(file)]
    older = rewrite(tmp_path / "older.jsonl.gz", other)
    output = odedm(*words, "--with-results", older, "--dry-run")
    assert "2 made by odedm 0.0.1, which count" in output, "as for runs in the folder"


def test_results_that_cannot_be_written_as_json_are_none(tmp_path):
    run = FinishedRun.load(OLD / "er-native").result
    broken = Result(**{**vars(run), "acc_last": float("nan")})
    with pytest.raises(ValueError, match="JSON"):
        write_packed(tmp_path / "x.jsonl.gz", [broken])
    assert list(tmp_path.iterdir()) == []
