"""Compare our updates with those of public code, on the same batches: the largest difference of each.

    python tools/against_reference.py [--mammoth DIR] [--survey DIR] [--cope DIR] [--onpro DIR]

Each folder is a checkout: of github.com/aimagelab/mammoth (A-GEM, GEM), github.com/RaptorMai/online-continual-learning
(MIR, GSS, ASER, SCR), github.com/Mattdl/ContinualPrototypeEvolution (CoPE), github.com/weilllllls/OnPro (OnPro). Only
the functions and classes that are compared are taken out of their files and run, so none of their packages must be
installed; GEM's solver is SciPy's.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import copy
import itertools
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn import functional as F

from odedm import ColumnSpec, Task
from odedm.core.rng import generator
from odedm.core.rows import Rows
from odedm.memory.gradient_diversity import similarities
from odedm.memory.reservoir import ReservoirMemory
from odedm.memory.shapley import knn_shapley
from odedm.methods.agem import AGEM
from odedm.methods.cope import ppp_loss
from odedm.methods.er import ER
from odedm.methods.gem import GEM
from odedm.methods.onpro import Mixed, OnPro
from odedm.methods.scr import SCR
from odedm.nets.small import SmallCNN
from odedm.stream.augment import Transform
from odedm.training.model_view import MethodView
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
        memory, replay = remembered(stored, method, torch.float64)
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
            method.observe(batch, replay)
            reference.observe(other, batch["input"], batch["label"], None)
            moved = before - flat(ours.parameters())
            bent += int(not torch.allclose(moved, LR * flat(slope)))
            worst = max(
                worst, float((flat(ours.parameters()) - flat(theirs.parameters())).abs().max() / moved.abs().max())
            )
        name = "A-GEM" if margin is None else f"GEM, margin {margin}"
        print(f"{name}: {STEPS} updates, {bent} bent; largest relative difference of a weight's change {worst:.1e}")


def remembered(stored: Rows, method: Any, dtype: torch.dtype) -> tuple[ReservoirMemory, MemoryReplay]:
    """A memory that holds these rows, and a replay that draws up to all of them, as they are."""
    size = len(stored["label"])
    memory = ReservoirMemory(size, [ColumnSpec("image", SHAPE, dtype), *map(_number, ("label", "task", "index"))])
    memory.see({key: column for key, column in stored.items() if key != "input"}, rng=torch.Generator())
    plain = Transform(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    replay = MemoryReplay(
        memory, plain, reading="union", draw=size, gamma=0.0, rng=lambda what: generator(0, what), method=method
    )
    return memory, replay


def _number(name: str) -> ColumnSpec:
    return ColumnSpec(name, dtype=torch.int64)


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
    probe = MethodView(method, Transform(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)))
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
    scr(folder)


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


class Projected(nn.Module):
    """A net with a method's projection, as SCR and OnPro call theirs; parameters in the order of `method.trained()`."""

    def __init__(self, method: Any, *, unit: bool) -> None:
        super().__init__()
        self.net, self.unit, head = copy.deepcopy(method.net), unit, method.projection
        self.weights = nn.ParameterList([each.detach().clone() for each in head.weights])
        self.biases = nn.ParameterList([each.detach().clone() for each in head.biases])

    def forward(self, x: Tensor, use_proj: bool = False) -> Any:
        """Unit projections, or features and projections, or logits."""
        if not (self.unit or use_proj):
            return self.net(x)
        point = features = self.net.features(x)
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            point = F.linear(point.relu() if place else point, weight, bias)
        return F.normalize(point) if self.unit else (features, point)

    def follow(self, method: Any) -> None:
        """Take the method's weights."""
        with torch.no_grad():
            for own, its in zip(self.parameters(), method.trained(), strict=True):
                own.copy_(its)


def single(task: int, seed: int, n: int) -> Rows:
    """Rows whose images are of single precision, as a contrastive method takes them."""
    found = rows(seed, n, task)
    return {**found, "image": found["image"].float(), "input": found["image"].float().double()}


def compared(name: str, method: Any, replay: MemoryReplay, other: Projected, update: Callable[[Rows], None]) -> None:
    """Print the largest relative difference of a weight's change, by updates that begin from the same weights."""
    worst = 0.0
    for step in range(STEPS):
        other.follow(method)
        batch, before = single(2, step, 10), flat(method.trained())
        replay.begin_step(batch)
        method.observe(batch, replay)
        update(batch)
        moved = flat(method.trained()) - before
        worst = max(worst, float((flat(other.parameters()) - before - moved).abs().max() / moved.abs().max()))
    print(f"{name}: {STEPS} updates; largest relative difference of a weight's change {worst:.1e}")


def scr(folder: Path) -> None:
    """SCR, whole updates, with views that leave images as they are."""
    loss = taken(folder, "utils/loss.py", "SupConLoss", nn=nn)["SupConLoss"](temperature=0.07)
    loader = SimpleNamespace(DataLoader=lambda *_, **__: [own.batch])
    meter = lambda: SimpleNamespace(update=lambda *_: None)  # noqa: E731
    given = {"ContinualLearner": object, "data": loader, "AverageMeter": meter, "transforms_match": {None: None}}
    given |= {"dataset_transform": lambda *_, **__: None, "maybe_cuda": lambda x, _: x, "nn": nn}
    kind = taken(folder, "agents/scr.py", "SupContrastReplay", **given)["SupContrastReplay"]
    method = SCR(net=net(), draw=24)
    memory, replay = remembered(_joined([single(task, 90 + task, 12) for task in (0, 1)]), method, torch.float32)
    other, own = Projected(method, unit=True), kind.__new__(kind)
    stored = memory.rows()
    nothing = lambda *_: None  # noqa: E731
    own.buffer = SimpleNamespace(retrieve=lambda **_: (stored["image"].double(), stored["label"]), update=nothing)
    own.before_train, own.after_train, own.transform, own.verbose = nothing, nothing, lambda x: x, False
    own.model, own.opt, own.criterion = other, torch.optim.SGD(other.parameters(), lr=method.lr), loss
    own.data, own.batch, own.cuda, own.epoch, own.mem_iters = None, None, False, 1, 1

    def update(batch: Rows) -> None:
        own.batch = (batch["input"], batch["label"])
        own.train_learner(None, None)

    with mock.patch("odedm.methods.scr.random_view", lambda image, *_, **__: image):
        compared("SCR", method, replay, other, update)


def onpro(folder: Path) -> None:
    """OnPro, whole updates of a first and of a later task, with the same mixtures and no views."""
    part = {
        **taken(folder, "utils/rotation_transform.py", "rot_inner_all", "Rotation"),
        "nn": nn,
        "itertools": itertools,
    }
    part |= taken(folder, "losses/loss.py", "Supervised_NT_xent_n", "Supervised_NT_xent_uni", **part)
    part |= taken(folder, "modules/OPE.py", "OPELoss", **part)
    part |= taken(folder, "modules/APF.py", "AdaptivePrototypicalFeedback", **part)
    part |= {"autocast": nullcontext, "deepcopy": copy.deepcopy, "enumerate": lambda each: builtins.enumerate(each, 2)}
    kind = taken(folder, "train.py", "TrainLearner", **part)["TrainLearner"]
    for later in (False, True):
        width = net().head_weight().shape[1]
        method = OnPro(net=net(), draw=64, dims=width - 1)  # one stretch alone
        method.view = lambda image: image  # type: ignore[method-assign]
        stored = _joined([single(task, 90 + task, 14) for task in range(3)])
        _, replay = remembered(stored, method, torch.float32)
        method.begin_task(Task(2, 3, (4, 5), {}))
        method.replaying = later
        other, own = Projected(method, unit=False), kind.__new__(kind)
        own.model, own.optimizer = other, _moments(method, other)
        own.oop_base, own.oop, own.class_holder, own.sim_lambda = CLASSES, 16, list(range(CLASSES)), method.similarity
        own.ins_t, own.buffer_batch_size, own.buffer_per_class, own.print_num, own.total_samples = 0.07, 64, 7, 1e9, 1
        own.classes_mean, own.transform = torch.zeros(CLASSES, width - 1), lambda x: x
        own.OPELoss = part["OPELoss"](2, temperature=method.prototype_temperature)
        own.scaler = SimpleNamespace(scale=lambda loss: loss, step=lambda each: each.step(), update=lambda: None)
        image, label = stored["image"].double(), stored["label"]
        own.buffer = SimpleNamespace(
            x=image,
            y=F.one_hot(label, CLASSES),
            sample=lambda *_, image=image, label=label, **__: (image.clone(), label, None),
            add_reservoir=lambda **_: None,
        )
        share = torch.linspace(0, 0.6, len(label)).roll(9)
        mixed = Mixed(
            torch.lerp(image, image.flip(0), share.double()[:, None, None, None]), label, label.flip(0), share
        )
        theirs = torch.stack([each.double() for each in mixed[1:]], 1)
        method.mix = lambda *_, mixed=mixed: mixed  # type: ignore[method-assign]
        own.APF = lambda *_, y=theirs, x=mixed.image: (x.clone(), torch.lerp(y[:, 0], y[:, 1], y[:, 2]), y)
        train = own.train_other_tasks if later else own.train_task0

        def update(batch: Rows, train: Any = train) -> None:
            torch.set_default_dtype(torch.float64)  # of the zeros that they make; and their masks of pairs are double
            on_host = mock.patch.object(torch.Tensor, "cuda", lambda self, **_: self)
            with on_host, mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
                train(2, [(batch["input"].clone(), batch["label"])])
            torch.set_default_dtype(torch.float32)

        compared(f"OnPro, {'a later' if later else 'the first'} task", method, replay, other, update)
    confusion(part["AdaptivePrototypicalFeedback"])


def confusion(kind: Any) -> None:
    """How often OnPro takes each pair of confused classes: ours, counted, against their probabilities."""
    method, found = OnPro(net=net(), draw=64), {}
    method.prototypes.copy_(torch.randn(method.prototypes.shape, generator=torch.Generator().manual_seed(0)) / 9)
    own = kind.__new__(kind)
    nn.Module.__init__(own)
    own.mixup_base_rate, own.mixup = 0.5, lambda x, y: (x, y)
    own.make_mix_pair = lambda chance, *_: found.update(chance=chance) or (torch.zeros(2, 1), torch.zeros(2, 3))
    with mock.patch.object(torch.Tensor, "cuda", lambda self, **_: self):
        own.forward(torch.zeros(4, 1), torch.zeros(4, 3), 4, method.prototypes, 2)
    label, draws = torch.arange(CLASSES).repeat(10), 100_000
    one, other = method.confused({"label": label}, draws)
    pairs = torch.combinations(torch.arange(CLASSES))
    often = [((label[one] == a) & (label[other] == b)).double().mean() for a, b in pairs.tolist()]
    worst = _gap(torch.stack(often), found["chance"])
    print(f"OnPro: pairs of confused classes in {draws} draws; largest difference from their probability {worst:.1e}")


def _moments(method: Any, other: Projected) -> torch.optim.Optimizer:
    """An Adam as the method has it."""
    rates = {key: method.optimizer.defaults[key] for key in ("lr", "betas", "weight_decay")}
    return torch.optim.Adam(other.parameters(), **rates)


def _joined(parts: list[Rows]) -> Rows:
    return {name: torch.cat([each[name] for each in parts]) for name in parts[0]}


def _gap(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


def main() -> None:
    """Compare with each reference whose folder is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, Callable[[Path], None]] = {
        "mammoth": projections,
        "survey": survey,
        "cope": cope,
        "onpro": onpro,
    }
    for name in parts:
        parser.add_argument(f"--{name}", type=Path)
    given = parser.parse_args()
    for name, compare in parts.items():
        folder = getattr(given, name)
        if folder:
            compare(folder)


if __name__ == "__main__":
    main()
