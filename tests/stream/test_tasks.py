import numpy as np
import pytest
import torch

from odedm import UsageError, blobs, from_arrays, split
from odedm.stream.tasks import imbalance_mask


def uneven(classes=6, per_class=20):
    """Rows that say which they are: x = (row number, label)."""
    label = np.arange(classes * per_class) % classes
    x = np.stack([np.arange(len(label)), label], 1).astype(np.float32)
    return from_arrays(x, label, tasks=3, test=(x[: 2 * classes], label[: 2 * classes]))


def test_every_row_arrives_once_in_the_task_of_its_class():
    data = uneven()
    stream = split(data, seed=3)
    assert [task.classes for task in stream.tasks] == [(0, 1), (2, 3), (4, 5)]
    assert [task.last for task in stream.tasks] == [False, False, True]
    seen = torch.cat([task.rows["index"] for task in stream.tasks])
    assert sorted(seen.tolist()) == list(range(len(data.image)))
    for task, test in zip(stream.tasks, stream.tests, strict=True):
        assert set(task.rows["label"].tolist()) == set(task.classes) == set(test["label"].tolist())
        assert (task.rows["task"] == task.index).all()
        assert task.rows["image"].equal(data.image[task.rows["index"]])


def test_arrival_order_follows_the_seed_and_is_not_the_data_sets():
    first, again, other = (split(uneven(), seed=seed).tasks[0].rows["index"].tolist() for seed in (0, 0, 1))
    assert first == again != other
    assert first != sorted(first)


def test_class_order_by_seed_renumbers_labels_and_names_alike():
    data = uneven()
    orders = {split(data, class_order="seed", seed=seed).class_names for seed in range(5)}
    assert len(orders) > 1
    stream = split(data, class_order="seed", seed=2)
    for rows in (*(task.rows for task in stream.tasks), *stream.tests):
        names = [stream.class_names[each] for each in rows["label"].tolist()]
        assert names == [str(int(value)) for value in rows["image"][:, 1]]
    assert split(data, seed=2).class_names == tuple("012345")


def test_imbalanced_halves_the_even_classes_by_position_within_the_class():
    label = torch.arange(60) % 6
    kept = imbalance_mask(label, "imbalanced", 1.0, 6)
    for each in range(6):
        own = kept[label == each]
        expected = [False, True] * 5 if each % 2 == 0 else [True] * 10
        assert own.tolist() == expected
    assert imbalance_mask(label, "imbalanced-all", 1.0, 6)[label == 1].tolist() == [False, True] * 5
    assert imbalance_mask(label, "standard", 1.0, 6).all()


def test_imbalance_goes_by_the_data_sets_labels_whatever_the_class_order():
    stream = split(uneven(), imbalance="imbalanced", class_order="seed", seed=1)
    label = torch.cat([task.rows["label"] for task in stream.tasks])
    for each, name in enumerate(stream.class_names):
        assert int((label == each).sum()) == (10 if int(name) % 2 == 0 else 20)
    assert sum(len(test["label"]) for test in stream.tests) == 12, "the test set is untouched"


def test_long_tail_falls_geometrically_to_one_over_the_factor():
    label = torch.arange(5).repeat_interleave(1000)
    size = torch.bincount(label[imbalance_mask(label, "long-tail", 100.0, 5)])
    assert size.tolist() == [1000, 316, 100, 32, 10]
    assert imbalance_mask(label, "long-tail", 1.0, 5).all()
    tiny = torch.arange(3).repeat_interleave(2)
    assert torch.bincount(tiny[imbalance_mask(tiny, "long-tail", 1000.0, 3)]).tolist() == [2, 1, 1], (
        "no class disappears"
    )


@pytest.mark.parametrize("tasks", [0, 3, 4, 20])
def test_classes_that_do_not_split_are_refused_with_the_legal_numbers(tasks):
    with pytest.raises(UsageError, match=f"10 classes do not split into {tasks} tasks.*1, 2, 5, 10"):
        split(blobs(), tasks=tasks)


def test_wrong_names_are_refused_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'imbalanced'"):
        split(blobs(), imbalance="unbalanced")
    with pytest.raises(UsageError, match="did you mean 'natural'"):
        split(blobs(), class_order="naturel")
    with pytest.raises(UsageError, match=r"1 or more; 0\.5"):
        split(blobs(), imbalance="long-tail", factor=0.5)
