"""Optimisers, training views and callbacks, by name or from outside."""

import pytest
import torch

import odedm
from odedm import Experiment, Reservoir, UsageError
from odedm.execute.finished import key_of_result
from odedm.learner.config import LearnerConfig
from odedm.results.comparison import compare
from odedm.testing.contracts import check_exact
from odedm.training.experiment import content_key


def train(**more):
    return odedm.train("shapes", **{"method": "er", "memory": Reservoir(20), "net": "mlp", **more})


def test_another_optimizer_is_another_experiment():
    plain = Experiment().describe()
    assert content_key({**plain, "optimizer": "adamw"}) != content_key(plain)
    assert Experiment.from_dict(plain) == Experiment()


def test_an_optimizer_of_torchs_own_is_told_the_rates_it_takes():
    own = train(optimizer=lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, fused=True))
    assert own.result.class_il == train().result.class_il
    made = train(optimizer=torch.optim.Adagrad, options={"lr": 0.02, "weight_decay": 0.1}).method.optimizer
    assert isinstance(made, torch.optim.Adagrad)
    assert (made.defaults["lr"], made.defaults["weight_decay"]) == (0.02, 0.1)
    assert isinstance(train(optimizer="adamw").method.optimizer, torch.optim.AdamW)


def test_a_run_with_adamw_goes_on_from_a_checkpoint():
    check_exact(Reservoir(20), method="er", optimizer="adamw")


def test_views_from_outside_are_of_raw_images_and_draw_by_the_runs_generator():
    seen = []

    def noisy(image, rng):
        seen.append(image.dtype)
        return image.flip(-1) if torch.rand((), generator=rng) < 0.5 else image

    first, second = (train(transform=noisy).result.class_il for _ in range(2))
    assert first == second
    assert set(seen) == {odedm.shapes().image.dtype}
    plain = train(transform="none").result.class_il
    assert train(transform=lambda image: image).result.class_il == plain


REFUSED = {
    "no tensor": ({"transform": lambda image: 3}, "must give a tensor"),
    "another shape": ({"transform": lambda image: image[:1]}, "must give a tensor"),
    "no optimizer": ({"optimizer": lambda parameters: 3}, "must give a torch.optim.Optimizer"),
    "a method's own": ({"optimizer": "adamw", "method": "puridiver"}, "has an optimizer of its own"),
    "an unknown one": ({"optimizer": "adanw"}, "did you mean 'adamw'"),
    "one callback": ({"callbacks": print}, "callbacks must be a list"),
    "a class": ({"callbacks": [dict]}, "A callback must be a function"),
    "a live memory": ({"memory": odedm.DualMemory(capacity=5, k=1)}, "or a subclass of odedm.Memory"),
    "a yes for a memory": ({"memory": True}, "a number of rows for an ODEDM"),
    "too small a memory": ({"memory": -5}, "capacity must be a whole number of rows, 0 or more"),
    "a hyper-parameter": (
        {"method": "derpp", "alpha": 0.2},
        r"of derpp, and those go together: options=\{'alpha': 0.2\}",
    ),
    "one of another's": ({"method": "er", "alpha": 0.2}, "Unknown keyword of train 'alpha'"),
    "a rate twice": ({"lr": 0.1, "options": {"lr": 0.1}}, "lr was given twice"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_with_a_sentence(case):
    settings, sentence = REFUSED[case]
    with pytest.raises(UsageError, match=sentence):
        train(**settings)


def test_callbacks_follow_a_run():
    told = []

    class Own:
        def after_step(self, run):
            told.append(run.progress.step)

        def after_run(self, outcome):
            told.append(outcome.result.acc_last)

    outcome = train(callbacks=[Own(), lambda run: told.append(f"task {run.progress.task}")])
    assert [each for each in told if isinstance(each, str)] == ["task 1", "task 2", "task 3"]
    assert told[0] == 1
    assert told[-1] == outcome.result.acc_last


def test_a_number_is_the_capacity_of_an_odedm_from_every_door():
    assert odedm.Experiment(memory=50).memory == odedm.ODEDM(50)
    assert train(memory=20).result.experiment["memory"]["capacity"] == 20
    assert odedm.DualMemory.from_config(50).settings.capacity == 50
    assert LearnerConfig.of(odedm.Learner(memory=50).get_params()).memory.capacity == 50


def test_a_callback_is_part_of_what_a_run_is():
    """It may change training, so the same settings with it are another run, and tables say so."""

    def double_the_rate(run):
        run.method.optimizer.param_groups[0]["lr"] *= 2

    settings = {"data": "blobs", "method": "er", "memory": Reservoir(20), "device": "cpu"}
    plain, changed = odedm.train(**settings), odedm.train(**settings, callbacks=[double_the_rate])
    assert key_of_result(plain.result) != key_of_result(changed.result)
    assert changed.result.code_hashes().keys() == {"callback 1"}
    assert "callback" in str(compare(plain.result, changed.result).to_dict())
    results = odedm.Results(plain, changed)
    assert len(results.table.rows) == 2
    assert "callback 1" in str(results)
