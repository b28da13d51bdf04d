"""Write the training part of a data set to a file, so that choices can be made on rows held out of it.

    python tools/training_part.py cifar10 cifar10-train.npz
    odedm data import cifar10-train.npz --as cifar10-held --test-share 0.1 --tasks 5 --flip

A tenth of every class is then what runs on `cifar10-held` are tested on, and no test row has been looked at.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import odedm


def main() -> None:
    """Read, write, say what was written."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("data", help="a data set by its name")
    words.add_argument("file", type=Path, help="where to, ending in .npz")
    given = words.parse_args()
    data = odedm.open_data(given.data)
    names = np.array(data.class_names)
    np.savez(given.file, x=data.image.numpy(), y=names[data.label.numpy()])
    print(f"{len(data.image)} training rows of {data.classes} classes: {given.file}")


if __name__ == "__main__":
    main()
