"""The purity memory: the most frequent class loses the row that looks most mislabelled or least needed (PuriDivER)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.core.accel.triton_support import has_kernels
from odedm.core.errors import UsageError
from odedm.core.rows import ColumnSpec, ModelView, Rows, count
from odedm.core.store import EMPTY
from odedm.core.stored_names import stored
from odedm.memory.buffer import LATER, Buffer

TINY = 1e-6
"""A spread this small beside the values themselves is rounding, not a difference."""
KERNELS, MOST_AT_ONCE = "odedm.memory.purity_triton", 2048
"""Where one kernel makes the whole choice on a GPU, and among how many rows or classes at most."""


@stored("memory/purity")
@final
class PuriDivERBuffer(Buffer):
    """Keeps all rows while there is room; then, row by row, the largest class loses its highest score.

    The score of a row within its class is (1-α)·z(loss) + α·z(similarity): a large loss speaks for a wrong label, a
    large mean cosine to the class's other rows for one too many. α = α₀ · min(1, 1/ℓ̄) with the training loss ℓ̄: while
    the network is unsure, purity counts more. Pinned rows are neither scored nor counted, and pins displace
    short-term rows uniformly at random.

    Scores come from one look at the network per stream batch, at the short-term rows and the batch together.
    """

    looks_at_all_rows = True
    needs_method = True

    def __init__(
        self,
        capacity: int,
        fields: Sequence[ColumnSpec],
        device: torch.device | str = "cpu",
        *,
        alpha: float = 0.5,
    ) -> None:
        if not 0 <= alpha <= 1:
            raise UsageError(f"alpha weighs diversity against purity, between 0 and 1; {alpha} was given.")
        super().__init__(capacity, fields, device)
        self.alpha = alpha

    def add(self, rows: Rows, view: ModelView, *, rng: torch.Generator) -> None:
        """Take a stream batch in, and let as many rows go as there is no room for."""
        amount, device = count(rows), self.store.priority.device
        short, room = self._short, self.short_capacity
        if room == 0:
            return
        priority = torch.rand(short + amount, dtype=torch.float64, generator=rng, device=device)
        if short + amount > room:
            priority = self._choose(rows, priority, short + amount - room, view, rng)
        # fresh priorities for residents too: which rows a later pin displaces must not depend on how long they are here
        self.store.priority[self._slots()] = priority[:short]
        self.insert(rows, priority[short:])

    def _choose(self, rows: Rows, priority: Tensor, excess: int, view: ModelView, rng: torch.Generator) -> Tensor:
        """Return the priorities of stored and new rows, EMPTY for the `excess` ones that go."""
        stored = self.store.read(self._slots())
        rows = {name: torch.cat([stored[name], rows[name]]) for name in ("image", "label")}
        weight, (features, losses) = view.class_weights(), view.features_and_losses(rows)
        keep = survivors(
            rows["label"],
            losses,
            relevant_directions(features, rows["label"], weight),
            alpha=trade_off(self.alpha, view.training_loss().to(priority.device)),
            classes=len(weight),
            excess=excess,
            rng=rng,
        )
        return priority.where(keep, EMPTY)

    def _slots(self) -> Tensor:
        """Return the slots of all short-term rows, by arrival."""
        priority, order = self.store.priority, self.store.columns["order"]
        return order.where((priority >= 0) & (priority < 1), LATER).argsort()[: self._short]


def trade_off(alpha: float, loss: Tensor) -> Tensor:
    """α₀ · min(1, 1/ℓ̄) of a training loss, 0-d.

    >>> trade_off(0.5, torch.tensor(2.0)).item(), trade_off(0.5, torch.tensor(0.0)).item()
    (0.25, 0.5)
    """
    return alpha * loss.double().reciprocal().clamp(max=1.0)


def relevant_directions(features: Tensor, label: Tensor, weight: Tensor) -> Tensor:
    """Return unit features [n, d], reduced to the dimensions for which a row's class has more than the mean weight.

    `weight` is [C, d]. A class without such dimensions uses all of them; features that are zero there stay zero.
    """
    relevant = weight > weight.mean(0)
    relevant |= ~relevant.any(1, keepdim=True)
    return F.normalize(features.double() * relevant[label], dim=1)


def survivors(
    label: Tensor,
    loss: Tensor,
    direction: Tensor,
    *,
    alpha: Tensor,
    classes: int,
    excess: int,
    rng: torch.Generator,
) -> Tensor:
    """Return which rows [n] are still there after `excess` of them went, one at a time.

    `label` and `loss` are [n], `direction` [n, d] holds unit vectors. Each time the most frequent class loses the row
    of the highest score, the oldest of equal ones; among equally frequent classes chance decides. The sums of cosines
    within a class are computed once and lose one column with each row. Nothing is read back from the device.
    """
    loss = loss.double()
    stays = torch.ones_like(label, dtype=torch.bool)
    member = label[:, None] == torch.arange(classes, device=label.device)
    counts = member.sum(0)
    # a product, not an indexed addition: that one adds in any order on a GPU
    cosines = (direction * (member.double().T @ direction)[label]).sum(1)
    # float64: added to a count, noise in [0, 1) decides between equals and never reaches the next count
    chances = torch.rand(excess, classes, dtype=torch.float64, generator=rng, device=label.device)
    if len(label) <= MOST_AT_ONCE and classes <= MOST_AT_ONCE and has_kernels(KERNELS, label.device):
        from odedm.memory.purity_triton import remove  # Triton comes with torch for GPUs alone

        return remove(label, loss, cosines, direction, counts, chances, alpha, TINY)
    for noise in chances:
        largest = (counts + noise).argmax(keepdim=True)
        largest_class = stays & (label == largest)
        score = (1 - alpha) * z_score(loss, largest_class) + alpha * z_score(cosines / counts[largest], largest_class)
        gone = score.where(largest_class, -torch.inf).argmax(keepdim=True)
        stays.index_fill_(0, gone, False)
        counts.index_add_(0, largest, -torch.ones_like(largest))
        cosines = cosines - (direction @ direction[gone].squeeze(0)).where(largest_class, 0.0)
    return stays


def z_score(value: Tensor, marked: Tensor) -> Tensor:
    """Return values [n] standardised over those marked in `marked` [n]; all zero where these do not differ.

    >>> z_score(torch.tensor([1.0, 3.0, 99.0]), torch.tensor([True, True, False]))[:2].tolist()
    [-1.0, 1.0]
    """
    amount = marked.sum()
    mean = value.where(marked, 0.0).sum() / amount
    centred = (value - mean).where(marked, 0.0)
    deviation = (centred.square().sum() / amount).sqrt()
    differs = deviation > TINY * value.where(marked, 0.0).abs().amax()
    return torch.where(differs, centred / deviation, 0.0)
