"""Ray that is not there, files of its workers, and finished runs as a frame in a notebook."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from jobs import write_run

import odedm
from odedm.core.errors import UsageError
from odedm.report.notebook import Results


def test_a_cluster_that_does_not_answer_is_told_at_once() -> None:
    pytest.importorskip("ray")
    from odedm.execute.ray_backend import RayBackend

    with pytest.raises(UsageError, match=r"Ray could not be reached at '127\.0\.0\.1:1': .*refused\. Bring its token"):
        RayBackend(address="127.0.0.1:1")


def test_without_ray_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from odedm.execute.ray_backend import RayBackend

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"odedm\[ray\]"):
        RayBackend()


def test_files_of_a_worker_stay_in_their_folder(tmp_path: Path) -> None:
    from odedm.execute.ray_backend import contents, unpack

    for name in ("../result.json", "/etc/x", ".hidden", "a/b"):
        with pytest.raises(UsageError, match="leads out"):
            unpack({name: b"x"}, tmp_path / "run")
    unpack({"result.json": b"{}"}, tmp_path / "run")
    assert contents(tmp_path / "run") == {"result.json": b"{}"}
    with pytest.raises(UsageError, match="more than"):
        contents(tmp_path / "run", most=1)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.fixture
def results(jobs) -> Results:
    for job in jobs:
        write_run(job, acc=40.0 + 10 * (job.experiment.memory.name == "odedm") + job.experiment.seed)
    return Results(jobs[0].folder.parents[1])


def test_one_row_a_run(results: Results) -> None:
    assert len(results) == 4
    assert odedm.Results is Results
    rows = {(row["memory.name"], row["seed"]): row for row in results.rows()}
    assert rows["odedm", 1]["acc_last"] == 51.0
    assert rows["odedm", 0]["memory.rho"] == 0.5
    assert rows["reservoir", 0]["method"] == "er"
    assert len(results.by_task()) == 4 * 15
    assert "4 runs in 2 groups" in repr(results)
    assert results.to_markdown().count("\n") == 4


@pytest.mark.skipif(find_spec("pandas") is None, reason="needs the extra 'notebook'")
def test_a_frame(results: Results) -> None:
    frame = results.to_frame()
    means = frame.groupby("memory.name")["acc_last"].mean()
    assert means.to_dict() == {"odedm": 50.5, "reservoir": 40.5}
    assert len(results.to_frame(by_task=True)) == 60


def test_without_pandas_there_is_a_sentence(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"odedm\[notebook\]"):
        results.to_frame()


def test_the_table_shows_itself_and_escapes_what_it_shows(results: Results, jobs) -> None:
    shown = results._repr_html_()
    assert shown.startswith("<table>")
    assert "+10.0" in shown
    folder = jobs[0].folder
    text = (folder / "result.json").read_text().replace('"er"', '"<script>"')
    (folder / "result.json").write_text(text)
    assert "<script>" not in Results(folder)._repr_html_()
    with pytest.raises(UsageError, match="at least one folder"):
        Results()
    with pytest.raises(UsageError, match="caption must be text; 3 was given"):
        Results(folder).to_latex(caption=3)
