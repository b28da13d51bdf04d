"""Loads data sets that need no download: embedded pictures of Fashion-MNIST, also turned, and scikit-learn's digits."""

from __future__ import annotations

from importlib import resources

import numpy as np
import torch

from odedm.core.errors import UsageError
from odedm.stream.dataset import Dataset, from_arrays, standardise

FASHION = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


def fashion_mini() -> Dataset:
    """Return the embedded subset of Fashion-MNIST: 300 training and 100 test images of each of 10 classes."""
    folder = resources.files("odedm.data").joinpath("embedded")
    parts = []
    for split in ("train", "test"):
        with folder.joinpath(f"fashion-mini-{split}.npz").open("rb") as file, np.load(file) as arrays:
            parts += [torch.from_numpy(arrays["image"])[:, None], torch.from_numpy(arrays["label"]).long()]
    image, label, test_image, test_label = parts
    transform = standardise(image, pad=2, flip=True)
    return Dataset("fashion-mini", image, label, test_image, test_label, FASHION, transform, tasks=5)


def fashion_mini_20() -> Dataset:
    """Return fashion-mini with 20 classes: half of each class upright, the other half lying."""
    return _turned("fashion-mini-20", turns=2)


def fashion_mini_40() -> Dataset:
    """Return fashion-mini with 40 classes: a quarter of each class in each of four turns."""
    return _turned("fashion-mini-40", turns=4)


def _turned(name: str, *, turns: int) -> Dataset:
    """Return fashion-mini whose class c becomes `turns` classes: row i is given i % turns quarter turns."""
    data = fashion_mini()
    parts = []
    for image, label in ((data.image, data.label), (data.test_image, data.test_label)):
        turn = torch.zeros_like(label)
        for cls in range(data.classes):
            rows = (label == cls).nonzero().flatten()
            turn[rows] = torch.arange(len(rows)) % turns
        turned = torch.stack([torch.rot90(row, int(times), (1, 2)) for row, times in zip(image, turn, strict=True)])
        parts += [turned, label * turns + turn]
    image, label, test_image, test_label = parts
    names = tuple(f"{title}, {90 * times}°" for title in FASHION for times in range(turns))
    # a mirror image of a turned coat is a coat with the opposite turn
    transform = standardise(image, pad=2, flip=False)
    return Dataset(name, image, label, test_image, test_label, names, transform, tasks=10)


def digits() -> Dataset:
    """Return scikit-learn's 1 797 handwritten digits, 8×8, one fifth of each class held out for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise UsageError("The data set 'digits' needs scikit-learn: pip install 'odedm[digits]'.") from error
    image, label = load_digits(return_X_y=True)
    square = (image.reshape(-1, 1, 8, 8) * 15).astype(np.uint8)
    return from_arrays(square, label, tasks=5, name="digits")
