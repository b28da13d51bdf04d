"""Nets of other libraries by name, with a stand-in of timm's interface; weights from a file; frozen layers."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import odedm as command
from safetensors.torch import save_file
from torch import nn

import odedm
from odedm import Learner, NoMemory, Reservoir, UsageError
from odedm.core.plugins import check_name
from odedm.core.registry import NETS
from odedm.nets.backbones import LibraryNet, Preprocessing
from odedm.nets.build import build


class Tiny(nn.Module):
    """A model as timm makes them."""

    def __init__(self, num_classes, in_chans):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(in_chans, 4, 3, 2), nn.BatchNorm2d(4)
        self.layer = nn.Sequential(nn.Conv2d(4, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5))
        self.fc = nn.Linear(8, num_classes)
        self.pretrained_cfg = {"input_size": (3, 16, 16), "mean": (0.5, 0.5, 0.5), "std": (0.2, 0.2, 0.2)}

    def forward(self, x):
        return self.fc(self.layer(self.bn1(self.conv1(x)).relu()).mean((2, 3)))


def create_model(name, *, pretrained, num_classes, in_chans):
    model = Tiny(num_classes, in_chans)
    if pretrained:
        nn.init.constant_(model.conv1.bias, 7.0)
    return model


@pytest.fixture(autouse=True)
def timm(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(is_model="tiny".__eq__, create_model=create_model))


@pytest.fixture
def weights(tmp_path):
    torch.manual_seed(3)
    model = Tiny(1000, 3)
    model(torch.randn(8, 3, 16, 16))  # BatchNorm has seen something
    save_file(model.state_dict(), tmp_path / "tiny.safetensors")
    return model.eval(), str(tmp_path / "tiny.safetensors")


def test_weights_of_a_file_with_another_number_of_classes(weights):
    model, path = weights
    check_name("net", "timm:tiny", NETS)
    net = build("timm:tiny", (3, 16, 16), 6, seed=0, options={"weights": path}).eval()
    x = torch.randn(5, 3, 16, 16)
    before = model.layer(model.bn1(model.conv1(x)).relu()).mean((2, 3))
    assert torch.equal(net.features(x), before)
    assert net.head_weight().shape == (6, 8)


def test_pretrained_is_loaded_only_where_it_is_asked_for():
    check_name("net", "timm:tiny", NETS)
    for option, loaded in (("", False), ("pretrained", True)):
        net = build("timm:tiny", (3, 16, 16), 6, seed=0, options={"weights": option})
        assert bool((net.body.conv1.bias == 7).all()) is loaded


@pytest.mark.parametrize(("last", "frozen"), [("all", 8), ("bn1", 4), ("layer", 8), ("layer.0", 6)])
def test_frozen_parts_stay_as_they_are(weights, last, frozen):
    _, path = weights
    data = odedm.shapes(per_class=20)
    plan = {"net": "timm:tiny", "net_options": {"weights": path, "freeze": last}, "memory": Reservoir(10)}
    net = odedm.train(data, method="er", lr=0.1, **plan).method.net
    start = build("timm:tiny", (3, 12, 12), 6, seed=0, options=plan["net_options"])
    same = [name for name, weight in net.named_parameters() if weight.equal(start.get_parameter(name))]
    assert len(same) == frozen == sum(not weight.requires_grad for weight in start.parameters())
    assert torch.equal(net.body.bn1.running_mean, start.body.bn1.running_mean)
    net.train()
    assert not net.body.bn1.training
    assert net.body.layer[3].training is (last in ("bn1", "layer.0"))


def test_runs_and_learners_are_saved_and_loaded_by_the_name(weights, tmp_path):
    data = odedm.shapes(per_class=20)
    plan = {"net": "timm:tiny", "net_options": {"weights": weights[1], "freeze": "all"}}
    outcome = odedm.train(data, method="slda", memory=NoMemory(), **plan)
    NETS.pop("timm:tiny")
    model = odedm.load(outcome.save(tmp_path / "run.safetensors"))
    assert (model.predict(data.test_image) == outcome.predict(data.test_image)).all()
    assert model.plan.net == "timm:tiny"
    x, y = data.image.numpy(), data.label.numpy()
    learner = Learner("slda", **plan).partial_fit(x, y)
    (tmp_path / "tiny.safetensors").unlink()
    again = Learner.load(learner.save(tmp_path / "learner.safetensors"))  # which has all weights itself
    assert np.array_equal(again.predict_proba(x), learner.predict_proba(x))


def test_a_users_module_takes_weights_and_freezes(weights):
    own = {"head": "fc", "weights": weights[1], "freeze": "all"}
    data = odedm.shapes(per_class=20)
    learner = Learner("er", memory=10, net=Tiny(3, 3), net_options=own)
    net = learner.partial_fit(data.image.numpy(), data.label.numpy())._fitted.engine.method.net
    assert torch.equal(net.body.conv1.weight, weights[0].conv1.weight)
    assert not net.body.bn1.training


@pytest.mark.parametrize(
    ("net", "options", "message"),
    [
        ("timm:huge", {}, "timm has no model 'huge'"),
        ("timm:tiny", {"freeze": "layer9"}, "Unknown layer that can be frozen 'layer9': did you mean 'layer'"),
        ("timm:tiny", {"weights": "/nowhere.safetensors"}, "Cannot read weights from '/nowhere.safetensors'"),
        ("torchvision:resnet18", {}, "torchvision cannot be imported"),
        ("timm:hf-hub:some/one", {}, "Unknown net 'timm:hf-hub:some/one'"),
    ],
)
def test_what_cannot_be_made_is_a_sentence(net, options, message, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(UsageError, match=message):
        odedm.train(odedm.shapes(per_class=20), method="er", net=net, net_options=options)


def test_preprocessing_is_the_models_own():
    prepare = LibraryNet("timm:tiny").preprocessing()
    assert prepare == Preprocessing(16, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    grey = torch.full((2, 1, 32, 32), 255, dtype=torch.uint8)
    torch.testing.assert_close(prepare(grey), torch.full((2, 3, 16, 16), 2.5))


def test_weights_are_part_of_what_a_run_is(tmp_path):
    """Other weights in the same file make another run: none that is finished or half done is taken for it."""
    torch.manual_seed(0)
    path, seen = tmp_path / "net.safetensors", []
    (tmp_path / "mine.py").write_text("from torch import nn\n\n\ndef make_net(classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(432, 8), nn.ReLU(), nn.Linear(8, classes))\n")  # fmt: skip
    words = [
        "run",
        "--data",
        "shapes",
        "--method",
        "er",
        "--memory",
        "reservoir",
        "--capacity",
        "10",
        "--out",
        tmp_path,
    ]
    words += ["--net", f"{tmp_path}/mine.py:make_net", "--weights", path, "--freeze", "all"]
    for number in range(2):
        module = nn.Sequential(nn.Flatten(), nn.Linear(432, 8), nn.ReLU(), nn.Linear(8, 3))
        save_file(module.state_dict(), path)
        if number:
            assert "was made with other weights" in command(*words, code=2)
            words += ["--overwrite"]
        (result,) = json.loads(command(*words, "--json"))
        seen.append(result["provenance"]["plugins"]["weights"]["code"])
        assert result["provenance"]["plugins"]["weights"]["title"] == "net.safetensors"
        assert result["experiment"]["net_options"]["freeze"] == "all"
    path.unlink()
    assert "no such file" in command(*words, code=2)
    assert seen[0] != seen[1]
