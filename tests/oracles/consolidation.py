"""Algorithm 1, Steps 2 and 3, for one class at the end of a task: reduce, centre, select, in this order."""

from oracles.divide_and_conquer import divide_and_conquer
from oracles.kmeans import kmeans
from oracles.selection import nearest_rows
from oracles.sinkhorn import cloud_distance, histograms, pair_distances, profile_cost


def row_costs(candidates, kept, centres):
    """f_α between the rows that are kept and the prototypes [m, k], with the ground cost of all candidates."""
    rows, targets = (histograms(x, candidates) for x in (candidates[kept], centres))
    return pair_distances(rows, targets, profile_cost(candidates))


def consolidate(candidates, k, dac, rng, starts=5):
    """The rows of `candidates` [n, d], embedded rows of one class, that the long-term part keeps, by prototype.

    The clusters are the best of some starts, so on data with clear clusters the result depends on no draw.
    """
    clusters, depth = dac or (0, 0)

    def partition(points, amount):
        return kmeans(points, amount, rng, starts)[0]

    kept = divide_and_conquer(candidates, clusters, k, depth, partition, cloud_distance)
    centres = kmeans(candidates[kept], k, rng, starts)[1]
    return [int(kept[row]) for row in nearest_rows(row_costs(candidates, kept, centres))]
