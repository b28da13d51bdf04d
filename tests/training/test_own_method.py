"""Slips in a method or policy of one's own are sentences that name the cause, where it is, and the cure."""

import re
import sys
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch
from commands import odedm as command
from torch.nn import functional as F

import odedm
from odedm import UsageError
from odedm.core.registry import METHODS
from odedm.methods.derpp import DERpp

PLUGIN = """import odedm
from torch.nn import functional as F


class Off(odedm.Method):
    def loss(self, batch, replay):
        return F.cross_entropy(self.net(batch["inputs"]), batch["label"]), {}


odedm.register("methods", "off", Off)
"""


class Plain(odedm.Method):
    """Cross-entropy on the stream alone."""

    def loss(self, batch, replay):
        return F.cross_entropy(self.net(batch["input"]), batch["label"]), {}


class Undecorated(Plain):
    lr: float = 0.001
    kept: ClassVar[int] = 3


class Untyped(Plain):
    lr = 0.001


@dataclass(kw_only=True, eq=False)
class Sound(Plain):
    lr: float = 0.001
    seen: int = field(init=False, default=0)


class SoundAndMore(Sound):
    """Declares nothing of its own."""

    kept: ClassVar[int] = 3


class Helper:
    seen: int = 0


class Stateful(Helper, Plain):
    """State that is set later, by a mixin among others, and a number that is looked up."""

    teacher: object

    @property
    def momentum(self):
        return 0.0

    @momentum.setter
    def momentum(self, value):
        pass


class OwnStart(Plain):
    """Takes what a method is always given, and no more."""

    def __init__(self, *, net, draw, rng, lr=0.03, momentum=0.0, weight_decay=0.0):
        super().__init__(net=net, draw=draw, rng=rng, lr=lr, momentum=momentum, weight_decay=weight_decay)


class Silent(Plain):
    def loss(self, batch, replay):
        super().loss(batch, replay)


class Neither(odedm.Method):
    """Says nothing of how it learns."""


class Generous(Plain):
    def loss(self, batch, replay):
        loss, columns = super().loss(batch, replay)
        return loss, {**columns, "logits": self.net(batch["input"]).detach()}


class Stingy(DERpp):
    def loss(self, batch, replay):
        return super().loss(batch, replay)[0], {}


class Misspelt(Plain):
    def observe(self, batch, replay):
        return {"logits": batch["inputs"]}


def train(method, **more):
    return odedm.train("blobs", method=method, memory=odedm.Reservoir(20), batch=50, device="cpu", **more)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (Silent, r"Silent.loss gave None back; it must return .*, \{\} where there are none"),
        (Neither, "Neither has neither a `loss` nor an `observe` of its own"),
        (
            Generous,
            r"Generous returned the column 'logits', which `fields` does not declare: add ColumnSpec\('logits'",
        ),
        (Stingy, "Stingy.fields declares the column 'logits', which its loss did not return"),
    ],
)
def test_a_slip_in_a_method_is_a_sentence(method, said):
    with pytest.raises(UsageError, match=said):
        train(method)


def test_declarations_that_count_are_let_alone():
    assert train(Sound).result.experiment["options"]["lr"] == 0.001
    assert train(Stateful).result.experiment["options"]["lr"] == 0.03
    assert train(OwnStart).result.experiment["options"]["lr"] == 0.03
    assert train(SoundAndMore).result.experiment["options"]["lr"] == 0.001
    for method in (Undecorated, Untyped):
        assert train(method).result.experiment["options"]["lr"] == 0.001
        assert odedm.Learner(method, memory=9).partial_fit(torch.zeros(2, 3), [0, 1]).rows_seen_ == 2
    assert train(Untyped, options={"lr": "0.5"}).result.experiment["options"]["lr"] == 0.5


def test_a_column_that_is_not_there_comes_with_those_that_are():
    with pytest.raises(KeyError) as caught:
        train(Misspelt)
    (note,) = caught.value.__notes__
    assert re.match("A batch has .*label.*input.*; a draw has these and, .*`fields` declares none", note)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_error_in_a_plugin_names_the_file_and_the_line(tmp_path, monkeypatch, workers, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ODEDM_TRACEBACK", "1")
    (tmp_path / "off_by_one.py").write_text(PLUGIN)
    words = "run --plugin ./off_by_one.py --method off --data blobs --memory reservoir --seeds 2 --device cpu"
    try:
        said = command(*words.split(), "--workers", workers, "--out", "runs", code=2)
    finally:
        METHODS.pop("off", None)
        sys.modules.pop("off_by_one", None)
    assert "KeyError: 'inputs' (off_by_one.py, line 7, in loss: return F.cross_entropy(" in said
    assert "A batch has" in said
    assert "Traceback (most recent call last)" in said + capfd.readouterr().err, "asked for by ODEDM_TRACEBACK"


class Over(odedm.Memory):
    """Priorities that would be taken for those of prototypes."""

    shift = 5.0

    def add(self, rows, probe, *, rng):
        self.insert(rows, self.shift + torch.rand(len(rows["label"]), dtype=torch.float64, generator=rng))

    def end_task(self, task, probe, *, rng):
        pass


class Nowhere(Over):
    shift = float("nan")


@pytest.mark.parametrize("policy", [Over, Nowhere])
def test_priorities_out_of_bounds_are_refused_when_they_are_offered(policy):
    with pytest.raises(
        UsageError, match=rf"Priorities are numbers in \[0, 1\); the policy {policy.__name__} offered some from"
    ):
        odedm.train("blobs", method="er", memory=odedm.ODEDM(20, k=1, short_policy=policy), device="cpu")
