"""Plain modules as networks: cut at their last linear layer, or refused with a sentence."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn

import odedm
from odedm import UsageError
from odedm.nets.base import evaluating
from odedm.nets.build import build, build_on_meta, configure
from odedm.nets.wrap import net_factory, wrap


class Small(nn.Module):
    """Registers its head first, has another linear layer behind it, and perhaps ends with a softmax."""

    def __init__(self, num_classes=3, width=8, ending="logits"):
        super().__init__()
        self.fc = nn.Linear(width, num_classes)
        self.backbone = nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU())
        self.unused = nn.Linear(2, 2)
        self.ending = ending

    def forward(self, x):
        if self.ending == "tokens":
            return self.fc(self.backbone(x).flatten(2).transpose(1, 2)).mean(1)
        logits = self.fc(self.backbone(x).mean((2, 3)))
        return {"logits": logits, "softmax": logits.softmax(1), "pair": (logits, x)}[self.ending]


def test_features_are_what_enters_the_last_layer_that_is_called():
    module, x = Small(), torch.rand(4, 3, 6, 6)
    before = copy.deepcopy(module).eval()
    net = wrap(module, (3, 6, 6), 3).eval()
    assert net(x).equal(before(x))
    assert net.features(x).equal(before.backbone(x).mean((2, 3)))
    assert net.head_weight().equal(before.fc.weight)
    assert {name.partition(".")[0] for name, _ in net.named_parameters()} == {"body", "head"}


REFUSED = {
    "no linear layer": ({"net": nn.Conv2d(3, 6, 3)}, "Conv2d has no linear layer"),
    "unknown head": ({"net": Small(6), "head": "cf"}, "did you mean 'fc'"),
    "head that is not called": ({"net": Small(6), "head": "unused"}, "does not call its linear layer, 'unused'"),
    "too few outputs": ({"net": Small(5)}, "has 5 outputs and the stream 6 classes"),
    "a softmax": ({"net": Small(6, ending="softmax")}, "Something follows the layer 'fc'"),
    "a pair": ({"net": Small(6, ending="pair")}, "must give a tensor of logits; it gave a tuple"),
    "tokens": ({"net": Small(6, ending="tokens")}, "one vector a row"),
    "other rows": ({"net": nn.Linear(5, 6)}, r"does not take rows of the shape \[3, 12, 12\]"),
    "head of ours": ({"net": "cnn", "head": "fc"}, "Unknown option of the net 'cnn' 'head'"),
    "no module": ({"net": lambda: 3}, "must give an nn.Module; it gave a int"),
    "needs arguments": ({"net": nn.Bilinear}, "cannot be made with"),
    "a number": ({"net": 3}, "net must be a name"),
    "option of no such name": ({"net": Small, "net_options": {"depth": 3}}, "Unknown option of the net"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_network_is_refused_with_a_sentence(case):
    settings, sentence = REFUSED[case]
    with pytest.raises(UsageError, match=sentence):
        odedm.train("shapes", method="er", memory="reservoir", **settings)


@pytest.mark.parametrize("method", ["er", "icarl", "puridiver", "vrmcl"])
def test_a_module_is_trained_as_a_copy_and_a_class_by_its_seed(method):
    module = Small(6)
    before = copy.deepcopy(module.state_dict())
    first, second = (odedm.train("shapes", method=method, memory="reservoir", net=module) for _ in range(2))
    assert all(before[name].equal(value) for name, value in module.state_dict().items())
    assert first.result.class_il == second.result.class_il
    made = odedm.train("shapes", method=method, memory="reservoir", net=Small, net_options={"width": "12"})
    assert made.method.net.head_weight().shape == (6, 12)
    assert made.result.experiment["net_options"] == {
        **{"width": 12, "ending": "logits"},
        **dict.fromkeys(("head", "weights", "freeze"), ""),
    }


def test_a_module_that_cannot_be_planned_without_being_computed_is_computed():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 3)

        def forward(self, x):
            return self.fc(x * (1.0 if float(x.sum()) > 0 else 2.0))

    name = odedm.Experiment(net=Reads()).net
    options = configure(name, (5,), 3, {})
    assert next(build_on_meta(name, (5,), 3, options).parameters()).device.type == "cpu"
    assert build(name, (5,), 3, seed=0, options=options).classes == 3


class Pretrained(nn.Module):
    """A backbone that its author froze, between layers that train."""

    def __init__(self, num_classes=6):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5))
        self.backbone.requires_grad_(False).eval()
        self.conv, self.norm = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, num_classes)

    def forward(self, x):
        return self.fc(self.norm(self.conv(self.backbone(x))).relu().mean((2, 3)))


def pretrained(*, whole_in_evaluation_mode=False):
    torch.manual_seed(0)
    module = Pretrained()
    with torch.no_grad():
        module.backbone[1].running_mean.uniform_(-1, 1)
    return module.eval() if whole_in_evaluation_mode else module


def check_frozen(net, before):
    """Whether the backbone is what it was and in evaluation mode, and all else has been trained in training mode."""
    modes = {name.partition(".")[2] or name: module.training for name, module in net.named_modules()}
    assert not any(mode for name, mode in modes.items() if name.startswith("backbone"))
    assert modes["conv"]
    assert modes["norm"]
    state = {name.removeprefix("body."): value for name, value in net.state_dict().items()}
    for name, value in before.state_dict().items():
        if not name.startswith("fc"):
            assert state[name].equal(value) == name.startswith("backbone"), name


MEMORIES = {"er": "reservoir", "joint": "none", "gdumb": "native", "puridiver": "native", "gss": "native",
            "onpro": "reservoir", "vrmcl": "reservoir"}  # fmt: skip


@pytest.mark.parametrize("method", MEMORIES)
def test_what_its_author_froze_stays_frozen_while_the_rest_is_trained(method):
    module = pretrained()
    options = {"puridiver": {"fit": True, "fit_epochs": 1}, "gdumb": {"fit_epochs": 1}}.get(method, {})
    outcome = odedm.train("shapes", method=method, memory=MEMORIES[method], net=module, options=options)
    check_frozen(outcome.method.net, module)


def test_a_module_in_evaluation_mode_trains_but_for_what_has_no_trained_weight():
    module = pretrained(whole_in_evaluation_mode=True)
    outcome = odedm.train("shapes", method="er", memory="reservoir", net=module)
    check_frozen(outcome.method.net, module)


@pytest.mark.parametrize("make", [pretrained, Pretrained], ids=["object", "class"])
def test_a_learner_leaves_frozen_layers_frozen(make):
    torch.manual_seed(0)
    net = pretrained() if make is pretrained else Pretrained
    learner = odedm.Learner("er", net=net, memory=20)
    x = torch.rand(40, 3, 8, 8)
    learner.partial_fit(x[:8], torch.arange(8) % 4)
    before = copy.deepcopy(learner._fitted.engine.method.net.body)
    for start in range(8, 40, 8):
        learner.partial_fit(x[start : start + 8], torch.arange(8) % 4)
        learner.predict(x[:4])
    check_frozen(learner._fitted.engine.method.net, before)


def test_evaluation_gives_every_module_its_mode_back():
    module = pretrained()
    with evaluating(module):
        assert not module.norm.training
    assert module.training
    assert module.norm.training
    assert not module.backbone.training


@pytest.mark.parametrize("ending", ["softmax", "pair"])
def test_a_module_that_is_refused_is_left_whole(ending):
    module, x = Small(6, ending=ending), torch.rand(2, 3, 6, 6)
    before = module.eval()(x)
    with pytest.raises(UsageError):
        wrap(module, (3, 6, 6), 6)
    after = module(x)
    assert isinstance(module.fc, nn.Linear)
    assert all(map(torch.equal, after, before))


def test_no_module_outlives_its_user():
    module = Small(6)
    reference = weakref.ref(module)
    factory = net_factory(module)
    assert factory((3, 6, 6), 6).classes == 6
    del module, factory
    gc.collect()
    assert reference() is None
