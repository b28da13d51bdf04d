"""Compare our updates with those of public code, on the same batches: the largest difference of each.

    python tools/against_reference.py [--mammoth DIR] [--survey DIR] [--cope DIR]

Each folder is a checkout: of github.com/aimagelab/mammoth (A-GEM, GEM), github.com/RaptorMai/online-continual-learning
(MIR, GSS, ASER), github.com/Mattdl/ContinualPrototypeEvolution (CoPE). Only the functions and classes that are compared
are taken out of their files and run, so none of their packages must be installed; GEM's solver is SciPy's.
"""

from __future__ import annotations

import argparse
import ast
import copy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional as F

from odedm import Field, Task
from odedm.core.rng import generator
from odedm.core.rows import Rows
from odedm.memory.gradient_diversity import similarities
from odedm.memory.reservoir import ReservoirMemory
from odedm.memory.shapley import knn_shapley
from odedm.methods.agem import AGEM
from odedm.methods.cope import ppp_loss
from odedm.methods.er import ER
from odedm.methods.gem import GEM
from odedm.nets.small import SmallCNN
from odedm.stream.augment import Transform
from odedm.training.probe import LearnerProbe
from odedm.training.replay import MemoryReplay
from odedm.training.retrieval import interference

SHAPE, CLASSES, STEPS, LR = (1, 8, 8), 6, 20, 0.1


def taken(folder: Path, file: str, *names: str, **given: Any) -> dict[str, Any]:
    """The named functions and classes of a file, run without the rest of it."""
    tree = ast.parse((folder / file).read_text(encoding="utf-8"))
    parts: list[ast.stmt] = [each for each in tree.body if getattr(each, "name", None) in names]
    space: dict[str, Any] = {"torch": torch, "np": np, "F": F, "copy": copy, "maybe_cuda": lambda x: x, **given}
    exec(compile(ast.Module(parts, []), file, "exec"), space)
    return space


def net() -> SmallCNN:
    """The same small network every time, in float64."""
    torch.manual_seed(0)
    return SmallCNN(SHAPE, CLASSES, width=4).double().train()


def rows(seed: int, n: int = 10, task: int = 0) -> Rows:
    """Random images of two classes of a task."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, *SHAPE, generator=rng, dtype=torch.float64)
    y = 2 * task + torch.randint(0, 2, (n,), generator=rng)
    return {"image": x, "input": x, "label": y, "task": torch.full_like(y, task), "index": torch.arange(n) + 100 * seed}


def flat(parameters: Any) -> Tensor:
    """All weights as one vector."""
    return torch.cat([each.detach().flatten() for each in parameters])


class Solver:
    """The quadratic program of GEM by SciPy: ½ xᵀPx - aᵀx with x ≥ h."""

    @staticmethod
    def solve_qp(p: Any, a: Any, _: Any, h: Any) -> tuple[Any]:
        """The least value's place."""
        scale = np.abs(p).max()
        found = minimize(
            lambda x: (x @ p @ x / 2 - a @ x) / scale,
            h,
            jac=lambda x: (p @ x - a) / scale,
            bounds=[(each, None) for each in h],
            method="L-BFGS-B",
            options={"ftol": 1e-18, "gtol": 1e-14, "maxiter": 10000},
        )
        return (found.x,)


def projections(folder: Path) -> None:
    """A-GEM and GEM, whole updates: the weights after each of some steps that begin from the same weights."""
    helpers = taken(folder, "models/gem.py", "store_grad", "overwrite_grad", "project2cone2")
    base: dict[str, Any] = {**helpers, "ContinualModel": object, "ArgumentParser": object}
    agem = taken(folder, "models/agem.py", "project", "AGem", **base)["AGem"]
    gem = taken(folder, "models/gem.py", "Gem", **base)["Gem"]
    stored = {name: torch.cat([rows(90 + t, 12, t)[name] for t in (0, 1)]) for name in rows(0)}
    for margin, kind, reference in ((None, AGEM, agem), (0.5, GEM, gem), (0.0, GEM, gem)):
        ours, theirs = net(), net()
        method = kind(net=ours, draw=24, lr=LR, **({} if margin is None else {"margin": margin}))
        method.begin_task(Task(2, 3, (4, 5), {}))
        memory = ReservoirMemory(24, [Field("image", SHAPE, torch.float64), *map(_number, ("label", "task", "index"))])
        memory.see({key: column for key, column in stored.items() if key != "input"}, rng=torch.Generator())
        plain = Transform(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
        replay = MemoryReplay(
            memory, plain, reading="union", draw=24, gamma=0.0, rng=lambda what: generator(0, what), method=method
        )
        size = [each.numel() for each in theirs.parameters()]
        other = SimpleNamespace(
            net=theirs,
            forward=theirs,
            loss=F.cross_entropy,
            parameters=theirs.parameters,
            zero_grad=theirs.zero_grad,
            opt=torch.optim.SGD(theirs.parameters(), lr=LR),
            grad_dims=size,
            grad_xy=torch.zeros(sum(size), dtype=torch.float64),
            grad_er=torch.zeros(sum(size), dtype=torch.float64),
            grads_da=torch.zeros(sum(size), dtype=torch.float64),
            grads_cs=[torch.zeros(sum(size), dtype=torch.float64) for _ in range(2)],
            args=SimpleNamespace(minibatch_size=24, buffer_size=24, gamma=margin),
            solver=Solver,
            transform=None,
            device="cpu",
            buffer=_Buffer(memory, tasks=kind is GEM),
        )
        worst, bent = 0.0, 0
        for step in range(STEPS):
            theirs.load_state_dict(ours.state_dict())
            batch, before = rows(step, task=2), flat(ours.parameters())
            plainly = copy.deepcopy(ours)
            slope = torch.autograd.grad(F.cross_entropy(plainly(batch["input"]), batch["label"]), plainly.parameters())
            method.step(batch, replay)
            reference.observe(other, batch["input"], batch["label"], None)
            moved = before - flat(ours.parameters())
            bent += int(not torch.allclose(moved, LR * flat(slope)))
            worst = max(
                worst, float((flat(ours.parameters()) - flat(theirs.parameters())).abs().max() / moved.abs().max())
            )
        name = "A-GEM" if margin is None else f"GEM, margin {margin}"
        print(f"{name}: {STEPS} updates, {bent} bent; largest relative difference of a weight's change {worst:.1e}")


def _number(name: str) -> Field:
    return Field(name, dtype=torch.int64)


class _Buffer:
    """Stored rows as Mammoth's models ask for them: always all of them."""

    def __init__(self, memory: ReservoirMemory, *, tasks: bool) -> None:
        self.memory, self.tasks = memory, tasks

    def is_empty(self) -> bool:
        """Never."""
        return False

    def get_data(self, *_: Any, **__: Any) -> tuple[Tensor, ...]:
        """Images, labels, and tasks where they are asked for."""
        found = self.memory.rows()
        return (found["image"], found["label"], *([found["task"]] if self.tasks else []))


def survey(folder: Path) -> None:
    """MIR's scores, GSS's similarities and ASER's Shapley values."""
    helpers = taken(folder, "utils/buffer/buffer_utils.py", "get_grad_vector", "cosine_similarity")
    mir = taken(folder, "utils/buffer/mir_retrieve.py", "MIR_retrieve", **helpers)["MIR_retrieve"]
    gss = taken(folder, "utils/buffer/gss_greedy_update.py", "GSSGreedyUpdate", **helpers)["GSSGreedyUpdate"]
    worst = {"MIR": 0.0, "GSS": 0.0, "ASER": 0.0}
    model, method = net(), ER(net=net(), draw=4, lr=LR)
    probe = LearnerProbe(method, Transform(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)))
    params = SimpleNamespace(
        subsample=20, eps_mem_batch=4, learning_rate=LR, gss_mem_strength=2, gss_batch_size=10, mem_size=20
    )
    for step in range(STEPS):
        batch, stored = rows(step), {k: torch.cat([rows(50 + step, 10, t)[k] for t in (1, 2)]) for k in rows(0)}
        model.zero_grad()
        F.cross_entropy(model(batch["input"]), batch["label"]).backward()
        size = [each.numel() for each in model.parameters()]
        slope = torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])
        later = mir(params).get_future_step_parameters(model, slope, size)
        with torch.no_grad():
            losses = [F.cross_entropy(m(stored["input"]), stored["label"], reduction="none") for m in (later, model)]
        method.net.load_state_dict(model.state_dict())
        worst["MIR"] = max(worst["MIR"], _gap(interference(method, batch, stored), losses[0] - losses[1]))
        update = gss(params)
        model.eval()
        buffer = SimpleNamespace(
            model=model, current_index=20, buffer_img=stored["image"], buffer_label=stored["label"]
        )
        torch.manual_seed(step)
        order = torch.randperm(20)
        torch.manual_seed(step)
        whole, grads = update.get_batch_sim(buffer, size, batch["input"], batch["label"])
        each = update.get_each_batch_sample_sim(buffer, size, grads, batch["input"], batch["label"])
        compared = {key: column[order] for key, column in stored.items()}
        single, mean = similarities(batch, compared, 10, probe, "all")
        worst["GSS"] = max(worst["GSS"], _gap(single, each.double()), abs(float(mean) - float(whole)))
        model.train()
        worst["ASER"] = max(worst["ASER"], _shapley_gap(folder, step))
    print(f"MIR: scores of 20 candidates on {STEPS} batches; largest difference {worst['MIR']:.1e}")
    print(f"GSS: similarities on {STEPS} batches; largest difference {worst['GSS']:.1e} (theirs in float32)")
    print(f"ASER: Shapley values of 30 candidates for 12 rows, {STEPS} times; largest difference {worst['ASER']:.1e}")


def _shapley_gap(folder: Path, seed: int) -> float:
    space = taken(folder, "utils/utils.py", "euclidean_distance")
    names = ("compute_knn_sv", "deep_features", "sorted_cand_ind")
    space = taken(folder, "utils/buffer/aser_utils.py", *names, mini_batch_deep_features=lambda _, x, __: x, **space)
    rng = torch.Generator().manual_seed(seed)
    point, candidate = torch.randn(12, 5, generator=rng), torch.randn(30, 5, generator=rng)
    label, known = (torch.randint(0, 4, (n,), generator=rng) for n in (12, 30))
    theirs = space["compute_knn_sv"](None, point, label, candidate, known, 3)
    return _gap(knn_shapley(point, label, candidate, known, 3), theirs.double())


def cope(folder: Path) -> None:
    """CoPE's loss and its gradient, with and without the repellor's gradient on both sides."""
    kind = taken(folder, "model/prototypical/loss_scheme.py", "PPPloss", traceback=None)["PPPloss"]
    worst = [0.0, 0.0]
    for step in range(STEPS):
        rng = torch.Generator().manual_seed(step)
        label = torch.randint(0, CLASSES, (16,), generator=rng)
        point, prototypes = (torch.randn(n, 12, generator=rng, dtype=torch.float64) for n in (16, CLASSES))
        prototypes = F.normalize(prototypes)
        sides = []
        for ours in (True, False):
            x = point.clone().requires_grad_()
            unit = F.normalize(x)
            if ours:
                every = torch.ones(CLASSES, dtype=torch.bool)
                loss = ppp_loss(unit, label, prototypes, every, 0.1, repellor_gradient=True)
            else:
                own = SimpleNamespace(get_all_prototypes=lambda p=prototypes: (p, torch.arange(CLASSES)), log=False)
                loss = kind(own, T=0.1, tracker={})(unit, label, SimpleNamespace(gpu=False))
            loss.backward()
            sides.append((loss.detach(), x.grad))
        for place, (one, other) in enumerate(zip(*sides, strict=True)):
            worst[place] = max(worst[place], _gap(one, other) / float(other.abs().max()))
    print(f"CoPE: loss of 16 rows, {STEPS} times; largest relative difference {worst[0]:.1e}, gradient {worst[1]:.1e}")


def _gap(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


def main() -> None:
    """Compare with each reference whose folder is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, Callable[[Path], None]] = {"mammoth": projections, "survey": survey, "cope": cope}
    for name in parts:
        parser.add_argument(f"--{name}", type=Path)
    given = parser.parse_args()
    for name, compare in parts.items():
        folder = getattr(given, name)
        if folder:
            compare(folder)


if __name__ == "__main__":
    main()
