"""The memory inside Avalanche and Mammoth against their own reservoirs: `make integrations` runs it.

    python benchmarks/integrations.py --mammoth FOLDER [--seeds 20] [--capacity 200] [--out FILE.json] [--table]

Experience replay on fashion-mini, ten classes in five tasks of two, one epoch, an MLP, plain SGD. Per library: its own
reservoir, our memory with k=0 (which is a reservoir, too), and ODEDM with k prototypes of each class. In Avalanche
`Naive` with the unchanged `ReplayPlugin`, and ODEDM also with the auxiliary term; in Mammoth the unchanged model `Er`,
its `Buffer` and its `BaseMNISTMLP`, in a loop of ours that calls what Mammoth's trainer calls, since importing
Mammoth's data sets downloads weights. Accuracy is that on all test rows at the end. Differences are paired by seed,
with the interval that covers 95 % (Student). `--table` prints the table of a finished file.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import subprocess
import sys
import time
import types
import warnings
from argparse import Namespace
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import t as student
from torch import Tensor, nn

from odedm.data.builtin import fashion_mini
from odedm.results.provenance import commit, processor

RATE, BATCH, K, TASKS = 0.05, 32, 5, 5
OWN, PLAIN, DUAL, AUXILIARY = "its own reservoir", "odedm, k=0", f"odedm, k={K}", f"odedm, k={K}, auxiliary term"


def rows() -> dict[str, tuple[Tensor, Tensor]]:
    """Fashion-mini, standardised as a whole."""
    data = fashion_mini()
    mean, deviation = data.image.float().mean(), data.image.float().std()
    train, test = ((item.float() - mean) / deviation for item in (data.image, data.test_image))
    return {"train": (train, data.label), "test": (test, data.test_label)}


def start(seed: int) -> None:
    """Return one seed for everything that draws."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - Mammoth draws from it
    torch.manual_seed(seed)


def accuracy(net: nn.Module, data: dict[str, tuple[Tensor, Tensor]]) -> float:
    """On all test rows, in per cent."""
    net.eval()
    with torch.no_grad():
        return 100 * (net(data["test"][0]).argmax(1) == data["test"][1]).float().mean().item()


def mend_torchvision() -> bool:
    """Return whether torchvision's wheel for CUDA needed two empty operators beside a torch for CPUs."""
    done = subprocess.run([sys.executable, "-P", "-c", "import torchvision"], capture_output=True, check=False)
    if not done.returncode:
        return False
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    mend_torchvision.library = library  # type: ignore[attr-defined]  # it must live as long as the process
    return True


def avalanche_run(data: dict[str, tuple[Tensor, Tensor]], capacity: int) -> dict[str, Callable[[int], float]]:
    """Return a function from seed to accuracy for each variant."""
    from avalanche.benchmarks import tensors_benchmark
    from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
    from avalanche.training.storage_policy import ReservoirSamplingBuffer
    from avalanche.training.supervised import Naive

    from odedm.integrations.avalanche import AuxiliaryPlugin, ODEDMStorage

    cut = {
        name: [(image[label // 2 == task], label[label // 2 == task]) for task in range(TASKS)]
        for name, (image, label) in data.items()
    }
    benchmark = tensors_benchmark(train_tensors=cut["train"], test_tensors=cut["test"], task_labels=[0] * TASKS)

    def run(seed: int, make: Callable[[int], Any], auxiliary: bool = False) -> float:
        start(seed)
        size = data["train"][0][0].numel()
        net = nn.Sequential(nn.Flatten(), nn.Linear(size, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU())
        net.append(nn.Linear(100, 10))
        storage = make(seed)
        plugins = [ReplayPlugin(capacity, batch_size=BATCH, batch_size_mem=BATCH, storage_policy=storage)]
        strategy = Naive(
            model=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=RATE),
            criterion=nn.CrossEntropyLoss(),
            train_mb_size=BATCH,
            train_epochs=1,
            eval_mb_size=256,
            plugins=plugins + ([AuxiliaryPlugin(storage)] if auxiliary else []),
            evaluator=EvaluationPlugin(loggers=[]),
        )
        for experience in benchmark.train_stream:
            strategy.train(experience)
        return accuracy(net, data)

    return {
        OWN: lambda seed: run(seed, lambda _: ReservoirSamplingBuffer(capacity)),
        PLAIN: lambda seed: run(seed, lambda number: ODEDMStorage(capacity, k=0, seed=number)),
        DUAL: lambda seed: run(seed, lambda number: ODEDMStorage(capacity, k=K, seed=number)),
        AUXILIARY: lambda seed: run(seed, lambda number: ODEDMStorage(capacity, k=K, seed=number), auxiliary=True),
    }


def mammoth_run(
    data: dict[str, tuple[Tensor, Tensor]], capacity: int, folder: Path
) -> dict[str, Callable[[int], float]]:
    """Return a function from seed to accuracy for each variant."""
    stand_in = types.ModuleType("datasets")  # the real one imports every data set, and one of them downloads weights
    for name in ("get_dataset", "get_dataset_names", "get_dataset_config_names"):
        setattr(stand_in, name, None)
    sys.modules["datasets"] = stand_in
    sys.path.insert(0, str(folder))
    from backbone.MNISTMLP import BaseMNISTMLP
    from models.er import Er

    from odedm.integrations.mammoth import attach

    logging.disable(logging.WARNING)
    per_task = 10 // TASKS
    about = Namespace(N_CLASSES=10, N_TASKS=TASKS, SETTING="class-il", N_CLASSES_PER_TASK=per_task)
    about.get_offsets = lambda task: (per_task * task, per_task * (task + 1))
    words = Namespace(buffer_size=capacity, minibatch_size=BATCH, optimizer="sgd", lr=RATE, optim_wd=0.0, optim_mom=0.0)
    words.optim_nesterov, words.label_perc, words.nowand = False, 1, True
    image, label = data["train"]

    def run(seed: int, k: int | None) -> float:
        start(seed)
        model = Er(BaseMNISTMLP(image[0].numel(), 10), nn.CrossEntropyLoss(), words, None, dataset=about)
        if k is not None:
            attach(model, k=k, seed=seed)
        order = torch.Generator().manual_seed(seed)
        for task in range(TASKS):
            model.net.train()
            model.meta_begin_task(about)
            indices = (label // per_task == task).nonzero().flatten()
            for part in indices[torch.randperm(len(indices), generator=order)].split(BATCH):
                model.meta_observe(image[part], label[part], image[part], epoch=0)
            model.meta_end_task(about)
        return accuracy(model.net, data)

    return {
        OWN: lambda seed: run(seed, None),
        PLAIN: lambda seed: run(seed, 0),
        DUAL: lambda seed: run(seed, K),
    }


def table(accuracies: dict[str, Any]) -> str:
    """Return mean and deviation, and the difference from the library's own reservoir, as Markdown."""
    lines = ["| library | memory | accuracy, % | difference from its own |", "|---|---|---|---|"]
    for library, variants in accuracies["accuracy"].items():
        for name, values in variants.items():
            cell = "–"
            if name != OWN:
                by_seed = [ours - theirs for ours, theirs in zip(values, variants[OWN], strict=True)]
                half = student.ppf(0.975, len(by_seed) - 1) * statistics.stdev(by_seed) / len(by_seed) ** 0.5
                cell = f"{statistics.mean(by_seed):+.2f} ± {half:.2f}"
            lines.append(
                f"| {library} | {name} | {statistics.mean(values):.2f} ± {statistics.stdev(values):.2f} | {cell} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mammoth", type=Path, help="a clone of Mammoth; left out unless given")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--capacity", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("docs/results/integrations.json"))
    parser.add_argument("--table", action="store_true", help="print the table of a finished file")
    args = parser.parse_args()
    if args.table:
        print(table(json.loads(args.out.read_text())))
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    began, out, data = time.time(), args.out.resolve(), rows()
    about = {"commit": commit(), "processor": processor(), "torch": torch.__version__}
    about |= {"avalanche": version("avalanche-lib"), "torchvision mended": mend_torchvision()}
    libraries = {"Avalanche": avalanche_run(data, args.capacity)}
    if args.mammoth:
        folder = args.mammoth.resolve()
        told = ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"]
        about["mammoth"] = subprocess.run(told, capture_output=True, text=True, check=True).stdout.strip()
        libraries["Mammoth"] = mammoth_run(data, args.capacity, folder)
    accuracies: dict[str, Any] = {
        library: {name: [round(run(seed), 3) for seed in range(args.seeds)] for name, run in variants.items()}
        for library, variants in libraries.items()
    }
    settings = {"data": "fashion-mini", "capacity": args.capacity, "k": K, "lr": RATE, "batch": BATCH, "epochs": 1}
    about |= {"seconds": round(time.time() - began), "seeds": args.seeds, "settings": settings}
    out.write_text(json.dumps({**about, "accuracy": accuracies}, indent=1) + "\n")
    print(table(json.loads(out.read_text())))


if __name__ == "__main__":
    main()
