"""What stands under each figure of a report."""

from __future__ import annotations


def captions(
    *, against: str, several_seeds: bool, shuffled: bool, observed: bool, told: str, machines: int
) -> dict[str, str]:
    """The captions by the figures' names; some depend on what the runs are.

    Args:
        against: what changes are taken against.
        several_seeds: whether lines are means with a spread.
        shuffled: whether seeds order the classes differently.
        observed: whether some of the time went into looking.
        told: from which run single rows are told of.
        machines: how many kinds of machine the runs come from.
    """
    return {
        "differences": (
            f"Change in final accuracy against {against}. Circles are single seeds, "
            "the diamond is their mean, the bar is the 95 % interval of that. A bar that crosses "
            "zero leaves the sign of the change open."
        ),
        "ablation": (
            "Final accuracy by variant, mean over seeds; the whisker is one standard error, circles "
            "are single seeds, the hatched bar is the memory without ODEDM."
        ),
        "capacity": "Final accuracy against the rows in memory; bands are one standard error to each side.",
        "share": (
            "Final accuracy against the long-term share; the memory without ODEDM has none and is "
            "drawn as a level line. The highest point is not a fair choice of ρ: it was found on the "
            "test set."
        ),
        "forgetting": (
            "100 % minus the mean accuracy over tasks 1 to i, after task i: the paper's forgetting rate, which counts "
            "also what was never learned. The column Forgetting is another number, the fall from the best past "
            "accuracy. Lower is better. Lines are means over seeds"
        )
        + (", bands are one standard error to each side." if several_seeds else "; with one seed there is no band."),
        "anytime": (
            "Accuracy over the classes seen so far, measured while the stream goes on: what the "
            "model would have been worth at any moment. Bands are one standard error to each side."
        ),
        "matrices": (
            "Read a column downwards to follow one task: its first cell is the accuracy right after "
            "learning it, the last one what is left in the end. Class-incremental accuracy in per "
            "cent, mean over seeds; every panel has the same scale."
        ),
        "classes": "A bar per class: long-term rows first, then short-term rows, mean over seeds. "
        + (
            ("Seeds order the classes differently, so classes are sorted by name and not bracketed by task.")
            if shuffled
            else (
                "Classes stand in the order of the stream, bracketed by task. Even bars mean that old "
                "classes keep their share."
            )
        ),
        "density": (
            "The share of the final memory that each class has, both parts together, mean over "
            "seeds. The dotted line is an even memory."
        ),
        "growth": (
            "Rows in each part after each task, mean over seeds. Long-term rows are taken out of the "
            "same capacity: what they gain, short-term memory gives up."
        ),
        "projection": (
            "Features of the memory's rows (triangles) among those of the data (dots), in the plane "
            "where the data spread most, with the line through each cloud along which it spreads "
            "most, beside it, dotted, the line of least squares, and the cosines between the two. A "
            "cosine of 1 means that the memory lies "
            "along the data. From the first seed that saved its features. Each run has a network of "
            "its own, and so a plane of its own: compare the lines within a panel, and the cosines "
            "between panels, but not the directions."
        ),
        "pictures": (
            "A row per class, ordered by task, a picture per prototype, from the first seed whose "
            "memory was saved. Classes without a long-term row are left out, as those of the last "
            "task usually are. Of a large memory only the first classes of each task and the first "
            "pictures of each class are drawn."
        ),
        "selections": (
            "What each distance chose, a row of pictures per task, everything else being equal. "
            "Until the end of the first task the networks are the same, so there the rows differ by "
            "the distance alone; later ones come from networks that have grown apart. Of a task with "
            "more pictures than fit, those at even steps are drawn."
        ),
        "stories": "Rows of one class in "
        + told
        + (
            ": the row kept for the first prototype, of those not kept the one that came nearest to "
            "a centre, and the one farthest from all. A bar is the distance to a prototype's centre, "
            "nearest first; rank 1 is the nearest of the candidates, which are the rows that "
            "divide-and-conquer left. The full bar is the prototype it was kept for."
        ),
        "seconds": (
            "Mean over seeds. The bar's length is the whole run; train is the stream itself, "
            "evaluate the tests after each task; the rest happens where tasks end, mostly the choice "
            "of long-term rows."
        )
        + (" What a run looked at beside its result is counted as observe." if observed else "")
        + (
            " The runs come from more than one kind of machine, so compare their seconds with care."
            if machines > 1
            else ""
        ),
    }
