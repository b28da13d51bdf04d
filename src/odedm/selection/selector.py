"""How ODEDM chooses prototypes: of each class of a finished task the rows that stand for all of them.

The rows of a class are points: the features that the current network makes of them, or their pixels.

1. Reduce: divide-and-conquer (DAC) splits the points into clusters and keeps those of the clusters that lie closest to
   each other, again and again (`selection.dac`).
2. Centre: k-means makes k = F_k clusters of what is left (`selection.kmeans`).
3. Select: each center takes the nearest point that no other center has taken (`selection.nearest`), by optimal
   transport (`selection.sinkhorn`) or another distance (`selection.distance`). That row is a prototype.

`PrototypeSelector.choose` is these three steps. A `RowSelector` in the place of a distance (at random, herding) chooses
without clusters. What users write, `odedm.Prototypes` and the settings in it, is in `selection.prototype_settings`,
which makes the selector of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from odedm.core.accel import device
from odedm.core.choices import SPACES
from odedm.core.errors import UsageError, unknown_name_error
from odedm.core.rows import ModelView, Rows, take
from odedm.core.stored_names import stored
from odedm.core.timer import Timer
from odedm.selection.dac import Dac, kept_rows
from odedm.selection.distance import Distance, Sinkhorn
from odedm.selection.kmeans import Clusters, batched_kmeans
from odedm.selection.nearest import Chosen, nearest, row_distances
from odedm.selection.row_selector import RowSelector

OnSelection = Callable[[Rows, Chosen, Tensor], None]
"""Shown the candidates of a class, which of them were chosen for which center, and all distances [candidates, k]."""


class Selection(NamedTuple):
    """What was chosen among the points of a class.

    `kept` [m] are the points that DAC has left, ascending, and `clusters` those of k-means among them. `chosen` counts
    among the kept ones; it is None where the means of clusters take the place of rows.
    """

    kept: Tensor
    clusters: Clusters | None
    chosen: Chosen | None

    @property
    def rows(self) -> Chosen:
        """Return the chosen rows among all points, with their prototypes."""
        assert self.chosen is not None
        return Chosen(self.kept[self.chosen.row], self.chosen.center)


@stored("consolidator")
@dataclass(frozen=True)
class PrototypeSelector:
    """Choose the rows of `k` prototypes of each class (`rows_per_prototype` each, λ_sub), to be kept for good.

    `space` says where rows are points: "features" of the current network, or "pixels". `dac` is divide-and-conquer
    before k-means, or None. `mixup`, the paper's word, stores the mean image of each cluster instead of a real row.

    >>> class Identity:
    ...     def embed(self, image): return image
    ...     def annotate(self, rows): return {"logits": rows["image"] * 2}
    >>> rows = {"image": torch.tensor([[1.0, 0], [0.9, 0], [0, 1.0]]), "label": torch.tensor([7, 7, 7])}
    >>> rng, selector = torch.Generator().manual_seed(0), PrototypeSelector(2, dac=None)
    >>> chosen = selector(rows, [7], Identity(), rng=rng, timer=Timer())
    >>> sorted(chosen), len(chosen["label"]), sorted(chosen["prototype"].tolist())
    (['image', 'label', 'logits', 'prototype'], 2, [0, 1])
    """

    k: int
    distance: Distance | RowSelector = field(default_factory=Sinkhorn)
    dac: Dac | None = field(default_factory=lambda: Dac(clusters=3, depth=4))
    rows_per_prototype: int = 1
    space: str = "features"
    mixup: bool = False

    def __post_init__(self) -> None:
        if self.space not in SPACES:
            raise unknown_name_error("space", self.space, SPACES)
        if self.k < 1 or self.rows_per_prototype < 1:
            raise UsageError(
                f"A selector needs k and rows_per_prototype of 1 or more; {self.k} and {self.rows_per_prototype} "
                "were given. For a memory without a long-term part use the plain reservoir."
            )
        if self.mixup and self.rows_per_prototype > 1:
            raise UsageError(
                f"With mixup each cluster has one mean image, so rows_per_prototype must be 1; "
                f"{self.rows_per_prototype} was given."
            )
        if self.mixup and isinstance(self.distance, RowSelector):
            raise UsageError(f"mixup keeps the means of clusters, and {type(self.distance).__name__} makes none.")

    def __call__(
        self,
        rows: Rows,
        classes: Sequence[int],
        view: ModelView,
        *,
        rng: torch.Generator,
        timer: Timer,
        on_selection: OnSelection | None = None,
    ) -> Rows:
        """Return the chosen rows, class by class in the order of `classes`, with all columns of `rows`.

        `rows` has at least "image" [n, ...] and "label" [n]. Added are "prototype" [m] (0 … k−1 within its class)
        and what `view.annotate` says of the chosen rows. `rng` is a CPU generator. A class with fewer rows than
        asked for gives all it has. `on_selection` is shown every choice by distance, which then costs all distances.
        """
        members = _members(rows["label"], classes)
        # a generator each, so that a class's prototypes do not depend on how much the others draw
        seeds = torch.randint(2**62, (len(members),), generator=rng).tolist()
        with timer("embed"):
            points = self._points(rows["image"], members, view)
        present = [i for i, member in enumerate(members) if len(member)]
        members, sets = [members[i] for i in present], [points[i] for i in present]
        rngs = [torch.Generator().manual_seed(seeds[i]) for i in present]
        # pixels have places between which mass can move; the entries of a vector have none
        has_places = self.space == "pixels" and rows["image"].dim() > 2
        image_shape = tuple(rows["image"].shape[1:]) if has_places else None
        parts = []
        selections = self.choose(sets, rngs, image_shape=image_shape, timer=timer)
        for member, x, selection in zip(members, sets, selections, strict=True):
            parts.append(_prototypes(rows, member, selection))
            if on_selection is not None and selection.chosen is not None and selection.clusters is not None:
                with timer("observe"):
                    fitted = self._fitted(x, image_shape)
                    distances = row_distances(fitted, kept_rows(x, selection.kept), selection.clusters)
                    candidates = take(rows, member[selection.kept.to(member.device)])
                    on_selection(candidates, selection.chosen, distances)
        if not parts:
            none = rows["label"].new_zeros(0, dtype=torch.int64)
            parts.append(take(rows, none) | {"prototype": none})
        result = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        with timer("embed"):
            return view.annotate(result) | result  # what rows bring along from the stream is kept

    def choose(
        self,
        sets: Sequence[Tensor],
        rngs: Sequence[torch.Generator],
        *,
        image_shape: tuple[int, ...] | None = None,
        timer: Timer | None = None,
    ) -> list[Selection]:
        """Choose among the points [n, d] of each set, with a generator each; `image_shape` where they are images.

        >>> points = torch.tensor([[1.0, 0], [2, 0], [9, 0]])
        >>> PrototypeSelector(1, dac=None).choose([points], [torch.Generator()])[0].rows.row.tolist()
        [0]
        """
        timer = timer or Timer()
        if isinstance(self.distance, RowSelector):
            with timer("select"):
                pairs = zip(sets, rngs, strict=True)
                return [self._choose_without_clusters(self.distance, x, rng) for x, rng in pairs]
        if not sets:
            return []
        home = sets[0].device
        with timer("reduce"), device.inference_mode_on_gpu(home):
            if self.dac is None:
                kept = [torch.arange(len(x), device=home) for x in sets]
            else:
                kept = self.dac.reduce_all(sets, smallest=self.k * self.rows_per_prototype, rngs=rngs)
        with timer("centre"), device.inference_mode_on_gpu(home):
            candidates = [kept_rows(x, keep) for x, keep in zip(sets, kept, strict=True)]
            exact = self.dac is not None and self.dac.sample is None  # as the paper has it
            clusters = batched_kmeans(candidates, self.k, rngs=rngs, exact=exact)[0]
        selections = []
        with timer("select"):
            for x, keep, points, parts in zip(sets, kept, candidates, clusters, strict=True):
                chosen = None
                if not self.mixup:
                    with device.inference_mode_on_gpu(home):
                        chosen = nearest(self._fitted(x, image_shape), points, parts, self.rows_per_prototype)
                    # copies, since what was made so may not be changed or learned from later
                    chosen = Chosen(chosen.row.clone(), chosen.center.clone())
                selections.append(Selection(keep.clone(), parts, chosen))
        return selections

    def _fitted(self, points: Tensor, image_shape: tuple[int, ...] | None) -> Distance:
        assert not isinstance(self.distance, RowSelector)
        return self.distance.fit(points, image_shape)

    def _choose_without_clusters(self, selector: RowSelector, points: Tensor, rng: torch.Generator) -> Selection:
        """Let the selector choose; the first rows that it takes are those of prototype 0."""
        row = selector.select(points, self.k * self.rows_per_prototype, rng)
        center = torch.arange(len(row), device=row.device) // self.rows_per_prototype
        return Selection(torch.arange(len(points), device=row.device), None, Chosen(row, center))

    def _points(self, image: Tensor, members: list[Tensor], view: ModelView) -> list[Tensor]:
        """Return the rows of each class as points [n, d]."""
        if isinstance(self.distance, RowSelector) and not self.distance.needs_points:
            return [member.new_zeros(len(member), 0) for member in members]
        wanted = torch.cat(members) if members else torch.zeros(0, dtype=torch.int64, device=image.device)
        return list(self._embed(image.index_select(0, wanted), view).split([len(member) for member in members]))

    def _embed(self, image: Tensor, view: ModelView) -> Tensor:
        """Return rows as float points [n, d]; all classes at once, so the network runs over large batches."""
        if self.space == "pixels" or len(image) == 0:
            return image.flatten(1).float()
        points = view.embed(image).detach().flatten(1).float()
        if not all_finite(points):
            bad = int((~points.isfinite()).any(1).sum())
            raise UsageError(
                f"The network's features of {bad} of {len(points)} rows hold a NaN or an infinity: it has diverged, "
                "so no prototypes can be chosen by it. Lower the learning rate, or choose them by space='pixels'."
            )
        return points


def all_finite(x: Tensor) -> bool:
    """Return whether no number is a NaN or an infinity: a sum shows any, and only where it overflows all are looked at.

    >>> all_finite(torch.tensor([3e38, 3e38])), all_finite(torch.tensor([torch.inf, -torch.inf]))
    (True, False)
    """
    return bool(x.sum().isfinite()) or bool(x.isfinite().all())


def _members(label: Tensor, classes: Sequence[int]) -> list[Tensor]:
    """Return the rows of each class, ascending; their numbers are read once for all classes."""
    if not len(classes):
        return []
    is_member = label == torch.tensor(classes, dtype=label.dtype).to(label.device, non_blocking=True)[:, None]
    order = (~is_member).byte().argsort(dim=1, stable=True)
    return [row[:amount] for row, amount in zip(order, is_member.sum(1).tolist(), strict=True)]


def _prototypes(rows: Rows, member: Tensor, selection: Selection) -> Rows:
    """Return the prototypes of a class, whose rows are `member` [n]: what was chosen of them, or means of clusters."""
    home = member.device  # the network may live on another device than the rows
    if selection.chosen is None:
        assert selection.clusters is not None
        return _means(take(rows, member[selection.kept.to(home)]), selection.clusters.labels.to(home))
    row, prototype = selection.rows
    return take(rows, member[row.to(home)]) | {"prototype": prototype.to(home)}


def _means(rows: Rows, label: Tensor) -> Rows:
    """Return a row per cluster of `label` [n]: its mean image, index −1 as none of the stream, the rest a member's."""
    image = rows["image"]
    member = torch.stack([(label == c).nonzero()[0, 0] for c in range(int(label.max()) + 1)])
    means = torch.stack([image[label == c].to(torch.float64).mean(0) for c in range(len(member))])
    result = take(rows, member)
    result["image"] = (means if image.is_floating_point() else means.round()).to(image.dtype)
    if "index" in result:
        result["index"] = torch.full_like(result["index"], -1)
    return result | {"prototype": torch.arange(len(member), device=member.device)}
