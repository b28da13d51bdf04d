"""Whole runs of OnPro on fashion-mini, ours and the authors' code with one net, on a CPU: accuracy after each task.

    python tools/whole_onpro.py DIR [--rows 300] [--seeds 2]

DIR is a checkout of github.com/weilllllls/OnPro. Its classes are taken out of their files; only the mixing of rows,
which it has from kornia 0.6.8, is written here. Grey images become colour images, which the authors' views ask for.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from against_reference import taken
from torch import Tensor, nn

import odedm
from odedm.nets.build import build

BATCH, DRAW, CAPACITY, TASKS = 10, 64, 100, 5


def coloured(rows: int) -> odedm.Dataset:
    """The first rows of each class of fashion-mini, in three equal channels."""
    full = odedm.load_dataset("fashion-mini")
    kept = torch.cat([(full.label == label).nonzero().flatten()[:rows] for label in range(full.classes)])
    image, test = (each.repeat(1, 3, 1, 1).numpy() for each in (full.image[kept], full.test_image))
    return odedm.from_arrays(
        image, full.label[kept].numpy(), tasks=TASKS, test=(test, full.test_label.numpy()), name="coloured"
    )


class Mixing(nn.Module):
    """Rows mixed in random pairs: none of a batch, or each, by the same probability."""

    def __init__(self, p: float, lambda_val: tuple[float, float], **_: Any) -> None:
        super().__init__()
        self.chance, self.between = p, lambda_val

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Mixed images, and labels of both rows with the second one's share [n, 3]."""
        order, share = torch.randperm(len(x)), torch.empty(len(x)).uniform_(*self.between)
        share = share * (torch.rand(len(x)) < self.chance) * (torch.rand(()) < self.chance)
        return torch.lerp(x, x[order], share.view(-1, 1, 1, 1)), torch.stack([y.float(), y[order].float(), share], 1)


class Projected(nn.Module):
    """A net of ours as theirs is called; one column of zeros leaves their stretch of features one place."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        width = net.head_weight().shape[1]
        self.net, self.head = net, nn.Linear(width, width)

    def forward(self, x: Tensor, use_proj: bool = False) -> Any:
        """Logits, or features and projections."""
        if not use_proj:
            return self.net(x)
        features = self.net.features(x)
        return nn.functional.pad(features, (0, 1)), self.head(features)


def theirs(folder: Path, data: odedm.Dataset, seed: int) -> list[list[float]]:
    """Accuracies (%) on each task's test rows after each task, by the authors' learner."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - theirs draws from it
    views = taken(folder, "utils/my_transform.py", *VIEWS, nn=nn, math=math, kwargs={"align_corners": False})
    part = taken(folder, "utils/rotation_transform.py", "rot_inner_all", "Rotation", nn=nn, itertools=itertools)
    part |= taken(folder, "losses/loss.py", "Supervised_NT_xent_n", "Supervised_NT_xent_uni", **part)
    part |= taken(folder, "modules/OPE.py", "OPELoss", **part)
    part |= taken(folder, "modules/APF.py", "AdaptivePrototypicalFeedback", **part, RandomMixUpV2=Mixing)
    scaler = SimpleNamespace(scale=lambda loss: loss, step=lambda each: each.step(), update=lambda: None)
    part |= {
        "autocast": nullcontext,
        "deepcopy": copy.deepcopy,
        "GradScaler": lambda: scaler,
        "TL": SimpleNamespace(**views),
    }
    kind = taken(folder, "train.py", "TrainLearner", **part)["TrainLearner"]
    given = SimpleNamespace(oop=16, mixup_base_rate=0.75, ins_t=0.07, proto_t=0.5, buffer_batch_size=DRAW)
    vars(given).update(dataset="cifar10", mixup_p=0.6, mixup_lower=0.0, mixup_upper=0.6, mixup_alpha=0.4)
    vars(given).update(buffer_size=CAPACITY, n_classes=data.classes)
    model = Projected(build("plain-cnn", data.shape, data.classes, seed=seed, options={}))
    adam = torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.99), weight_decay=1e-4)
    buffer = taken(folder, "models/buffer.py", "Buffer", nn=nn)["Buffer"](given, data.shape)
    learner = kind(model, buffer, adam, data.classes, data.classes // TASKS, list(data.shape), given)
    found = []
    for task in range(TASKS):
        rows = (data.label // 2 == task).nonzero().flatten()
        batches = rows[torch.randperm(len(rows))].split(BATCH)
        learner.train(task, [(data.transform.normalise(data.image[each]), data.label[each]) for each in batches])
        model.eval()
        found.append([accuracy(model, data, each, 2 * task + 2) for each in range(task + 1)])
        model.train()
    return found


VIEWS = ("HorizontalFlipLayer", "RandomColorGrayLayer", "RandomResizedCropLayer")


@torch.no_grad()
def accuracy(model: nn.Module, data: odedm.Dataset, task: int, seen: int) -> float:
    """How many of a task's test rows (%) the model names among the classes seen."""
    own = data.test_label // 2 == task
    right = model(data.transform.normalise(data.test_image[own]))[:, :seen].argmax(1) == data.test_label[own]
    return 100 * float(right.float().mean())


def main() -> None:
    """Run both with each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    data = coloured(given.rows)
    for seed in range(given.seeds):
        own = odedm.train(
            data,
            method="onpro",
            memory=odedm.Reservoir(CAPACITY),
            batch=BATCH,
            draw=DRAW,
            seed=seed,
            device="cpu",
            progress=False,
        )
        with (
            mock.patch.object(Tensor, "cuda", lambda self, **_: self),
            mock.patch.object(nn.Module, "cuda", lambda self: self),
            mock.patch("builtins.print"),
        ):
            other = theirs(given.folder, data, seed)
        for name, table in (("ours", own.result.class_il), ("theirs", other)):
            rounded = [[round(each, 1) for each in row] for row in table]
            print(f"seed {seed}, {name}: ACC {sum(table[-1]) / TASKS:.1f}, after each task {rounded}")


if __name__ == "__main__":
    main()
