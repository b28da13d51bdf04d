"""Rows of one class for the oracles: with clear clusters, and of pictures as a fixed network embeds them."""

from importlib.resources import files

import numpy as np


def nested(seed=0):
    """Rows [104, 16], non-negative as features are, in which each step of the algorithm has one clear answer.

    Eight clusters of 13 rows: one at their middle and twelve about it. Six lie close together, in two groups of three,
    the seventh farther away and the last farthest: divide-and-conquer by (3, 2) drops the last, then the seventh, and
    k-means by 6 has one best result.
    """
    rng = np.random.default_rng(seed)
    centres = np.full((8, 16), 0.5)
    for cluster in range(6):
        group = cluster // 3
        centres[cluster, 2 + 3 * group : 5 + 3 * group] += 6
        centres[cluster, 8 + cluster % 3] += 4
    centres[6, 0] += 20
    centres[7, 1] += 60
    points = []
    for centre in centres:
        steps = rng.uniform(0.08, 0.16, (6, 1)) * rng.choice([-1, 1], (6, 16))
        points += [centre[None], centre + steps, centre - steps]
    points = np.concatenate(points)
    return points[rng.permutation(len(points))].astype(np.float32)


def lopsided(seed=0):
    """Rows [212, 8]: 200 close together, and six pairs far from them and each other, which few random starts hit."""
    rng = np.random.default_rng(seed)
    crowd = rng.uniform(0, 1, (200, 8))
    pairs = np.eye(6, 8).repeat(2, 0) * 30 + rng.uniform(0, 1, (12, 8))
    return np.concatenate([crowd, pairs])[rng.permutation(212)].astype(np.float32)


def pictures():
    """The embedded pictures [3000, 28, 28] and their labels."""
    with (files("odedm") / "data" / "embedded" / "fashion-mini-train.npz").open("rb") as file:
        stored = np.load(file)
        return stored["image"], stored["label"].astype(np.int64)


def embedding(images, width=48, seed=0):
    """Features [n, width] of pictures by a fixed network: a random layer and a ReLU, of pictures brought to mean 0."""
    weight = np.random.default_rng(seed).normal(size=(images[0].size, width)) / images[0].size ** 0.5
    flat = images.reshape(len(images), -1).astype(np.float64)
    flat = (flat - flat.mean(1, keepdims=True)) / flat.std(1, keepdims=True)
    return np.maximum(flat @ weight, 0).astype(np.float32)


def of_class(label, amount=150, width=48):
    """Embedded rows of one class of the pictures."""
    images, labels = pictures()
    return embedding(images[labels == label][:amount], width)
