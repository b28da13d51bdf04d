"""Options of memory policies: the keywords of a constructor, whoever wrote it, through every door."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from odedm import ODEDM, DualMemory, Learner, Native, UsageError, blobs, train
from odedm.cli.app import app
from odedm.core import registry
from odedm.memory.buffer import Buffer
from odedm.memory.purity import PuriDivERBuffer
from odedm.studies.spec import parse


class Told(Buffer):
    """A policy from outside that keeps the newest rows of every so many, and wants to know the classes."""

    seen = ()

    def __init__(self, capacity, fields, device="cpu", every=2, *, classes, loud=False):
        super().__init__(capacity, fields, device)
        self.every = every
        if capacity:
            Told.seen = (classes, every, loud)

    def add(self, rows, probe, *, rng):
        self.insert(rows, (rows["index"].double() + 1) / 1e6 * (rows["index"] % self.every == 0))

    def end_task(self, task, probe, *, rng):
        pass


@pytest.fixture
def told(monkeypatch):
    class Here(registry.Entry):
        def load(self):
            return Told

    monkeypatch.setitem(registry.POLICIES, "told", Here("", "Told."))


@pytest.mark.parametrize("plan", [Native, ODEDM])
def test_a_policy_from_outside_is_told_the_classes_and_its_options(told, plan):
    name = "policy" if plan is Native else "short_policy"
    options = {"every": "3", "loud": "true"}
    outcome = train(blobs(per_class=10), memory=plan(20, **{name: "told"}, policy_options=options), method="er")
    assert Told.seen == (10, 3, True)
    assert outcome.result.experiment["memory"]["policy_options"] == {"every": 3, "loud": True}
    assert outcome.memory.size() == 20


REFUSED = {
    "unknown": ({"evry": 3}, "memory policy 'told' has no option 'evry'; it has every, loud"),
    "the run's": ({"classes": 3}, "has no option 'classes'; it has every, loud"),
    "no number": ({"every": "often"}, "every must be a whole number; 'often' was given"),
    "a fraction": ({"every": 2.9}, r"every must be a whole number; 2\.9 was given"),
    "no number but a switch": ({"every": True}, "every must be a whole number; True was given"),
    "no switch": ({"loud": "very"}, "loud must be true or false; 'very' was given"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_policy_does_not_know_is_refused_with_a_sentence(told, case):
    options, sentence = REFUSED[case]
    with pytest.raises(UsageError, match=sentence):
        train(blobs(per_class=10), memory=Native(20, "told", policy_options=options), method="er")


def test_a_learner_and_a_memory_alone_read_options_as_a_run_does(told):
    settings = Native(20, "told", policy_options={"every": "3", "loud": "true"})
    x, y = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])
    Learner("er", memory=settings).partial_fit(x, y)
    assert Told.seen == (None, 3, True), "nobody knows the classes"
    Told.seen = ()
    alone = DualMemory(20, k=1, short_policy="told", policy_options={"every": "3", "loud": "true"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Told, "add", lambda self, rows, probe, *, rng: None)  # there are no numbers of rows
        alone.add(x, y)
    assert Told.seen == (None, 3, True)


def test_the_command_line_and_studies_have_them(tmp_path, monkeypatch):
    words = [
        "--data",
        "blobs",
        "--method",
        "er",
        "--memory",
        "native",
        "--set",
        "memory.policy=purity",
        "--device",
        "cpu",
    ]
    found = []
    monkeypatch.setattr(PuriDivERBuffer, "add", lambda self, rows, probe, *, rng: found.append(self.alpha))
    done = CliRunner().invoke(app, ["run", *words, "--set", "policy.alpha=0.25", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert set(found) == {0.25}
    (result,) = tmp_path.glob("*/seed-0/result.json")
    assert json.loads(result.read_text())["experiment"]["memory"]["policy_options"] == {"alpha": 0.25}
    for pair, sentence in (
        ("alpha=7", "between 0 and 1; 7.0 was given"),
        ("beta=1", "has no option 'beta'; it has alpha"),
    ):
        refused = CliRunner().invoke(app, ["run", *words, "--set", f"policy.{pair}"])
        assert refused.exit_code == 2
        assert sentence in " ".join(refused.output.split())

    study = parse(
        'seeds = 1\nmemory = "native"\npolicy = ["purity", "herded"]\n[policy_options.purity]\nalpha = [0.1, 0.9]'
    )
    plans = [(plan.memory.policy, dict(plan.memory.policy_options)) for plan in study.experiments()]
    assert plans == [("purity", {"alpha": 0.1}), ("purity", {"alpha": 0.9}), ("herded", {})]
    assert parse(study.to_toml()).experiments() == study.experiments()
