"""Loads data sets that need no download: an embedded part of Fashion-MNIST, and scikit-learn's digits."""

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


def digits() -> Dataset:
    """Return scikit-learn's 1 797 handwritten digits, 8×8, one fifth of each class held out for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise UsageError("The data set 'digits' needs scikit-learn: pip install 'odedm[digits]'.") from error
    image, label = load_digits(return_X_y=True)
    square = (image.reshape(-1, 1, 8, 8) * 15).astype(np.uint8)
    return from_arrays(square, label, tasks=5, name="digits")
