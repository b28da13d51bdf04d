"""What a run looks at: it changes nothing else, survives kills bit for bit, and lies in the run's folder sealed."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from driver import Driver
from emulated_graph import check_replayed_as_eager
from jobs import job_of, run_all
from plausible import check_run
from safetensors.numpy import load_file, save_file
from sampling import thorough
from test_resume_matrix import check_equal, timeless

from odedm import ODEDM, Experiment, Native, Observation, Prototypes, Reservoir, Run, UsageError, blobs, shapes, train
from odedm.checkpoint.schedule import Schedule
from odedm.core.checksums import write_checksums
from odedm.execute.job import Message, ProgressReport
from odedm.execute.run_job import run_job
from odedm.methods.icarl import ICarl
from odedm.results.comparison import compare
from odedm.results.folder import EVIDENCE_FILE, FILE
from odedm.results.result import Result
from odedm.results.verification import verify
from odedm.training.diagnostics import preserve_state, rows_per_class

VECTORS, IMAGES = blobs(per_class=16), shapes(per_class=12)
BOTH = Observation(evidence=True, anytime=3)
MEMORIES = {"reservoir": Reservoir(20), "native": Native(20), "odedm": ODEDM(20, k=1)}
PAIRS = [
    ("derpp", "odedm"), ("icarl", "native"), ("icarl", "odedm"), ("icarl", "reservoir"), ("puridiver", "native"),
    ("vrmcl", "reservoir"), ("pocl", "odedm"), ("refresh", "odedm"), ("fdr", "reservoir"),
]  # fmt: skip


def run_of(method, memory, data=VECTORS, observation=None, **words):
    words = {"method": method, "data": data.name, "device": "cpu", "batch": 8, **words}
    return Run(Experiment(MEMORIES[memory], **words), data, observation)


def without_looks(result):
    plain = timeless(result)
    plain.pop("anytime", None)
    return plain


def same_weights(one, other):
    pairs = zip(one.method.net.state_dict().values(), other.method.net.state_dict().values(), strict=True)
    return all(a.equal(b) for a, b in pairs)


@pytest.mark.parametrize(("method", "memory"), PAIRS)
def test_looking_changes_no_number(method, memory):
    data = IMAGES if method in ("icarl", "derpp") else VECTORS
    blind, looked = (run_of(method, memory, data, looks).finish() for looks in (None, replace(BOTH, anytime=99)))
    assert without_looks(blind.result) == without_looks(looked.result)
    assert same_weights(blind, looked)
    assert all(column.equal(looked.memory.rows()[name]) for name, column in blind.memory.rows().items())
    assert blind.result.anytime is None
    assert "anytime" not in blind.result.to_dict()
    assert blind.evidence is None
    assert "observe" not in blind.result.seconds
    assert looked.result.seconds["observe"] > 0


def test_tests_are_spread_over_each_task_and_end_with_its_own():
    outcome = run_of("er", "reservoir", observation=Observation(anytime=2)).finish()
    rows, values = zip(*outcome.result.anytime, strict=True)
    assert rows == (16, 26, 42, 52, 68, 78, 94, 104, 120, 130), "13 rows a class, batches of 8"
    assert list(values[1::2]) == outcome.result.acc
    often = run_of("er", "reservoir", observation=Observation(anytime=10**9)).finish().result.anytime
    ends = [start + done for start in range(0, 130, 26) for done in (8, 16, 24, 26)]
    assert [rows for rows, _ in often] == ends, "at most one a batch"
    assert [pair for pair in often if pair[0] in rows] == outcome.result.anytime


def test_a_test_in_mid_task_is_on_the_tasks_so_far_the_running_one_included():
    looks, seen = Observation(anytime=2), []
    run = run_of("er", "reservoir", observation=looks)
    own = run._evaluate

    def evaluate(task):
        seen.append((task, own(task)[0]))
        return own(task)

    run._evaluate = evaluate
    found = run.finish().result.anytime
    assert [task for task, _ in seen] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [len(row) for _, row in seen] == [task + 1 for task, _ in seen]
    assert [value for _, value in found] == [sum(row) / len(row) for _, row in seen]


def test_stored_rows_that_are_mixed_in_are_not_counted_as_seen():
    outcome = run_of("icarl", "reservoir", observation=Observation(anytime=99)).finish()
    rows = [rows for rows, _ in outcome.result.anytime]
    assert rows == sorted(set(rows)), "it grows from test to test"
    assert [value for rows, value in outcome.result.anytime if rows % 26 == 0] == outcome.result.acc


@pytest.mark.usefixtures("emulated_gpu")
@pytest.mark.parametrize("memory", MEMORIES)
def test_class_means_of_a_look_are_those_of_the_weights(memory):
    """Also where steps are replayed, which runs none of the method's own code."""
    found = []
    for recorded in (False, True):
        run = run_of("icarl", memory, shapes(), Observation(anytime=99), batch=4, cuda_graph=recorded)
        outcome = run.finish()
        assert (run.stepper.captured > 10) == recorded
        found.append(outcome)
    assert found[0].result.anytime == found[1].result.anytime
    assert same_weights(*found)


@pytest.mark.usefixtures("emulated_gpu")
@pytest.mark.parametrize("method", ["derpp", "puridiver"])
def test_a_replayed_run_sees_what_an_eager_one_does(method):
    plan = Experiment(MEMORIES["odedm"], method, data="shapes", device="cpu", batch=4)
    run = check_replayed_as_eager(plan, shapes(), observation=BOTH)
    assert run.progress.captured > 3


class Dreamer(ICarl):
    """A method whose predictions draw, cache and switch things, as no good one does."""

    def __post_init__(self):
        super().__post_init__()
        self.dreams, self.drawn = torch.Generator().manual_seed(1), 0

    def predict(self, x):
        self.drawn += 1
        self.late = torch.rand(3, generator=self.dreams)
        self.net.head.eval()
        return super().predict(x)


def test_whatever_a_look_does_to_a_method_is_undone():
    run = run_of("er", "reservoir")
    method = Dreamer(net=run.method.net, draw=4)
    method.begin_task(run.stream.tasks[0])
    before, state = dict(vars(method)), method.dreams.get_state()
    with preserve_state(method):
        run.engine.view.__class__(method, run.stream.transform).predict(VECTORS.test_image)
        assert method.drawn
    assert vars(method) == before, "and nothing new"
    assert method.dreams.get_state().equal(state)
    assert all(module.training for module in method.net.modules())


def test_a_generator_that_is_born_in_a_look_begins_anew_after_it():
    """It lies in something that the look leaves behind, so the next draw would go on where the look ended."""
    run = run_of("er", "reservoir")
    method = Dreamer(net=run.method.net, draw=4)
    method.drawers = {}
    with preserve_state(method):
        method.drawers["late"] = torch.Generator().manual_seed(5)
        first = torch.rand(3, generator=method.drawers["late"])
    assert torch.equal(torch.rand(3, generator=method.drawers["late"]), first)


def test_a_run_that_diverges_says_so_in_mid_task():
    with pytest.raises(UsageError, match=r"training diverged.*--lr"):
        train(VECTORS, memory=Reservoir(10), method="er", options={"lr": 1e30}, batch=2, anytime=9)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"anytime": -1}, "a whole number, 0 or more; -1 was given"),
        ({"anytime": 2.5}, "2.5 was given"),
        ({"anytime": True}, "True was given"),
        ({"evidence": 1}, "true or false; 1 was given"),
    ],
)
def test_impossible_looks_are_refused(words, sentence):
    with pytest.raises(UsageError, match=sentence):
        train("blobs", memory=Reservoir(5), **words)


KILLED = [("derpp", "odedm"), ("icarl", "native"), ("icarl", "odedm"), ("refresh", "odedm")]


class Looking(Driver):
    def __init__(self, memory, data, state=None, **options):
        super().__init__(memory, data, **options)
        plan = self.run.experiment
        self.run = Run(plan, data, BOTH)
        self.roots, self.external_tensors = self.run.roots(), self.run.external_tensors()
        if state is not None:
            from odedm.checkpoint.load_state_tree import load_state_tree

            load_state_tree(self.roots, state, self.external_tensors)


@pytest.mark.parametrize(("method", "memory"), KILLED)
def test_killed_and_resumed_has_seen_the_same(method, memory):
    words = {"method": method, "batch": 8}
    straight = Looking(MEMORIES[memory], VECTORS, **words)
    outcome, state = straight.go(), None
    for steps in (1, 2, 3, 1, 6):
        part = Looking(MEMORIES[memory], VECTORS, state, **words)
        assert part.go(steps) is None
        state = part.capture()
    killed = Looking(MEMORIES[memory], VECTORS, state, **words)
    again = killed.go()
    check_equal((straight, outcome), (killed, again))
    assert outcome.result.anytime == again.result.anytime
    assert outcome.evidence.keys() == again.evidence.keys()
    assert all(column.equal(again.evidence[name]) for name, column in outcome.evidence.items())


class _Killed(Exception):
    pass


def plan_of(memory="odedm", **words):
    return Experiment(MEMORIES[memory], **{"method": "derpp", "data": "blobs", "device": "cpu", "batch": 16} | words)


def kill(event):
    if isinstance(event, ProgressReport) and event.done >= event.total / 2:
        raise _Killed


@pytest.mark.parametrize(
    ("began", "asked", "restart", "said"),
    [
        (BOTH, BOTH, False, None),
        (BOTH, None, False, None),
        (BOTH, Observation(), False, "began with evidence and 3 tests a task, and goes on so. To have it without"),
        (Observation(), BOTH, False, "began without evidence or any-time accuracy, and goes on so. To have it with"),
        (Observation(), BOTH, True, None),
        (None, BOTH, False, "began without evidence"),
    ],
)
def test_a_resumed_run_keeps_the_looks_of_its_checkpoint(tmp_path, monkeypatch, began, asked, restart, said):
    monkeypatch.setattr("odedm.execute.run_job.TICK", 0.0)
    straight = run_job(job_of(plan_of(), tmp_path / "straight", observation=BOTH))
    often = Schedule.parse("3 steps")
    job = job_of(plan_of(), tmp_path / "killed", schedule=often, observation=began)
    with pytest.raises(_Killed):
        run_job(job, kill)
    told = []
    again = run_job(job_of(plan_of(), job.folder, schedule=often, restart=restart, observation=asked), told.append)
    lines = [event.line for event in told if isinstance(event, Message)]
    assert any("began with" in line for line in lines) == (said is not None)
    assert said is None or said in lines[0]
    looked = began == BOTH or restart
    assert (job.folder / EVIDENCE_FILE).is_file() == looked
    assert again.result.anytime == (straight.result.anytime if looked else None)
    if looked:
        assert (job.folder / EVIDENCE_FILE).read_bytes() == (tmp_path / "straight" / EVIDENCE_FILE).read_bytes()


@thorough
def test_lanes_look_as_a_run_alone_does(tmp_path):
    jobs = [job_of(plan_of(seed=seed), tmp_path / f"seed-{seed}", observation=BOTH) for seed in range(2)]
    for job, result in zip(jobs, run_all(jobs, workers=2), strict=True):
        alone = run_job(job_of(job.experiment, tmp_path / "alone" / job.folder.name, observation=BOTH))
        assert result.anytime == alone.result.anytime
        other = tmp_path / "alone" / job.folder.name / EVIDENCE_FILE
        assert (job.folder / EVIDENCE_FILE).read_bytes() == other.read_bytes()


@pytest.fixture(scope="module")
def looked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("looked") / "run"
    run_job(job_of(plan_of(), folder, observation=BOTH))
    return folder


@pytest.fixture
def copy(looked, tmp_path):
    import shutil

    return shutil.copytree(looked, tmp_path / "run")


def broken(folder):
    return {check.name: check.detail for check in verify(folder) if check.valid is False}


def test_evidence_is_sealed_and_sound(looked):
    assert EVIDENCE_FILE in json.loads((looked / "checksums.json").read_text())["files"]
    check_run(looked)
    columns = load_file(looked / EVIDENCE_FILE)
    assert len(columns["feature.memory"]) == 20
    assert len(columns["feature.data"]) == min(10 * rows_per_class(10), 480), "48 rows a class"
    assert (columns["choice.kept"] >= 0).sum() == 8
    assert Result.load(looked / FILE).anytime == Result.load(looked / FILE).to_dict()["anytime"]


@pytest.mark.parametrize("memory", ["reservoir", "native"])
def test_a_memory_that_chooses_nothing_gives_features_alone(memory, tmp_path):
    run_job(job_of(plan_of(memory), tmp_path / "run", observation=BOTH))
    assert set(load_file(tmp_path / "run" / EVIDENCE_FILE)) == {"feature.data", "feature.memory"}
    check_run(tmp_path / "run")


def test_an_empty_memory_and_means_in_place_of_rows_are_sound_too(tmp_path):
    for name, memory in {"empty": Reservoir(0), "mixup": ODEDM(20, k=1, selection=Prototypes(mixup=True))}.items():
        plan = replace(plan_of(), memory=memory, method="er")
        run_job(job_of(plan, tmp_path / name, observation=BOTH))
        check_run(tmp_path / name)
    assert set(load_file(tmp_path / "empty" / EVIDENCE_FILE)) == {"feature.data"}


def columns(function):
    def spoil(folder):
        found = load_file(folder / EVIDENCE_FILE)
        save_file(function(found) or found, folder / EVIDENCE_FILE)

    return spoil


def anytime(function):
    def spoil(folder):
        plain = json.loads((folder / FILE).read_text())
        plain["anytime"] = function(plain["anytime"])
        (folder / FILE).write_text(json.dumps(plain))

    return spoil


IMPLAUSIBLE = {
    "features of fewer rows": columns(lambda c: {**c, "feature.memory": c["feature.memory"][1:]}),
    "features that are none": columns(lambda c: c["feature.data"].__setitem__(0, np.nan)),
    "another choice": columns(lambda c: c["choice.kept"].__setitem__(c["choice.kept"] == 0, -1)),
    "a row twice": columns(lambda c: c["choice.index"].__setitem__(slice(0, 2), 5)),
    "time that goes back": anytime(lambda pairs: pairs[::-1]),
    "a better end": anytime(lambda pairs: [*pairs[:-1], [pairs[-1][0], 99.5]]),
    "above everything": anytime(lambda pairs: [[1, 101.0], *pairs]),
}


@pytest.mark.parametrize("kind", IMPLAUSIBLE)
def test_an_implausible_look_is_noticed(copy, kind):
    check_run(copy)
    IMPLAUSIBLE[kind](copy)
    assert "files" in broken(copy), "the checksums see any change"
    write_checksums(copy)
    with pytest.raises(AssertionError):
        check_run(copy)


@pytest.mark.parametrize("pairs", [[[1, 2, 3]], "often"])
def test_accuracies_through_the_stream_are_pairs(copy, pairs):
    anytime(lambda _: pairs)(copy)
    assert "pairs" in broken(copy)["result"]


def test_evidence_that_is_gone_is_missed(copy):
    (copy / EVIDENCE_FILE).unlink()
    assert broken(copy) == {"files": f"{EVIDENCE_FILE} is missing"}
    write_checksums(copy)
    assert broken(copy) == {}


def test_what_was_looked_at_is_compared_where_both_looked():
    blind, few, many = (
        run_of("er", "reservoir", observation=Observation(anytime=n)).finish().result for n in (0, 2, 4)
    )
    assert compare(blind, few).same_outcome, "to look is no difference"
    assert compare(few, few).same_outcome
    assert [row[0] for row in compare(few, many).outcome] == ["mean accuracy at any time, %"]
