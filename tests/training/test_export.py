"""Exported files agree with `predict` in every row: of learners and runs, with scaling and labels inside."""

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

import odedm
from odedm import Learner, NoMemory, Reservoir, UsageError

IMAGES, VECTORS = odedm.shapes(per_class=30), odedm.blobs()
NAMES = np.array([f"kind {i}" for i in range(10)])


def from_pt2(path, rows):
    files = {"labels.json": ""}
    program = torch.export.load(path, extra_files=files)
    scores = program.module()(torch.from_numpy(rows)).numpy()
    return np.array(json.loads(files["labels.json"]))[scores.argmax(1)]


def from_onnx(path, rows):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path))
    labels = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    (scores,) = session.run(None, {"rows": rows})
    return np.array(labels)[scores.argmax(1)]


@pytest.fixture(params=["pt2", "onnx"])
def agrees(request, tmp_path):
    """Whether an exported model says of rows what the model itself does, one at a time too."""
    if request.param == "onnx":
        pytest.importorskip("onnxscript")

    def check(model, rows):
        path, answer = model.export(tmp_path / f"model.{request.param}"), model.predict(rows)
        runtime = from_pt2 if request.param == "pt2" else from_onnx
        assert (runtime(path, rows) == answer).all()
        assert (runtime(path, rows[:1]) == answer[:1]).all()
        assert [file.name for file in tmp_path.iterdir()] == [path.name]

    return check


class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(self.norm(self.conv(x)).relu().mean((2, 3)))


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("er", {}),
        ("er", {"predict_by": "nearest-mean"}),
        ("derpp", {"weight_average": 0.9}),
        ("ncm", {}),
        ("slda", {}),
        ("ranpac", {"options": {"units": 50}}),
    ],
)
def test_learners_of_vectors(method, settings, agrees):
    memory = {} if method in ("ncm", "slda", "ranpac") else {"memory": 60}
    learner = Learner(method, seed=1, **memory, **settings)
    learner.partial_fit(VECTORS.image.numpy() * 7 + 3, NAMES[VECTORS.label], classes=["never seen"])
    agrees(learner, VECTORS.test_image.numpy() * 7 + 3)


@pytest.mark.parametrize("net", ["cnn", "resnet18", Mine])
def test_learners_of_images(net, agrees):
    options = {"width": 8} if net == "resnet18" else {}
    learner = Learner("er", memory=20, net=net, net_options=options).partial_fit(IMAGES.image.numpy(), IMAGES.label)
    agrees(learner, IMAGES.test_image.numpy())
    assert isinstance(learner.model, nn.Module)
    assert learner.model(torch.zeros(2, 3, 12, 12)).shape == (2, len(learner.classes_))


@pytest.mark.parametrize(
    ("method", "memory"), [("icarl", Reservoir(30)), ("er-ace", odedm.ODEDM(30)), ("slda", NoMemory())]
)
def test_runs_and_their_saved_models(method, memory, agrees, tmp_path_factory):
    outcome = odedm.train(IMAGES, method=method, memory=memory)
    agrees(outcome, IMAGES.test_image.numpy())
    model = odedm.load(outcome.save(tmp_path_factory.mktemp("saved") / "model.safetensors"))
    agrees(model, IMAGES.test_image.numpy())


def test_what_cannot_be_exported_is_a_sentence(tmp_path):
    learner = Learner("er", memory=20).partial_fit(VECTORS.image.numpy(), VECTORS.label)
    with pytest.raises(UsageError, match="A model is exported as .onnx or .pt2"):
        learner.export(tmp_path / "model.h5")
    with pytest.raises(UsageError, match="has learned nothing yet"):
        Learner("er").export(tmp_path / "model.pt2")
    with pytest.raises(UsageError, match="Cannot write the model"):
        learner.export("/proc/nowhere/model.pt2")
    assert not list(tmp_path.iterdir())


def test_without_onnx_the_sentence_says_what_to_install(tmp_path, monkeypatch):
    for name in ("onnx", "onnxscript"):
        monkeypatch.setitem(sys.modules, name, None)
    learner = Learner("er", memory=20).partial_fit(VECTORS.image.numpy(), VECTORS.label)
    with pytest.raises(UsageError, match=r"need onnx and onnxscript: pip install 'odedm\[onnx\]'"):
        learner.export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
