"""The memory inside Mammoth, against a stand-in of its buffer; and that nobody meets either library unasked."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from stand_ins import NAMES, Buffer, adapter, stream
from test_layers import FILES, imports

from odedm import DualMemory, UsageError


@pytest.fixture
def ours(monkeypatch):
    return adapter("mammoth", monkeypatch)


class Net(torch.nn.Linear):
    def forward(self, x, returnt="out"):
        assert not self.training or returnt == "out", "features are asked for in evaluation mode"
        return x[:, 1:] if returnt == "features" else super().forward(x)


def model(n_tasks=3):
    ended = []
    found = SimpleNamespace(buffer=Buffer(20), net=Net(2, 6), device="cpu", current_task=0, n_tasks=n_tasks)
    found.end_task, found.ended = ended.append, ended
    return found


def trained(found, tasks=3):
    for x, y in stream(tasks):
        for a, b in zip(x.split(10), y.split(10), strict=True):
            if not found.buffer.is_empty():
                images, labels, logits = found.buffer.get_data(8, transform=lambda each: each + 1, device="cpu")
                assert (images[:, 0] - 1 == labels).all()
                assert torch.equal(logits[:, 0], images[:, 1] - 1)
            found.buffer.add_data(examples=a, labels=b, logits=a[:, 1:].repeat(1, 6))
        found.end_task("data")
        found.current_task += 1
    return found


def test_a_model_keeps_prototypes_of_every_task_but_the_last(ours):
    found = trained(ours.attach(model(), k=3, seed=0))
    buffer = found.buffer
    assert isinstance(buffer, Buffer)
    assert Counter(buffer.memory.rows("long")["labels"].tolist()) == {0: 3, 1: 3, 2: 3, 3: 3}
    assert (len(buffer), buffer.buffer_size, buffer.num_seen_examples) == (20, 20, 180)
    assert found.ended == ["data"] * 3, "the model's own end of a task is called as well"
    assert found.net.training


def test_it_is_the_memory_alone_with_the_network_s_features(ours):
    memory = DualMemory(20, candidates="task", k=3, seed=4)
    for place, (x, y) in enumerate(stream(3)):
        for a, b in zip(x.split(10), y.split(10), strict=True):
            memory.add(a, b, logits=a[:, 1:].repeat(1, 6))
        if place < 2:
            memory.end_task(embed=lambda images: images[:, 1:])
    found = trained(ours.attach(model(), k=3, seed=4))
    assert torch.equal(found.buffer.examples, memory.rows()["images"])
    assert torch.equal(found.buffer.logits, memory.rows()["logits"])


def test_columns_are_attributes_once_they_are_there(ours):
    buffer = ours.ODEDMBuffer(20, k=0, seed=0)
    assert not hasattr(buffer, "examples")
    (x, y), *_ = stream()
    buffer.add_data(x, labels=y, task_labels=torch.zeros_like(y))
    assert torch.equal(buffer.examples[:, 0].long(), buffer.labels)
    assert not hasattr(buffer, "logits")
    index, examples, labels, task_labels = buffer.get_data(5, return_index=True)
    assert torch.equal(examples, buffer.examples[index])
    assert len(labels) == len(task_labels) == 5
    buffer.buffer_size = 10
    assert len(buffer) == len(buffer.labels) == 10
    buffer.empty()
    assert buffer.is_empty()
    assert len(buffer) == 0
    assert not hasattr(buffer, "labels")
    buffer.end_task(model())  # nothing was added, nothing is asked


def test_what_cannot_be_done_is_said(ours, monkeypatch):
    buffer = ours.ODEDMBuffer(20)
    assert buffer.to("cpu") is buffer
    with pytest.raises(UsageError, match="make it with device='meta'"):
        buffer.to("meta")
    with pytest.raises(UsageError, match="needs labels"):
        buffer.add_data(torch.zeros(3, 2))
    with pytest.raises(UsageError, match="examples cannot be put in from outside.*load_state_dict"):
        buffer.examples = torch.zeros(20, 2)
    with pytest.raises(UsageError, match="no buffer of Mammoth's"):
        ours.attach(SimpleNamespace())
    with pytest.raises(UsageError, match="holds rows already"):
        ours.attach(trained(ours.attach(model())))
    with pytest.raises(UsageError, match="Mammoth's folder on Python's path"):
        adapter("mammoth", monkeypatch, missing=True)


def test_no_other_module_imports_an_adapter():
    own = {f"odedm.integrations.{name}" for name in NAMES} | {"odedm.integrations"}
    assert [path for path in FILES if own & set(imports(path))] == []
