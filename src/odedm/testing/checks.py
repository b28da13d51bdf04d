"""Checks of methods, memory policies, distances and networks, on whole small runs."""

from __future__ import annotations

import copy
from typing import Any

import torch

from odedm.core.choices import REPLAYS
from odedm.core.errors import UsageError
from odedm.core.registry import DISTANCES, METHODS, NETS, POLICIES
from odedm.core.rows import MemoryPart
from odedm.core.validators import Choice
from odedm.memory.build_context import check_policy_options
from odedm.memory.settings import ODEDM, Native, Reservoir
from odedm.methods.base import Method
from odedm.nets.build import build, configure
from odedm.selection.prototype_settings import DAC, DistanceName, Prototypes
from odedm.stream.dataset import from_arrays
from odedm.stream.synthetic import shapes
from odedm.testing.contracts import CAPACITY, CheckFailed, check, check_exact, check_run, check_same, finish
from odedm.training.run import Run

CAPACITIES = (0, 1, 3, 500)
"""From no memory at all to more than the stream has rows."""


def check_method(method: str | type[Method], **options: Any) -> None:
    """Whether a method works with every memory: in bounds, reproducible, resumable, and with no prototypes unchanged.

    Args:
        method: the class, or a name.
        options: its hyper-parameters for the check, where the defaults would not do on a small stream.

    >>> from odedm.methods.er import ER
    >>> check_method(ER)  # doctest: +SKIP
    """
    name = Choice("method", METHODS).validate("method", method)
    how: dict[str, Any] = {"method": name, "options": options}
    check_exact(ODEDM(CAPACITY, k=2, replay="both"), **how)
    for reading in REPLAYS:
        run, outcome = finish(ODEDM(CAPACITY, k=2, replay=reading), **how)
        check_run(run, outcome)
        check(outcome.memory.size(MemoryPart.LONG) == 16, "Two rows of each class of a past task are pinned.")
        check(outcome.result.acc_last > 15, f"With {reading} replay it is no better than chance, 10 per cent.")
    _check_fields(run)
    _, plain = finish(Native(CAPACITY), **how)
    for reading in REPLAYS:
        _, dual = finish(ODEDM(CAPACITY, k=0, replay=reading), **how)
        check_same(
            plain,
            dual,
            "Without prototypes a dual memory must be its short-term policy bit for bit: draw what is replayed by "
            "replay(), and make the main update by optimizer_step(loss, replay).",
        )
    needs_rows = "memory" in METHODS[name].load().requires
    for capacity in CAPACITIES[1:] if needs_rows else CAPACITIES:
        run, outcome = finish(Reservoir(capacity), **how)
        check_run(run, outcome)
    run, outcome = finish(ODEDM(CAPACITY, k=2, candidates=5, annotate="stream"), **how)
    check_run(run, outcome)


def _check_fields(run: Run) -> None:
    """Whether `annotate` gives what `fields` declares."""
    declared = run.method.fields()
    rows = {name: column[:4] for name, column in run.stream.tasks[0].rows.items()}
    columns = run.engine.view.annotate(rows)
    names = sorted(field.name for field in declared)
    check(sorted(columns) == names, f"`fields` declares {names}, and `annotate` gives {sorted(columns)}.")
    for field in declared:
        column = columns[field.name]
        fits = column.shape == (4, *field.shape) and column.dtype == field.dtype
        check(fits, f"The field '{field.name}' is declared as {field}; `annotate` gave {list(column.shape)}.")


def check_memory(policy: str | type[Any], **options: Any) -> None:
    """Whether a policy can fill the short-term part of a memory: in bounds, with raw rows, hosted and alone, resumable.

    Args:
        policy: a subclass of `odedm.Memory`, or a name in `odedm list policies`.
        options: its options for the check.

    >>> check_memory("reservoir")  # doctest: +SKIP
    """
    name = Choice("memory policy", POLICIES).validate("policy", policy)
    check_policy_options(name, options)
    _check_priorities(Native(CAPACITY, name, options))
    memories = Native(CAPACITY, name, options), ODEDM(CAPACITY, k=2, short_policy=name, policy_options=options)
    for method in ("er", "derpp"):
        for memory in memories:
            run, outcome = finish(memory, method=method)
            check_run(run, outcome)
            check(outcome.memory.size(), "It keeps no row at all.")
    for capacity in CAPACITIES:
        run, outcome = finish(Native(capacity, name, options), method="er")
        check_run(run, outcome)
    _, alone = finish(Native(CAPACITY, name, options), method="derpp")
    _, again = finish(Native(CAPACITY, name, options), method="derpp")
    check_same(
        alone,
        again,
        "The same seed does not keep the same rows: draw from the `rng` that `add` and `end_task` are given, not from "
        "torch's own generator: torch.rand(n, generator=rng).",
    )
    _, hosted = finish(ODEDM(CAPACITY, k=0, short_policy=name, policy_options=options), method="derpp")
    check_same(alone, hosted, "Hosted by a dual memory without prototypes it is not what it is alone.")
    _check_draws(alone.memory)
    check_exact(ODEDM(CAPACITY, k=2, short_policy=name, policy_options=options, replay="both"), method="derpp")


def _check_priorities(plan: Native) -> None:
    """A run in which every key that the policy offers is looked at, as those of code from outside are in any run."""
    try:
        finish(plan, method="er")
    except Exception as error:  # whatever the policy's own code raises
        if isinstance(error, UsageError) and str(error).startswith("Keys are"):
            raise CheckFailed(str(error)) from error
        raise CheckFailed(f"A run with this policy fails. {type(error).__name__}: {error}") from error


def _check_draws(memory: Any) -> None:
    """Whether draws are distinct rows of the memory, as many as were asked for or there are."""
    rng, stored = torch.Generator().manual_seed(0), memory.rows()["index"].tolist()
    check(len(set(stored)) == len(stored), "A policy keeps no row twice.")
    for amount in (1, memory.size(), memory.size() + 5):
        drawn = memory.sample(amount, rng=rng)["index"].tolist()
        distinct = len(set(drawn)) == min(amount, memory.size()) and set(drawn) <= set(stored)
        check(distinct, "A draw gives distinct rows of the memory, as many as there are.")


def check_distance(distance: Any) -> None:
    """Whether prototypes can be chosen by a distance: finite numbers of the right shape, and a run with it.

    Args:
        distance: an object or class with `fit`, `pairwise` and `between_sets` (see `odedm.Distance`), or a name.

    >>> check_distance("l1")  # doctest: +SKIP
    """
    name = DistanceName("distance", DISTANCES).validate("distance", distance)
    kind = DISTANCES[name].load()
    plain = kind() if isinstance(kind, type) else kind
    rng = torch.Generator().manual_seed(0)
    x, y = torch.rand(12, 9, generator=rng), torch.rand(3, 9, generator=rng)
    before = x.clone(), y.clone()
    for image_shape in (None, (1, 3, 3)):
        fitted = plain.fit(x, image_shape)
        for _ in range(2):
            pairs, clouds = fitted.pairwise(x, y), fitted.between_sets(x, y)
            check(pairs.shape == (12, 3), f"`pairwise` of 12 rows and 3 centers gave {list(pairs.shape)}, not [12, 3].")
            check(clouds.dim() == 0, f"`between_sets` must give one number, 0-d; it gave {list(clouds.shape)}.")
            check(pairs.isfinite().all() and clouds.isfinite(), "Distances are finite.")
            check((pairs >= 0).all() and clouds >= 0, "Distances are 0 or more.")
            check(fitted.pairwise(x, y).equal(pairs), "The same rows have the same distances.")
        near, far = fitted.between_sets(x, x.clone()), fitted.between_sets(x, x + 10)
        check(near < far, "A cloud is nearer to itself than to one far away.")
        single = fitted.pairwise(x[:1], y[:1])
        check(torch.allclose(single, pairs[:1, :1], atol=1e-4), "A pair's distance does not depend on other rows.")
    check(x.equal(before[0]) and y.equal(before[1]), "Distances leave the rows as they are.")
    for space in ("features", "pixels"):
        run, outcome = finish(
            ODEDM(20, k=2, selection=Prototypes(name, DAC(distance=name), space)), shapes(per_class=20)
        )
        check_run(run, outcome)
        check(outcome.memory.size(MemoryPart.LONG) == 8, "Two rows of each class of a past task are chosen.")
    check_exact(ODEDM(30, k=2, selection=Prototypes(name)), method="er")


def check_net(net: Any, shape: tuple[int, ...] = (3, 12, 12), classes: int = 6, **options: Any) -> None:
    """Whether runs can train a network: features and logits of the right shape, quiet in evaluation, copied, resumed.

    Args:
        net: an `nn.Module`, a class or function that makes one, or a name.
        shape: that of one input, (c, h, w) or (d,): give yours where it is another, e.g. check_net(net, (16,), 10).
        classes: how many outputs it has; an even number.
        options: its options by name, `head` among them.

    >>> check_net("mlp", (5,), 4)
    """
    name = Choice("net", NETS).validate("net", net)
    try:
        values = configure(name, shape, classes, options)
        first, second = (build(name, shape, classes, seed=0, options=values) for _ in range(2))
    except UsageError as error:
        raise UsageError(
            f"{error} It was tried with rows of shape {shape} and {classes} classes; give those that it is for, e.g. "
            "check_net(net, (16,), 10)."
        ) from error
    same = all(a.equal(b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True))
    check(same, "One seed gives one network: draw weights from torch's own generator alone.")
    x = torch.rand(8, *shape, generator=torch.Generator().manual_seed(0))
    _check_forward(first, x, classes)
    first.train()
    first(x).square().mean().backward()
    check(all(weight.grad is not None for weight in first.head.parameters()), "Gradients reach the head.")
    check(first.head_weight().shape[0] == classes, "The head has one row of weights for each class.")
    copy.deepcopy(second)
    label = torch.arange(classes).repeat(10)
    image = torch.rand(len(label), *shape, generator=torch.Generator().manual_seed(1))
    data = from_arrays(image.numpy(), label.numpy(), tasks=2, name="check-net")
    for method in ("er", "icarl", "vrmcl"):
        run, outcome = finish(Reservoir(10), data, method=method, net=name, net_options=values)
        check_run(run, outcome)


def _check_forward(net: Any, x: torch.Tensor, classes: int) -> None:
    net.eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with torch.no_grad():
        features, logits = net.features(x), net(x)
        check(features.dim() == 2 and len(features) == len(x), f"Features are [n, d]; got {list(features.shape)}.")
        check(logits.shape == (len(x), classes), f"Logits are [n, {classes}]; got {list(logits.shape)}.")
        check(torch.allclose(net.head(features), logits), "Logits are the head's outputs for the features.")
        check(net(x).equal(logits), "In evaluation mode the same inputs give the same logits.")
        alone = torch.cat([net(row) for row in x.split(1)])
        check(torch.allclose(alone, logits, atol=1e-4), "In evaluation mode a row's logits do not depend on others.")
    quiet = all(before[name].equal(value) for name, value in net.state_dict().items())
    check(quiet, "Evaluation leaves the network's state as it is.")
