"""Replayed steps change no number: every method, memory and ingredient, by graphs on a processor."""

from dataclasses import replace

import pytest
from emulated_graph import check_replayed_as_eager, states_of
from sampling import KEEPING, pairs
from test_resume_matrix import straight_and_killed

from odedm import ODEDM, Experiment, Native, NoMemory, Reservoir, UsageError, shapes
from odedm.core.registry import METHODS, POLICIES
from odedm.methods.er import ER
from odedm.training.preparation import prepare

DATA = shapes(per_class=12)
CAPTURABLE = [name for name in KEEPING if METHODS[name].load().capturable]
RECORDED_POLICIES = [name for name, entry in POLICIES.items() if entry.load().capturable]
FIRST = {"reservoir": Reservoir(12), "native": Native(12), "odedm": ODEDM(12, k=1, replay="both")}
MEMORIES = {
    **FIRST,
    "auxiliary": ODEDM(12, k=1, replay="auxiliary"),
    "union": ODEDM(12, k=1, replay="union"),
    "share": ODEDM(12, k=1, gamma_rule="share"),
    "filling": ODEDM(48, k=4, replay="both"),  # not full before the end, and larger parts than a draw
    "bounded": ODEDM(12, k=1, candidates=2),
    **{f"native {name}": Native(12, name) for name in RECORDED_POLICIES},
    **{f"odedm {name}": ODEDM(12, k=1, short_policy=name) for name in RECORDED_POLICIES},
}
INGREDIENTS = {
    "momentum": {"options": {"momentum": 0.9, "weight_decay": 0.01}},
    "adamw": {"optimizer": "adamw"},
    "updates": {"updates": 2, "predict": "nearest-mean"},
    "asymmetric": {"stream_loss": "asymmetric"},
    "adjusted": {"stream_loss": "adjusted", "updates": 2},
    "strong": {"views": "strong"},
    "rotations": {"views": "rotations"},
    "turned classes": {"views": "turned-classes"},
    "strong, turned": {"views": "strong-turned"},
    "no views": {"transform": "none"},
    "average": {"weight_average": 0.9},
    "mir": {"retrieval": "mir", "retrieval_options": {"candidates": 8}},
    "aser": {"retrieval": "aser"},
    "balanced": {"retrieval": "balanced"},
    "bfloat16": {"precision": "bf16"},
    "epochs": {"epochs": 2, "shuffle": True},
    "returning": {"recurring": 2},
    "domains": {"domain": "permuted", "tasks": 2},
    "mlp": {"net": "mlp"},
    "batch norm": {"net": "resnet18-slim", "net_options": {"width": 4}},
    "transformer": {"net": "vit", "net_options": {"depth": 1}},
}
"""What may be had beside a method and a memory; what cannot be had with a method is left out."""
OPTIONS = {
    "vrmcl": [{"meta_updates": 2, "split": "position", "clamp_rates": True}, {"second_order": False}],
    "pocl": [{"groups": "released", "slice": "released"}, {"pos_split": True, "cumulative": True, "warmup": 1}],
    "puridiver": [{"fit": True, "fit_epochs": 2}],
    "icarl": [{"bce_columns": "seen", "flip": True, "l2": 0.01}],
    "refresh": [{"fisher_mode": "eval"}],
    "onpro": [{"turns": 4}],
    "scr": [{"area": 0.5}],
    "cope": [{"iterations": 2}, {"repellor_gradient": True}],
}
"""Options by which a method takes another way."""
LEAST = {"pocl": 0, "onpro": 4}
"""Steps that are replayed at least, of methods that repeat few."""
pytestmark = pytest.mark.usefixtures("emulated_gpu")


def plan_of(method, memory, **words):
    options = {**({"turns": 1} if method == "onpro" else {}), **words.pop("options", {})}  # 16 turns take no other path
    given = {"data": "shapes", "device": "cpu", "batch": 3, "replay_batch": 4, "options": options, **words}
    return Experiment(memory, method, **given)


def is_possible(plan):
    try:
        prepare(plan, DATA)
    except UsageError:
        return False
    return True


@pytest.mark.parametrize(("method", "memory"), pairs(CAPTURABLE, MEMORIES, (), per_method=2))
def test_every_method_with_every_memory(method, memory):
    run = check_replayed_as_eager(plan_of(method, MEMORIES[memory]), DATA)
    if memory != "filling":  # where choices look at all rows, each number of them is a kind of its own
        assert run.progress.captured >= LEAST.get(method, 7)


WITH_INGREDIENTS = [
    (method, name)
    for method, name in pairs(CAPTURABLE, INGREDIENTS, (), per_method=2)
    if is_possible(plan_of(method, MEMORIES["share"], **INGREDIENTS[name]))
]


@pytest.mark.parametrize(("method", "ingredient"), WITH_INGREDIENTS)
def test_every_method_with_every_ingredient(method, ingredient):
    run = check_replayed_as_eager(plan_of(method, MEMORIES["share"], **INGREDIENTS[ingredient]), DATA)
    assert run.progress.captured >= LEAST.get(method, 6)


@pytest.mark.parametrize(("method", "options"), [(name, own) for name, every in OPTIONS.items() for own in every])
def test_options_by_which_a_method_takes_another_way(method, options):
    check_replayed_as_eager(plan_of(method, MEMORIES["odedm"], options=options), DATA)


def test_a_verdict_of_pocl_is_a_recording_of_its_own():
    memory = replace(MEMORIES["odedm"], short_policy="native")
    run = check_replayed_as_eager(plan_of("pocl", memory, net="mlp", options={"warmup": 1}), DATA)
    assert run.progress.captured > 1
    assert run.method.verdict.replayed > 10


class Slowing(ER):
    """ER whose rate falls from task to task, in the optimizer's groups alone."""

    def begin_task(self, task):
        super().begin_task(task)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr / (1 + task.index)


def test_a_rate_that_only_the_optimizers_groups_know_is_that_of_each_task():
    assert check_replayed_as_eager(plan_of(Slowing, MEMORIES["reservoir"]), DATA).progress.captured >= 7


@pytest.mark.parametrize("method", ["finetune", "derpp", "er-ace"])
def test_without_a_memory(method):
    assert check_replayed_as_eager(plan_of(method, NoMemory()), DATA).progress.captured > 8


@pytest.mark.parametrize(
    ("method", "memory"), [("derpp", "odedm"), ("icarl", "native"), ("puridiver", "native"), ("vrmcl", "reservoir")]
)
def test_a_killed_run_that_goes_on_has_the_state_of_one_that_was_not_killed(method, memory):
    words = {"method": method, "batch": 2, "options": {"momentum": 0.9}}
    (straight, _), (killed, _) = straight_and_killed(MEMORIES[memory], DATA, [5, 9], **words)
    assert states_of(straight.run) == states_of(killed.run)
    assert killed.run.stepper.captured > 5
    assert straight.run.stepper.captured > killed.run.stepper.captured, "kinds are new to each process"
