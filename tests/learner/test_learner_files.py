"""Saved in mid-stream and loaded in another process a learner goes on bit for bit; a file of anyone's does no harm."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from rewritten_files import rewrite
from torch import nn

import odedm
from odedm import ODEDM, Learner, Reservoir, UsageError
from odedm.core.tensor_archive import archive_checksum
from odedm.learner import learner_state
from odedm.methods.er import ER
from odedm.nets.small import MLP

STREAM = """
import numpy as np
def batches(first, last):
    for number in range(first, last):
        rng = np.random.default_rng(number)
        label = rng.integers(0, 2, 12) + 2 * (number // 4 % 4)
        yield rng.normal(size=(12, 5)) + 2 * label[:, None], np.array([f"c{each}" for each in label])
"""
exec(STREAM)

KINDS = {
    "share": {"method": "derpp", "memory": ODEDM(40, rho=0.5), "patience": 30, "options": {"momentum": 0.9}},
    "candidates": {"method": "der", "memory": ODEDM(60, k=3, candidates=6), "every": 50},
    "stream logits": {"method": "derpp", "memory": ODEDM(60, k=3, candidates=6, annotate="stream"), "patience": 20},
    "reservoir": {"method": "er", "memory": Reservoir(30), "scaling": None},
}


def make(kind="share"):
    return Learner(net="mlp", net_options={"width": 8}, batch=8, seed=3, **KINDS[kind])


def run(learner, first, last):
    for x, y in batches(first, last):  # noqa: F821
        learner.partial_fit(x, y)
    return learner


def digest(learner):
    state = learner_state.capture(learner)
    return archive_checksum(json.dumps(state["head"]), state["tensors"])


def test_a_loaded_learner_says_what_it_was_made_with_and_takes_its_own_settings_again(tmp_path):
    learner = run(Learner("er", memory=Reservoir(30), seed=1000, weight_average=0.9), 0, 2)
    other = Learner.load(learner.save(tmp_path / "learner.safetensors"))
    assert repr(other) == repr(learner)
    other.set_params(net=learner.net, seed=int("1000"), weight_average=float("0.9"), patience=40)
    assert other.patience == 40
    with pytest.raises(UsageError, match="seed cannot change"):
        other.set_params(seed=1001)


@pytest.mark.parametrize(("kind", "when"), [*((kind, 9) for kind in KINDS), ("share", 1)])
def test_a_loaded_learner_goes_on_bit_for_bit(kind, when, tmp_path):
    learner = run(make(kind), 0, when)
    other = Learner.load(learner.save(tmp_path / "learner.safetensors"))
    assert digest(other) == digest(learner)
    assert list(other.events) == list(learner.events)
    assert digest(run(other, when, 18)) == digest(run(learner, when, 18))


def test_so_it_does_in_another_process(tmp_path):
    learner = run(make(), 0, 7)
    path = learner.save(tmp_path / "learner.safetensors")
    code = f"""{STREAM}
import json, sys, odedm
from odedm.core.tensor_archive import archive_checksum
from odedm.learner import learner_state
learner = odedm.Learner.load({str(path)!r})
for x, y in batches(7, 15):
    learner.partial_fit(x, y)
state = learner_state.capture(learner)
print(archive_checksum(json.dumps(state["head"]), state["tensors"]))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == [digest(run(learner, 7, 15))]


class Mine(ER):
    """A method of one's own."""


def test_code_is_never_in_the_file_and_must_be_given_again(tmp_path):
    net, trigger = MLP((5,), 2, width=4), lambda learner: False
    learner = run(Learner(Mine, net=net, memory=20, trigger=trigger), 0, 6)
    path = learner.save(tmp_path / "learner.safetensors")
    for missing in ("method", "net", "trigger"):
        given = {"method": Mine, "net": net, "trigger": trigger}
        del given[missing]
        with pytest.raises(UsageError, match=rf"{missing}\w* was .*Learner.load\(path, {missing}=…\)"):
            Learner.load(path, **given)
    other = Learner.load(path, method=Mine, net=net, trigger=trigger)
    assert digest(run(other, 6, 10)) == digest(run(learner, 6, 10))
    with pytest.raises(UsageError, match="cannot be used"):
        Learner.load(path, method=Mine, net=MLP((5,), 2, width=5), trigger=trigger)
    begun = run(Learner("er", net=nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)), memory=20), 0, 6)
    path = begun.save(tmp_path / "module.safetensors")
    for net, words in {
        nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)): "the saved net has a ReLU as its part 1, and this",
        nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 9)): "the net has 9 outputs and the saved one 4; give",
    }.items():
        with pytest.raises(UsageError, match=f"^The saved learner cannot be used: {words}"):
            Learner.load(path, net=net)
    with pytest.raises(UsageError, match=r"no memory .*: its format is 'odedm.learner/.' and .* reads 'odedm.memory"):
        odedm.DualMemory.load(path)
    plain = run(make(), 0, 2).save(tmp_path / "plain.safetensors")
    with pytest.raises(UsageError, match="The file names its net"):
        Learner.load(plain, net=net)
    with pytest.raises(UsageError, match="memory cannot be given to load"):
        Learner.load(plain, memory=20)


def set_head(**values):
    return lambda head, tensors: head.update(values)


def set_parameter(**values):
    return lambda head, tensors: head["parameters"].update(values)


def set_tensor(name, change):
    def apply(head, tensors):
        (found,) = [each for each in tensors if each.endswith(name)]
        tensors[found] = change(tensors[found]).contiguous()

    return apply


HOSTILE = {
    "another version": (
        set_head(schema="odedm.learner/9"),
        r"'odedm.learner/9' and this version.*reads 'odedm.learner",
    ),
    "a method that is none": (set_parameter(method="os.system"), "Unknown method"),
    "a method that needs borders": (set_parameter(method="icarl"), "must be told where tasks begin"),
    "a net that is none": (set_parameter(net="nothing"), "Unknown net"),
    "another net": (set_parameter(net_options={"width": 9}), "cannot be used"),
    "a huge net": (set_parameter(net_options={"width": 10**9}), "width"),
    "a huge memory": (set_parameter(memory={"name": "reservoir", "capacity": 10**15}), "its memory has 40 rows of 10"),
    "strange parameters": (set_parameter(hook="x"), "not those of a learner"),
    "mixed labels": (set_head(labels=["text", ["a", 1]]), "labels are of no kind, or of mixed types"),
    "too few outputs": (set_head(outputs=1), "more labels than outputs"),
    "many outputs": (set_head(outputs=10**12), "more labels than outputs"),
    "other rows": (set_head(rows=[[7], "float32", None]), "cannot be used"),
    "rows of no class": (set_tensor("host.label", lambda each: each + 50), "rows of no class"),
    "a broken priority": (set_tensor("host.priority", lambda each: each * 0 + 3), "priorities that are none"),
    "another memory": (set_tensor("host.image", lambda each: each[:3]), "host.image"),
    "weights that are none": (set_tensor("head._parameters.weight", lambda w: w * torch.nan), "NaN"),
    "a foreign class": (
        lambda head, _: head["state"].update(
            items=[["method", {"type": "object", "path": "method", "class": "os.Popen", "attributes": {}}]]
        ),
        "cannot be used",
    ),
    "counts beyond the rows": (
        lambda head, _: head["arrivals"].update(class_rows=[10**9] * 4),
        "its counts of rows are malformed",
    ),
    "a class that waits and is none": (
        lambda head, _: head["arrivals"].update(waiting=[10**9]),
        "its counts of rows are malformed",
    ),
    "a generator that is none": (set_tensor("state.memory.memory", lambda each: each[:9]), "cannot be used"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_someone_has_made_is_a_sentence(name, tmp_path):
    path = run(make(), 0, 5).save(tmp_path / "learner.safetensors")
    change, words = HOSTILE[name]
    rewrite(path, change)
    with pytest.raises(UsageError, match=words):
        Learner.load(path)


def test_a_file_that_has_changed_or_is_not_whole_is_a_sentence(tmp_path):
    path = run(make(), 0, 5).save(tmp_path / "learner.safetensors")
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for size in (0, 7, 300, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(UsageError, match=r"no (saved learner|learner that can be loaded)"):
            Learner.load(path)
    for place in rng.integers(0, len(whole), 25):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(changed))
        with pytest.raises(UsageError):
            Learner.load(path)
    with pytest.raises(UsageError, match=r"^There is no file '.*none'\. Give one that Learner\.save has written\.$"):
        Learner.load(tmp_path / "none")
    with pytest.raises(UsageError, match=r"Cannot write the learner to .*Give a path in a folder you may write to"):
        run(make(), 0, 1).save(path / "below a file")
    memory = odedm.DualMemory(10)
    memory.add(np.zeros((3, 2)), np.arange(3))
    with pytest.raises(UsageError):
        Learner.load(memory.save(tmp_path / "memory"))


def test_a_file_keeps_its_permissions_and_a_link_stays_one(tmp_path):
    learner = run(make("reservoir"), 0, 4)
    path, link = tmp_path / "learner.odedm", tmp_path / "link.odedm"
    learner.save(path)
    path.chmod(0o600)
    link.symlink_to(path)
    run(learner, 4, 6).save(link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600
    assert digest(Learner.load(link)) == digest(learner)
