"""The least of Avalanche's and Mammoth's protocols that the adapters lean on, written for these tests."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import torch
from torch import nn


class Rows:
    """Avalanche's data set: items (x, y, task label), targets, subsets, a view without augmentation."""

    def __init__(self, items):
        self.items = list(items)

    targets = property(lambda self: [y for _, y, _ in self.items])

    def __len__(self):
        return len(self.items)

    def __getitem__(self, place):
        return self.items[place]

    def subset(self, places):
        return Rows(self.items[place] for place in places)

    def eval(self):
        return self


def concat_datasets(parts):
    return Rows(item for part in parts for item in part.items)


class ExemplarsBuffer:
    def __init__(self, max_size):
        self.max_size = max_size
        self.buffer = Rows([])


class Buffer:
    """Mammoth's: columns as attributes, draws by numpy."""

    def __init__(self, buffer_size, device="cpu"):
        self.buffer_size, self.device, self.num_seen_examples = buffer_size, device, 0
        self.attributes = ["examples", "labels", "logits", "task_labels", "true_labels"]

    def is_empty(self):
        return self.num_seen_examples == 0

    def get_data(self, size, transform=None, return_index=False, device=None):
        choice = np.random.default_rng(0).choice(len(self.examples), size, replace=False)
        columns = (getattr(self, name)[choice] for name in self.attributes if hasattr(self, name))
        return (torch.tensor(choice), *columns) if return_index else tuple(columns)


def apply_transform(x, transform):
    return x if transform is None else transform(x)


NAMES = {
    "avalanche": {
        "avalanche": {},
        "avalanche.benchmarks": {},
        "avalanche.training": {},
        "avalanche.benchmarks.utils": {"concat_datasets": concat_datasets},
        "avalanche.models": {"avalanche_forward": lambda model, x, _: model(x)},
        "avalanche.training.plugins": {"SupervisedPlugin": object},
        "avalanche.training.storage_policy": {"ExemplarsBuffer": ExemplarsBuffer},
    },
    "mammoth": {
        "utils": {},
        "utils.buffer": {"Buffer": Buffer},
        "utils.augmentations": {"apply_transform": apply_transform},
    },
}


def adapter(name, monkeypatch, missing=False):
    """`odedm.integrations.<name>` as it is where that library is the stand-in, or is missing."""
    for module, names in NAMES[name].items():
        made = ModuleType(module)
        made.__path__ = []
        made.__dict__.update(names)
        monkeypatch.setitem(sys.modules, module, None if missing else made)
    monkeypatch.delitem(sys.modules, f"odedm.integrations.{name}", raising=False)
    try:
        return importlib.import_module(f"odedm.integrations.{name}")
    finally:
        sys.modules.pop(f"odedm.integrations.{name}", None)


def stream(tasks=2, per_class=30):
    """Points of two classes a task; the first number of a row says its class, the second which row it is."""
    for task in range(tasks):
        label = torch.arange(2 * per_class) % 2 + 2 * task
        yield torch.stack([label.float(), torch.arange(len(label)) + 100.0 * task], 1), label


def experience(x, y, **further):
    return SimpleNamespace(dataset=Rows((a, int(b), 0) for a, b in zip(x, y, strict=True)), **further)


def strategy():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.LeakyReLU(), nn.Dropout(0.5), nn.Linear(3, 4))
    return SimpleNamespace(model=net.train(), device="cpu", eval_mb_size=16, loss=torch.zeros(()))
