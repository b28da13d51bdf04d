"""Schedules of the learning rate, gradient clipping and optimizers by name, also in a run that was killed."""

import functools
import json
import math

import pytest
import torch
from commands import odedm as command
from emulated_graph import check_replayed_as_eager
from test_resume_matrix import straight_and_killed
from torch.optim import lr_scheduler

import odedm
from odedm import ODEDM, Experiment, Native, Reservoir, UsageError, blobs, shapes
from odedm.core.registry import OPTIMIZERS
from odedm.stream.tasks import split
from odedm.studies.spec import parse

DATA = blobs(per_class=16)
"""Five tasks of 26 rows: four batches of 8 each."""
BATCHES = 20


def halved_every_ten(number):
    return 0.5 ** (number // 10)


ONE_CYCLE = functools.partial(lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=100)


def rates(method="er", data=DATA, memory=None, **settings):
    found = []

    class Look:
        def after_step(self, run):
            found.append(float(run.method.optimizer.param_groups[0]["lr"]))

    settings = {"batch": 8, "device": "cpu", "progress": False, "lr": 0.1, **settings}
    outcome = odedm.train(data, method=method, memory=memory or Reservoir(20), callbacks=[Look()], **settings)
    return found, outcome


def cosine(share):
    return 0.1 * (1 + math.cos(math.pi * share)) / 2


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, [0.1] * BATCHES),
        ({"schedule": "constant"}, [0.1] * BATCHES),
        ({"schedule": "linear"}, [0.1 * (1 - done / BATCHES) for done in range(BATCHES)]),
        ({"schedule": "cosine"}, [cosine(done / BATCHES) for done in range(BATCHES)]),
        ({"schedule": "cosine", "schedule_over": "task"}, [cosine(done / 4) for done in range(4)] * 5),
        ({"schedule": "linear", "epochs": 2}, [0.1 * (1 - done / 40) for done in range(40)]),
        ({"warmup": 4}, [0.025, 0.05, 0.075] + [0.1] * 17),
        ({"warmup": 2, "schedule_over": "task"}, [0.05, 0.1, 0.1, 0.1] * 5),
        ({"warmup": 10, "schedule": "linear"}, [0.01 * n for n in range(1, 11)] + [0.1 - 0.01 * n for n in range(10)]),
        ({"schedule": halved_every_ten}, [0.1] * 10 + [0.05] * 10),
        ({"schedule": halved_every_ten, "schedule_over": "task", "warmup": 2}, [0.05, 0.1, 0.1, 0.1] * 5),
        ({"schedule": lambda optimizer: lr_scheduler.StepLR(optimizer, 5)}, [10.0 ** -(1 + n // 5) for n in range(20)]),
        (
            {"schedule": lambda optimizer: lr_scheduler.StepLR(optimizer, 2), "schedule_over": "task"},
            [0.1, 0.1, 0.01, 0.01] * 5,
        ),
    ],
)
def test_every_batch_is_made_with_the_rate_of_the_schedule(settings, wanted):
    assert rates(**settings)[0] == pytest.approx(wanted)


def test_a_schedule_of_the_stream_ends_with_it_where_stored_rows_are_mixed_in():
    found, _ = rates("icarl", memory=Native(20), schedule="linear")
    assert len(found) > BATCHES
    assert found == sorted(found, reverse=True)
    assert 0 < found[-1] < 0.1 / 15


def test_the_weights_are_those_of_the_rates():
    """SGD by hand on the stream, without a memory."""
    outcome = rates("finetune", memory=odedm.NoMemory(), schedule="linear", clip_norm=0.5)[1]
    net = rates("finetune", memory=odedm.NoMemory(), lr=0.0)[1].method.net.train()
    stream = odedm.Run(Experiment(odedm.NoMemory(), "finetune", data=DATA.name, batch=8, device="cpu"), DATA).stream
    parts = [part for task in stream.tasks for part in zip(*(task.rows[c].split(8) for c in ("image", "label")))]  # noqa: B905
    for done, (image, label) in enumerate(parts):
        net.zero_grad()
        torch.nn.functional.cross_entropy(net(stream.transform.normalize(image)), label).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        with torch.no_grad():
            for weight in net.parameters():
                weight.sub_(0.1 * (1 - done / len(parts)) * weight.grad)
    for found, wanted in zip(outcome.method.net.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


RESUMED = {
    "cosine": {"schedule": "cosine", "warmup": 3, "clip_norm": 1.0},
    "linear in tasks": {"schedule": "linear", "schedule_over": "task", "options": {"momentum": 0.9}},
    "function": {"schedule": halved_every_ten, "optimizer": "adamw", "options": {"lr": 0.01}},
    "one of torch's": {"schedule": ONE_CYCLE, "options": {"momentum": 0.9}},
    "one of torch's in tasks": {"schedule": ONE_CYCLE, "schedule_over": "task", "optimizer": "adam"},
    "rmsprop": {"optimizer": "rmsprop", "optimizer_options": {"alpha": 0.5}, "options": {"lr": 1e-3, "momentum": 0.5}},
}


@pytest.mark.parametrize("name", RESUMED)
@pytest.mark.parametrize("method", ["derpp", "icarl"])
def test_killed_in_mid_task_and_resumed_equals_unkilled(method, name):
    if method == "icarl" and name not in ("cosine", "one of torch's"):
        pytest.skip("one of each kind is enough for a method that renews its optimizer")
    memory = Native(20) if method == "icarl" else ODEDM(20, k=1)
    whole, killed = straight_and_killed(memory, DATA, [1, 2, 3, 5], method=method, batch=8, **RESUMED[name])
    weights = [driver.run.method.net.state_dict() for driver, _ in (whole, killed)]
    assert all(weights[0][key].equal(weights[1][key]) for key in weights[0])


@pytest.mark.usefixtures("emulated_gpu")
@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "cosine", "warmup": 3, "clip_norm": 0.5},
        {"schedule": "linear", "schedule_over": "task", "optimizer": "adamw"},
        {"schedule": halved_every_ten, "options": {"momentum": 0.9}},
    ],
    ids=["cosine", "linear", "function"],
)
@pytest.mark.parametrize("method", ["derpp", "agem", "icarl"])
def test_recorded_steps_follow_the_schedule(method, settings):
    plan = Experiment(ODEDM(12, k=1), method, data="shapes", device="cpu", batch=2, **settings)
    assert check_replayed_as_eager(plan, shapes(per_class=12)).progress.captured > 10


@pytest.mark.usefixtures("emulated_gpu")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"optimizer": "adagrad"}, "the optimizer 'adagrad' is not known to be right in CUDA graphs"),
        ({"schedule": ONE_CYCLE}, "schedulers of torch such as .* are not known to be right"),
    ],
)
def test_what_is_not_known_to_be_capturable_runs_eagerly_and_says_so(settings, said):
    plan = Experiment(Reservoir(12), "er", data="shapes", device="cpu", batch=2, **settings)
    with pytest.warns(UserWarning, match=said):
        run = odedm.Run(plan, shapes(per_class=12))
    run.finish()
    assert run.stepper.captured == 0


@pytest.mark.parametrize(
    ("method", "goes_on"), [("er", True), ("derpp", True), ("onpro", True), ("icarl", False), ("puridiver", False)]
)
def test_the_optimizer_goes_on_over_a_border_unless_the_paper_renews_it(method, goes_on):
    engine = odedm.Run(Experiment(Reservoir(20), method, data=DATA.name, device="cpu"), DATA).engine
    tasks = split(DATA, tasks=5).tasks
    engine.begin_task(tasks[0])
    first = engine.method.optimizer
    engine.begin_task(tasks[1])
    assert (engine.method.optimizer is first) == goes_on


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_of_the_list_is_torchs_and_learns(name):
    found, outcome = rates(optimizer=name, lr=0.01 if name != "adadelta" else 1.0, schedule="linear")
    assert type(outcome.method.optimizer).__name__.lower().removeprefix("plain") == name
    assert len(found) == BATCHES
    assert all(weight.isfinite().all() for weight in outcome.method.net.parameters())


REFUSED = {
    "an unknown schedule": ({"schedule": "cosin"}, "did you mean 'cosine'"),
    "no number": ({"schedule": 3}, "schedule must be a name, one of constant, linear, cosine"),
    "text from a function": ({"schedule": lambda optimizer: "fast"}, "must give a number, or a scheduler"),
    "a function that fails": ({"schedule": lambda: 1}, "must be a function of a batch's number"),
    "an endless factor": ({"schedule": lambda number: math.inf if number else 1.0}, "must give a finite number"),
    "no norm": ({"clip_norm": 0.0}, "clip_norm must be above 0"),
    "a negative norm": ({"clip_norm": -1}, "clip_norm must be a finite number, 0 or more"),
    "no warm-up": ({"warmup": 0}, "warmup must be a whole number, 1 or more"),
    "a span of nothing": ({"schedule_over": "task"}, "is for a schedule or a warm-up"),
    "momentum for adamw": ({"optimizer": "adamw", "options": {"momentum": 0.9}}, "'adamw' takes no momentum"),
    "an option that is none": ({"optimizer": "adamw", "optimizer_options": {"beta": 1}}, "has no option 'beta'"),
    "an option of the method": ({"optimizer": "adamw", "optimizer_options": {"lr": 1}}, "has no option 'lr'"),
    "one of two numbers": ({"optimizer": "adamw", "optimizer_options": {"betas": 0.9}}, "betas must be 2 numbers"),
    "text for a number": ({"optimizer": "adamw", "optimizer_options": {"eps": "x"}}, "eps must be a finite number"),
    "a value that it refuses": ({"optimizer": "adamw", "optimizer_options": {"betas": (2, 2)}}, "refuses what it was"),
    "nesterov alone": ({"optimizer_options": {"nesterov": True}}, "Nesterov momentum requires a momentum"),
    "no stream updates": ({"method": "gdumb", "schedule": "cosine"}, "GDumb takes no schedule of its learning rate"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_a_sentence(name):
    settings, sentence = REFUSED[name]
    with pytest.raises(UsageError, match=sentence):
        odedm.train(DATA, memory=Reservoir(20), **{"method": "er", "device": "cpu", "progress": False, **settings})


def test_a_command_and_a_study_give_them_as_any_setting(tmp_path):
    words = ["run", "--data", "blobs", "--method", "er", "--memory", "reservoir", "--capacity", "20", "--device", "cpu"]
    words += ["--set", "training.optimizer=adamw", "--set", "training.schedule=cosine", "--set", "training.clip_norm=1"]
    words += ["--set", "optimizer.betas=0.5,0.9"]
    words += ["--set", "training.warmup=3", "--set", "training.schedule_over=task", "--out", str(tmp_path)]
    command(*words)
    (path,) = tmp_path.rglob("result.json")
    found = json.loads(path.read_text(encoding="utf-8"))["experiment"]
    chosen = {name: found[name] for name in ("schedule", "schedule_over", "warmup", "clip_norm")}
    assert chosen == {"schedule": "cosine", "schedule_over": "task", "warmup": 3, "clip_norm": 1.0}
    assert found["optimizer_options"] == {"betas": "0.5,0.9"}
    assert Experiment.from_dict(found).describe() == found
    study = parse("[[grid]]\nschedule = ['constant', 'cosine']\nclip_norm = [1.0, 5.0]\nwarmup = 5\nmethod = 'er'")
    assert len({plan.slug() for grid in study.grids for plan in grid.experiments()}) == 4
    study = parse(
        "method = 'er'\noptimizer = ['sgd', 'adamw']\n[optimizer_options.adamw]\nbetas = ['0.5,0.9', '0.9,0.99']"
    )
    plans = [plan for grid in study.grids for plan in grid.experiments()]
    assert [plan.optimizer_options for plan in plans] == [None, {"betas": "0.5,0.9"}, {"betas": "0.9,0.99"}]
    assert parse(study.to_toml()).grids == study.grids
    plain = Experiment(Reservoir(20), "er").describe()
    assert not {"schedule", "warmup", "clip_norm", "optimizer_options"} & set(plain), "stored only where given"
