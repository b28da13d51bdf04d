"""Runs on streams of any shape: accuracies against slow oracles, every method, exact resume, results and reports."""

import json
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
import torch
from driver import Driver
from equal_states import equal_states
from plausible import check_run
from rich.console import Console
from sampling import KEEPING, QUICK, pairs

from odedm import ODEDM, Experiment, Native, Prototypes, Reservoir, Results, UsageError, blobs, shapes, split, train
from odedm.core.registry import METHODS
from odedm.core.rows import Task
from odedm.methods.hyperparameters import configure
from odedm.methods.meta_learning import Objective
from odedm.nets.small import MLP
from odedm.report.load import load
from odedm.report.page import save_page
from odedm.report.summary import summarise
from odedm.report.tables import to_csv, to_latex, to_markdown
from odedm.report.terminal import print_run, print_table
from odedm.results.comparison import compare
from odedm.results.result import Result
from odedm.results.verification import is_valid, verify
from odedm.studies.grid import Grid
from odedm.training.evaluation import evaluate
from odedm.training.experiment import content_key

SMALL = blobs(per_class=10, classes=4, tasks=2)
STREAMS = {
    "recurring": {"recurring": 2},
    "blurry and unequal": {"task_classes": (1, 3), "blur": 0.3, "shuffle": False},
    "domains": {"domain": "permuted", "tasks": 3},
}


# -- evaluation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", ["seen", "all"])
@pytest.mark.parametrize("labels", [((0, 1), (2,)), ((0, 1), (1, 2)), ((1,), (0, 1, 2), (1,)), ((0, 1, 2, 3),) * 2])
def test_accuracies_are_those_of_a_slow_oracle(labels, columns):
    rng = np.random.default_rng(len(labels))
    scores = torch.from_numpy(rng.normal(size=(60, 5)).astype(np.float32))
    tests = []
    for own in labels:
        rows = torch.from_numpy(rng.integers(0, 60, 25))
        tests.append({"image": rows[:, None], "label": torch.from_numpy(rng.choice(own, 25))})
    for after in range(1, len(labels) + 1):
        found, masked = evaluate(lambda x: scores[x[:, 0]], tests[:after], labels=labels, columns=columns)
        seen = sorted({each for own in labels[:after] for each in own})
        among = range(5) if columns == "all" else seen
        shared = len({each for own in labels for each in own}) < sum(map(len, labels))
        assert (masked is None) == shared
        for index, test in enumerate(tests[:after]):
            rows = list(zip(test["image"][:, 0].tolist(), test["label"].tolist(), strict=True))
            right = sum(max(among, key=lambda c: scores[row, c]) == label for row, label in rows)
            assert found[index] == 4.0 * right
            if masked is not None:
                right = sum(max(labels[index], key=lambda c: scores[row, c]) == label for row, label in rows)
                assert masked[index] == 4.0 * right


def test_test_rows_of_classes_that_returned_are_looked_at_once():
    looks = []
    test = {"image": torch.zeros(3, 1), "label": torch.zeros(3, dtype=torch.int64)}

    def predict(image):
        looks.append(len(image))
        return torch.eye(2)[torch.zeros(len(image), dtype=torch.int64)]

    assert evaluate(predict, [test, test], labels=((0,), (0,))) == ([100.0, 100.0], None)
    assert looks == [3]


# -- methods ----------------------------------------------------------------------------------------------------------


def straight_and_killed(memory, kills, **options):
    straight = Driver(memory, SMALL, **options)
    outcome, state = straight.go(), None
    for steps in kills:
        part = Driver(memory, SMALL, state, **options)
        assert part.go(steps) is None
        state = part.capture()
    killed = Driver(memory, SMALL, state, **options)
    again = killed.go()
    for each in (straight, killed):
        each.run.timer.seconds.clear()
    assert equal_states(straight.capture(), killed.capture()) == []
    return outcome.result, again.result


@pytest.mark.parametrize(("method", "stream"), pairs(KEEPING, STREAMS, ("recurring",)))
def test_every_method_on_every_stream_and_killed_on_the_way(method, stream):
    memory = ODEDM(24, rho=0.5, selection=Prototypes("l2", dac=None)) if stream != "domains" else Native(20)
    options = {"method": method, "batch": 8, "options": QUICK.get(method, {}), **STREAMS[stream]}
    one, other = straight_and_killed(memory, [1, 3], **options)
    assert one.class_il == other.class_il
    assert one.class_counts == other.class_counts
    assert (one.task_il is None) == (stream != "blurry and unequal")
    if stream == "recurring":
        assert one.task_labels == [[0, 1], [2, 3], [0, 1], [2, 3]]
        assert one.class_counts[-1]["long"] == [4, 4, 2, 2], "each has its quota, chosen anew or not"
    assert all(sum(entry["short"]) + sum(entry["long"]) <= memory.capacity for entry in one.class_counts)


def method_of(name, classes=6):
    kind = METHODS[name].load()
    net = MLP((3,), classes, width=4)
    return kind(net=net, draw=4, rng=lambda _: torch.Generator(), **configure(name, kind, {}))


def test_icarl_takes_returned_classes_by_their_labels_and_the_other_old_ones_from_its_teacher():
    method = method_of("icarl")
    expected = [((0, 1), 0, 2, []), ((2, 3), 2, 4, [0, 1]), ((0, 1), 4, 4, [2, 3]), ((1, 4), 4, 5, [0, 2, 3])]
    for index, (classes, old, seen, recalled) in enumerate(expected):
        method.begin_task(Task(index, 4, classes, {}))
        assert (method.old, method.seen) == (old, seen)
        assert method.recalled[: method.old].nonzero().flatten().tolist() == recalled


def competing(goal: Objective):
    """The classes among which each row competes, read off the gradient of its loss."""
    logits = torch.zeros(len(goal.label), 6, requires_grad=True)
    goal.loss(logits).backward()
    return [row.nonzero().flatten().tolist() for row in logits.grad]


def test_vrmcl_keeps_old_classes_out_of_the_way_of_returned_ones():
    method = method_of("vrmcl")
    for index, classes in enumerate([(0, 1), (2, 3), (0, 1)]):
        method.begin_task(Task(index, 4, classes, {}))
    rows = {"input": torch.zeros(2, 3), "label": torch.tensor([0, 3]), "task": torch.tensor([2, 1])}
    rows["share"] = torch.ones(2)
    assert competing(method.query(rows, 1)) == [[0, 1, 4, 5], [0, 1, 2, 3]]


def test_pocl_lets_memory_rows_compete_among_all_seen_classes():
    kind = METHODS["pocl"].load()
    own = {**configure("pocl", kind, {}), "pos_split": True, "pool": 1}
    method = kind(net=MLP((3,), 6, width=4), draw=4, rng=lambda _: torch.Generator(), **own)
    for index, classes in enumerate([(0, 1), (2, 3), (0, 1)]):
        method.begin_task(Task(index, 4, classes, {}))
    rows = {"input": torch.zeros(2, 3), "label": torch.tensor([0, 3]), "task": torch.tensor([2, 1])}
    assert competing(method.query(rows | {"share": torch.ones(2)})) == [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3]]


# -- results ----------------------------------------------------------------------------------------------------------

LASTING = {
    "recurring": {"recurring": 2},
    "unequal": {"task_classes": (2, 4), "noise": 0.1},
    "rotated": {"domain": "rotated", "tasks": 3},
    "single": {"tasks": 1},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    for name, options in LASTING.items():
        for memory in [ODEDM(40, rho=0.5, selection=Prototypes("l2", dac=None)), Reservoir(40)][
            : 1 + (name == "recurring")
        ]:
            outcome = train("shapes", memory=memory, method="er", evidence=True, limit=15, device="cpu", **options)
            outcome.save(place / f"{name}-{memory.name}")
    return place


def test_saved_runs_are_sound_and_edited_ones_are_not(saved):
    for name in (*(f"{each}-odedm" for each in LASTING), "recurring-reservoir"):
        check_run(saved / name)
    path = saved / "recurring-odedm" / "result.json"
    whole = path.read_text()
    result = Result.load(path)
    assert Result.from_dict(result.to_dict()) == result
    edits = {"task_labels": [[0, 1]] * 5, "task_il": result.class_il, "forgetting": None}
    for name, value in edits.items():
        path.write_text(json.dumps({**result.to_dict(), name: value}))
        assert not is_valid(verify(path.parent)), name
    for value in ([[0, 99]] * 6, [[0]], "all", [[]] * 6, [[True]] * 6):
        with pytest.raises(UsageError, match="'task_labels' does not hold labels of the classes for each of 6 tasks"):
            Result.from_dict({**result.to_dict(), "task_labels": value})
    path.write_text(whole)


def test_reports_leave_out_what_is_not_defined(saved, tmp_path):
    table = summarise(load([saved]))
    save_page(table, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    out = Console(file=StringIO(), width=120)
    print_table(table, out)
    assert "–" in out.file.getvalue()
    assert "there is none where tasks share classes" in page
    assert "tasks of 2+4" in to_markdown(table)
    assert "| – |" in to_markdown(table)
    assert all("None" not in made(table) for made in (to_markdown, to_csv, to_latex))
    for name in LASTING:
        out = Console(file=StringIO(), width=200)
        print_run(Result.load(saved / f"{name}-odedm" / "result.json"), out)
        said = out.file.getvalue()
        assert ("Forgetting" in said) == (name != "single")
        assert ("Task-IL accuracy, %" in said) == (name in ("unequal", "single"))
    frame = Results(saved).to_frame(by_task=True)
    assert frame["task_il"].isna().any()
    one, other = (Result.load(saved / name / "result.json") for name in ("recurring-odedm", "unequal-odedm"))
    assert "another stream (by tasks, task_classes, recurring, noise)" in compare(one, other).verdict()


def test_streams_that_differ_have_keys_that_differ():
    plain = Experiment(ODEDM(40, k=2), data="blobs", tasks=5)
    changes = ({"task_classes": (4, 6)}, {"recurring": 2}, {"domain": "same"}, {"shuffle": False})
    others = [replace(plain, **change) for change in changes]
    assert len({content_key(each.describe()) for each in (plain, *others)}) == 5
    assert all(Experiment.from_dict(each.describe()) == each for each in others)


def test_streams_are_axes_of_a_study():
    grid = Grid({"task_classes": ("none", "2,3,5", (5, 5)), "recurring": (1, 2), "shuffle": (True, False)})
    plans = grid.experiments()
    assert len(plans) == 12
    assert {plan.task_classes for plan in plans} == {None, (2, 3, 5), (5, 5)}
    with pytest.raises(UsageError, match="'task_classes' must be how many classes each task has"):
        Grid({"task_classes": (2, 3, 5)})


@pytest.mark.parametrize(
    ("options", "tasks"),
    [({"task_classes": (2, 3, 5)}, 2), ({"recurring": 3}, 2), ({"recurring": 3}, 7), ({"domain": "permuted"}, 2)],
)
def test_any_stream_can_be_validated_on_its_first_tasks(options, tasks):
    data = blobs(per_class=20)
    whole = split(data, **options, validation=0.2)
    first = split(data, **options, validation=0.2, first_tasks=tasks)
    assert first.schedule == whole.schedule
    assert first.labels == whole.labels[:tasks]
    for one, other in zip([*first.tasks], whole.tasks, strict=False):
        assert torch.equal(one.rows["image"], other.rows["image"])
    result = train(data, memory=Reservoir(10), method="er", validation=0.2, first_tasks=tasks, **options).result
    assert len(result.acc) == tasks


def test_a_choice_on_the_first_tasks_has_the_quotas_of_the_whole_stream():
    data = blobs(per_class=30)  # 24 to learn, less 20 %, over three visits: 6 or more a visit, so the quota decides
    for options, quota in (({"task_classes": (2, 4, 4)}, [5, 5]), ({"task_classes": (2, 8), "recurring": 3}, [6, 6])):
        memory = ODEDM(40, rho=0.5, selection=Prototypes("l2", dac=None))
        counts = Driver(memory, data, validation=0.2, first_tasks=2, **options).go().result.class_counts
        assert counts[-1]["long"][:2] == quota


def test_images_of_a_rotated_stream_are_learned():
    data = shapes(per_class=30)
    result = train(
        data,
        memory=ODEDM(60, rho=0.5, selection=Prototypes("l2", dac=None)),
        method="er",
        domain="rotated",
        tasks=4,
        device="cpu",
    ).result
    assert result.acc_last > 25, "chance is 17 per cent"
    assert result.experiment["memory"]["k"] == 5
