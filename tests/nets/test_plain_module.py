"""Plain modules as networks: cut at their last linear layer, or refused with a sentence."""

import copy

import pytest
import torch
from torch import nn

import odedm
from odedm import UsageError
from odedm.nets.build import build, configure, planned
from odedm.nets.plain_module import wrap


class Small(nn.Module):
    """Registers its head first, has another linear layer behind it, and perhaps ends with a softmax."""

    def __init__(self, num_classes=3, width=8, ending="logits"):
        super().__init__()
        self.fc = nn.Linear(width, num_classes)
        self.trunk = nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU())
        self.unused = nn.Linear(2, 2)
        self.ending = ending

    def forward(self, x):
        if self.ending == "tokens":
            return self.fc(self.trunk(x).flatten(2).transpose(1, 2)).mean(1)
        logits = self.fc(self.trunk(x).mean((2, 3)))
        return {"logits": logits, "softmax": logits.softmax(1), "pair": (logits, x)}[self.ending]


def test_features_are_what_enters_the_last_layer_that_is_called():
    module, x = Small(), torch.rand(4, 3, 6, 6)
    before = copy.deepcopy(module).eval()
    net = wrap(module, (3, 6, 6), 3).eval()
    assert net(x).equal(before(x))
    assert net.features(x).equal(before.trunk(x).mean((2, 3)))
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
    assert made.result.experiment["net_options"] == {"width": 12, "ending": "logits", "head": ""}


def test_a_module_that_cannot_be_planned_without_being_computed_is_computed():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 3)

        def forward(self, x):
            return self.fc(x * (1.0 if float(x.sum()) > 0 else 2.0))

    name = odedm.Experiment(net=Reads()).net
    options = configure(name, (5,), 3, {})
    assert next(planned(name, (5,), 3, options).parameters()).device.type == "cpu"
    assert build(name, (5,), 3, seed=0, options=options).classes == 3
