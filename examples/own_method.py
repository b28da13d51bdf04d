"""A loss and a memory policy of one's own, without a fork: in lanes, in a study, in its report, and in resumed runs.

    python examples/own_method.py               # the study below, two runs side by side, and its report
    odedm run --plugin examples/own_method.py --method focal --memory native --set memory.policy=hard
    odedm resume runs --plugin examples/own_method.py

`odedm.testing.check_method(Focal)` and `check_memory(Hard)` try both with every memory, and resume them.
"""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

import odedm

STUDY = """
data = "blobs"
method = "focal"
capacity = 40
seeds = 2
grid = [
  { memory = "native", policy = "hard" },
  { memory = "odedm", rho = 0.5, short_policy = "hard" },
]
"""


class Focal(odedm.Method):
    """Experience replay with the focal loss: rows that are learned already count less."""

    lr: float = 0.1
    sharpness: float = 2.0  # a hyper-parameter: --set sharpness=1

    def loss(self, batch: odedm.Rows, replay: odedm.Replay) -> tuple[torch.Tensor, odedm.Rows]:
        """The focal loss on the stream batch and as many rows of the memory; there are no columns to store."""
        x, y = batch["input"], batch["label"]
        if past := replay():
            x, y = torch.cat([x, past["input"]]), torch.cat([y, past["label"]])
        loss = F.cross_entropy(self.net(x), y, reduction="none")
        return ((1 - (-loss).exp()) ** self.sharpness * loss).mean(), {}


class Hard(odedm.Memory):
    """A weighted reservoir: a row with a large loss is likelier to be kept."""

    def add(self, rows: odedm.Rows, view: odedm.ModelView, *, rng: torch.Generator) -> None:
        """The rows with the largest keys stay."""
        _, loss = view.features_and_losses(rows)
        luck = torch.rand(len(loss), dtype=torch.float64, generator=rng, device=loss.device)
        self.insert(rows, (luck ** (1 / (loss.double() + 0.1))).clamp(max=1 - 1e-9))

    def end_task(self, task: odedm.Task, view: odedm.ModelView, *, rng: torch.Generator) -> None:
        """Nothing changes at a border."""


odedm.register("methods", "focal", Focal, title="Focal replay")
odedm.register("policies", "hard", Hard)


def main(folder: Path) -> None:
    """Run the study; again, it does what is missing."""
    from odedm.cli.app import app

    folder.mkdir(parents=True, exist_ok=True)
    study = folder / "focal.toml"
    study.write_text(STUDY)
    words = ["study", str(study), "--plugin", __file__, "--workers", "2", "--out", str(folder / "study")]
    app(words, standalone_mode=False)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/focal"))
