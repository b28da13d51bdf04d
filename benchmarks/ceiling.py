"""What the arithmetic alone costs: experience replay's step in plain PyTorch, and the card's ceiling. Prints JSON.

python benchmarks/ceiling.py [--device cuda]

`eager` is the loop as one would write it; `recorded …` the same step as a CUDA graph with our kernels, in bfloat16 and
TF32, which is the unit that methods' arithmetic is counted in; `ceiling …` the same network on 16 times the batch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))
from timing import recorded, timed

from odedm.nets.build import build

ROWS = 64


def er_step(
    net: str, side: int, rows: int, device: str, dtype: torch.dtype | None, *, fused: bool
) -> Callable[[], None]:
    """Forward, cross-entropy, backward and update of so many rows, half of them as if replayed."""
    model = build(net, (3, side, side), 10, seed=0).to(device)
    if device == "cuda":
        model = model.to(memory_format=torch.channels_last)
    model.compute = dtype
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, fused=device == "cuda")
    x = torch.randn(rows, 3, side, side, device=device)
    label = torch.randint(10, (rows,), device=device)

    def step() -> None:
        halves = model.forward_batches(*x.chunk(2)) if fused else [model(half) for half in x.chunk(2)]
        loss = F.cross_entropy(torch.cat(list(halves)), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = options.parse_args().device
    timings: dict[str, dict[str, float]] = {}

    def note(name: str, ms: float, rows: int) -> None:
        timings[name] = {"ms": ms, "row_forwards": 3.0 * rows}

    if device == "cpu":
        note("eager", timed(er_step("cnn", 32, ROWS, device, None, fused=False), 10), ROWS)
    else:
        bf16 = torch.bfloat16
        note("eager", timed(er_step("resnet18", 32, ROWS, device, None, fused=False), 50), ROWS)
        note("recorded bf16", timed(recorded(er_step("resnet18", 32, ROWS, device, bf16, fused=True)), 200), ROWS)
        note("recorded tf32", timed(recorded(er_step("resnet18", 32, ROWS, device, None, fused=True)), 200), ROWS)
        for title, net, side, rows in (
            ("", "resnet18", 32, ROWS),
            (" 64×64", "resnet18", 64, 96),
            (" 224×224", "vit", 224, 96),
        ):
            large = 16 * rows if side < 224 else 4 * rows
            note(f"ceiling bf16{title}", timed(er_step(net, side, large, device, bf16, fused=True), 10), large)
        note("ceiling tf32", timed(er_step("resnet18", 32, 16 * ROWS, device, None, fused=True), 10), 16 * ROWS)
    print(json.dumps(timings))


if __name__ == "__main__":
    main()
