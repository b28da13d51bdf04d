"""Algorithm 2, Divide-and-Conquer: narrow the rows of a class to clusters that are close to each other."""

from itertools import combinations

import numpy as np


def closest_clusters(clusters, distance, smallest):
    """Steps 2 and 3: the subset s* of two or more clusters, with m (`smallest`) rows or more, of the least distance.

    `distance` compares two clusters; that of a subset is the sum over its pairs. None where no subset is large enough.
    Beside it the next best sum, which says how clear the choice is.
    """
    far = {pair: distance(clusters[pair[0]], clusters[pair[1]]) for pair in combinations(range(len(clusters)), 2)}
    paths = [path for size in range(2, len(clusters) + 1) for path in combinations(range(len(clusters)), size)]
    sums = {
        path: sum(far[pair] for pair in combinations(path, 2))
        for path in paths
        if sum(len(clusters[cluster]) for cluster in path) >= smallest
    }
    if not sums:
        return None, np.inf, np.inf
    best = min(sums, key=sums.get)
    return best, sums[best], min((total for path, total in sums.items() if path != best), default=np.inf)


def divide_and_conquer(points, clusters, smallest, depth, partition, distance):
    """The rows of `points` that stay, ascending: X* of Algorithm 2, m = k.

    `partition(points, K)` is Step 1 and gives labels, `distance(x, y)` is that between clusters. It ends at depth 0,
    where no subset is large enough, and where there are no more points than clusters.
    """
    kept = np.arange(len(points))
    for _ in range(depth):
        if len(kept) <= clusters:
            break
        label = partition(points[kept], clusters)
        parts = [kept[label == cluster] for cluster in np.unique(label)]
        best, _, _ = closest_clusters([points[part] for part in parts], distance, smallest)
        if best is None:
            break
        kept = np.sort(np.concatenate([parts[cluster] for cluster in best]))
    return kept
