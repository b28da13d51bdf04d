"""Lloyd's iterations on a GPU: two products, and two Triton kernels for all that lies between them; and their seeds.

torch starts twenty small operations an iteration, and starting them is what takes the time. Here the host starts four
and looks at the outcome every few iterations. Sums are products with one-hot labels, in a fixed order: they repeat.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

ROWS, CLUSTERS, WIDTH = 32, 32, 512
"""Rows and clusters of a tile that is searched for the best score, and entries of a centroid that move at once."""
PROGRAMS, MOST_PARTS = 600, 16
"""Tiles of 32 × 32 sums that a product should have, and into how many parts the points may be cut for it."""


@triton.jit(do_not_specialize=["rows", "clusters"])
def _elect(score, rows, clusters, ROWS: tl.constexpr, CLUSTERS: tl.constexpr):
    """Put a one in the place of each row's highest `score` [rows, clusters], the first of equals, and zeros around."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    real = row < rows
    best, winner = tl.full((ROWS,), -float("inf"), tl.float32), tl.zeros((ROWS,), tl.int32)
    for begin in range(0, clusters, CLUSTERS):
        cluster = begin + tl.arange(0, CLUSTERS)
        there = real[:, None] & (cluster < clusters)[None, :]
        value = tl.load(score + row[:, None] * clusters + cluster[None, :], mask=there, other=-float("inf"))
        high, place = tl.max(value, 1, return_indices=True)
        winner = tl.where(high > best, begin + place, winner)
        best = tl.maximum(best, high)
    for begin in range(0, clusters, CLUSTERS):
        cluster = begin + tl.arange(0, CLUSTERS)
        there = real[:, None] & (cluster < clusters)[None, :]
        mine = (winner[:, None] == cluster[None, :]).to(tl.float32)
        tl.store(score + row[:, None] * clusters + cluster[None, :], mine, mask=there)


@triton.jit(do_not_specialize=["parts", "clusters", "width", "row"])
def _move(
    centre, total, settled, left, shift, left_next, shift_next, parts, clusters, width, row,
    CLUSTERS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Move a set's centroid to its points' mean if the set moved enough before and has iterations left.

    A row of `centre` is a centroid [width], minus half its squared length, and padding; a row of `total`, one for each
    part of the points, is their sum [width], how many they are, and padding; both have `row` entries.
    """
    which, cluster = tl.program_id(0), tl.program_id(1)
    moved = tl.zeros((CLUSTERS,), tl.float32)
    for begin in range(0, clusters, CLUSTERS):
        other = begin + tl.arange(0, CLUSTERS)
        moved += tl.load(shift + which * clusters + other, mask=other < clusters, other=0.0)
    rest = tl.load(left + which)
    goes = (rest > 0) & (tl.sum(moved, 0) > tl.load(settled + which))
    at = (which * clusters + cluster).to(tl.int64) * row
    first, further = (which * parts * clusters + cluster).to(tl.int64) * row, clusters.to(tl.int64) * row
    size = 0.0
    for part in range(parts):
        size += tl.load(total + first + part * further + width)
    step = tl.where(goes, 1 / tl.maximum(size, 1.0), 0.0)
    length, distance = tl.zeros((WIDTH,), tl.float32), tl.zeros((WIDTH,), tl.float32)
    for begin in range(0, width, WIDTH):
        entry = begin + tl.arange(0, WIDTH)
        old = tl.load(centre + at + entry, mask=entry < width, other=0.0)
        points = tl.zeros((WIDTH,), tl.float32)
        for part in range(parts):
            points += tl.load(total + first + part * further + entry, mask=entry < width, other=0.0)
        move = (points - size * old) * step
        new = old + move
        length += new * new
        distance += move * move
        tl.store(centre + at + entry, new, mask=entry < width)
    tl.store(centre + at + width, -0.5 * tl.sum(length, 0))
    tl.store(shift_next + which * clusters + cluster, tl.sum(distance, 0))
    if cluster == 0:
        tl.store(left_next + which, tl.where(goes, rest - 1, rest))


@triton.jit(do_not_specialize=["rows", "clusters", "first", "last"])
def _seed(
    table, race, far, taken, rows, clusters, first, last, DRAWS: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """Greedy k-means++ from seed `first` to `last` of one set: `odedm.consolidate.kmeans._seeds`, all in one program.

    `table` [rows, rows] holds squared distances, `far` [rows] those to the nearest point that is taken, `race` noise.
    """
    which, row = tl.program_id(0), tl.arange(0, ROWS)
    real = row < rows
    table += which.to(tl.int64) * rows * rows
    distance = tl.load(far + which * rows + row, mask=real, other=-float("inf"))
    before = tl.load(taken + which * clusters + first - 1)
    for turn in range(first, last):
        distance = tl.where(row == before, 0.0, distance)  # exactly: rounding must not let a point be drawn twice
        noise = tl.load(race + ((turn - first) * tl.num_programs(0) + which) * rows + row, mask=real, other=1.0)
        chance = tl.where(real, tl.div_rn(distance, noise), -float("inf"))
        best, closest = float("inf"), distance
        for _ in range(DRAWS):
            candidate = tl.argmax(chance, 0)
            chance = tl.where(row == candidate, -float("inf"), chance)
            apart = tl.load(table + candidate.to(tl.int64) * rows + row, mask=real, other=0.0)
            closer = tl.minimum(apart, distance)
            total = tl.sum(tl.where(real, closer, 0.0).to(tl.float64), 0).to(tl.float32)
            better = total < best
            closest = tl.where(better, closer, closest)
            before = tl.where(better, candidate, before)
            best = tl.where(better, total, best)
        distance = closest
        tl.store(taken + which * clusters + turn, before)
    tl.store(far + which * rows + row, distance, mask=real)


def seed(table: Tensor, race: Tensor, far: Tensor, taken: Tensor, first: int, last: int, draws: int) -> None:
    """Choose seeds `first` to `last` of sets, in place: `far` [C, n] and `taken` [C, k], int64.

    `table` [C, n, n] holds squared distances, `race` [last - first, C, n] the noise of these seeds.
    """
    sets, rows = far.shape
    size = triton.next_power_of_2(rows)
    _seed[(sets,)](
        table, race, far, taken, rows, taken.shape[1], first, last, DRAWS=draws, ROWS=size,
        num_warps=16 if size > 1024 else 4,
    )  # fmt: skip


def settle(weighed: Tensor, centroid: Tensor, left: Tensor, settled: Tensor, look_every: int) -> tuple[Tensor, Tensor]:
    """Move centroids [C, k, d] until they have settled: where they are then, and what is left of the iterations.

    `weighed` [C, n, d + 4] holds points, their weights, and three columns of zeros; `left` [C] is how many iterations
    each set may do, `settled` [C] how far its centroids must move to go on.
    """
    (sets, clusters, width), wide = centroid.shape, weighed.shape[2]
    # a product over all rows gives few numbers, so a GPU would be idle but for as many tiles: it is done in parts
    parts = max(1, min(MOST_PARTS, PROGRAMS // (sets * triton.cdiv(clusters, 32) * triton.cdiv(wide, 32))))
    weighed = F.pad(weighed, (0, 0, 0, -weighed.shape[1] % parts))
    rows = weighed.shape[1]
    centre = weighed.new_zeros(sets, clusters, wide)
    centre[:, :, :width] = centroid
    centre[:, :, width] = centroid.square().sum(2) / -2
    score, total = weighed.new_empty(sets, rows, clusters), weighed.new_empty(sets * parts, clusters, wide)
    piece, member = (x.view(sets * parts, rows // parts, -1) for x in (weighed, score))
    settled = settled.square()
    # what is left and how far centroids moved, before an iteration and after it: its programs run in any order
    now = left.int(), weighed.new_full((sets, clusters), torch.inf)
    later = torch.empty_like(now[0]), torch.empty_like(now[1])
    while True:  # the first look comes after the first iterations: before them there is something to do
        for _ in range(look_every):
            torch.bmm(weighed, centre.mT, out=score)
            _elect[(triton.cdiv(sets * rows, ROWS),)](score, sets * rows, clusters, ROWS=ROWS, CLUSTERS=CLUSTERS)
            torch.bmm(member.mT, piece, out=total)
            _move[(sets, clusters)](
                centre, total, settled, *now, *later, parts, clusters, width, wide, CLUSTERS=CLUSTERS, WIDTH=WIDTH
            )  # fmt: skip
            now, later = later, now
        if not bool(((now[0] > 0) & (now[1].sum(1) > settled)).any()):
            return centre[:, :, :width], now[0]


def trial(device: torch.device) -> None:
    """Compile and run the kernels once, on next to nothing; raises what stands in the way."""
    weighed, one = torch.ones(1, 2, 20, device=device), torch.ones(1, device=device)
    settle(weighed, torch.zeros(1, 2, 16, device=device), one, torch.zeros_like(one), 1)
    table, taken = torch.ones(1, 2, 2, device=device), torch.zeros(1, 2, dtype=torch.int64, device=device)
    seed(table, table[:, :1], table[:, 0].contiguous(), taken, 1, 2, 2)
