"""Section 3.4 and Equation 8: how the λ rows are shared by the short-term and the long-term part, task by task."""


def allocation(capacity, k, tasks):
    """The rows of the short-term part and, by class, of the long-term part after each task.

    `tasks` is, task by task, how many rows of each of its classes the stream had: [{class: rows}, …], each class in one
    task. The short-term part is a reservoir: it holds whatever was streamed while there is room. When a task ends
    M_long grows by k rows for each of its classes (by all rows of a class that has fewer), and as many short-term rows
    as needed are dropped for both parts to fit into λ together. The last task adds nothing: 1 ≤ i < n in Algorithm 1.
    """
    long, streamed, sizes = {}, 0, []
    for number, classes in enumerate(tasks):
        streamed += sum(classes.values())
        if number < len(tasks) - 1:
            long.update({label: min(k, rows) for label, rows in classes.items()})
        sizes.append((min(streamed, capacity - sum(long.values())), dict(long)))
    return sizes


def imbalanced(labels):
    """Which rows remain in the imbalanced setting: of every even class those at odd positions, of others all.

    "takes out the samples indexed by even numbers": read so that the even classes keep half of their rows, since taking
    them out of every class would leave the classes balanced.
    """
    seen, kept = {}, []
    for label in labels:
        position = seen.get(label, 0)
        seen[label] = position + 1
        kept.append(label % 2 == 1 or position % 2 == 1)
    return kept
