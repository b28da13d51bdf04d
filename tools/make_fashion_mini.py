"""Make the embedded `fashion-mini` files from the full Fashion-MNIST (Debian's package dataset-fashion-mnist).

The first 300 training and the first 100 test images of every class, in the order of the full set:

    python tools/make_fashion_mini.py /usr/share/datasets/fashion-mnist src/odedm/data/embedded
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np


def read_idx(path: Path) -> np.ndarray:
    """Return an IDX file of unsigned bytes as an array."""
    raw = gzip.decompress(path.read_bytes())
    dims = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(dims)]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)


def main(source: Path, target: Path) -> None:
    """Write fashion-mini-train.npz and fashion-mini-test.npz."""
    for split, prefix, per_class in (("train", "train", 300), ("test", "t10k", 100)):
        image = read_idx(source / f"{prefix}-images-idx3-ubyte.gz")
        label = read_idx(source / f"{prefix}-labels-idx1-ubyte.gz")
        keep = np.sort(np.concatenate([np.flatnonzero(label == c)[:per_class] for c in range(10)]))
        path = target / f"fashion-mini-{split}.npz"
        np.savez_compressed(path, image=image[keep], label=label[keep])
        print(path, image[keep].shape, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
