"""Streams given as batches, and data sets given as torch's: what becomes of them, and a sentence for each fault."""

import itertools

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from odedm import ODEDM, UsageError, from_batches, from_torch, split, train

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(5, 6)) * 4


def batch(*labels, shift=0.0):
    label = np.array(labels)
    return CENTRES[label] + shift + RNG.normal(size=(len(label), 6)), label


def test_rows_keep_their_order_and_tasks_their_classes():
    batches = [(*batch(3, 3, 1, 1), 0), (*batch(1, 3, 3), 0), (*batch(0, 0, 3, 3), 1), (*batch(1, 1, 1), 2)]
    data = from_batches(iter(batches), test_share=0.3)
    assert data.class_names == ("1", "3", "0"), "by the task in which they come first"
    stream = split(data)
    assert stream.labels == ((0, 1), (1, 2), (0,))
    rows = torch.cat([torch.tensor(x, dtype=torch.float32) for x, _, _ in batches])
    both = torch.cat([data.image, data.test_image])
    assert {tuple(each) for each in rows.tolist()} == {tuple(each) for each in both.tolist()}
    place = [rows.tolist().index(each) for each in data.image.tolist()]
    assert place == sorted(place)
    for task, test in zip(stream.tasks, stream.tests, strict=True):
        assert task.rows["index"].tolist() == sorted(task.rows["index"].tolist())
        assert set(test["label"].tolist()) <= set(task.classes)
    assert len(split(data, seed=7).tests[1]["label"]) == 2


def test_borders_every_so_many_rows_wherever_batches_end():
    data = from_batches((batch(0, 1, 0, 1) for _ in itertools.count()), rows_per_task=6, rows=15, test=batch(0, 1))
    assert torch.bincount(data.task).tolist() == [6, 6, 3]
    assert data.tasks == 3
    assert from_batches([batch(0, 1)] * 3, test=batch(0, 1)).tasks == 1


def test_a_test_for_each_task():
    batches = [(*batch(0, 1, shift=each), each) for each in range(2)]
    tests = [batch(0, 1, shift=0), batch(1, shift=1)]
    stream = split(from_batches(batches, test=tests))
    for given, found in zip(tests, stream.tests, strict=True):
        assert np.allclose(found["image"], given[0], atol=1e-6)


def test_a_stream_is_learned_and_its_result_says_what_it_was():
    batches = [(*batch(*[0, 1] * 20), 0), (*batch(*[2, 3, 4] * 20), 1), (*batch(*[0, 2] * 20), 2)]
    data = from_batches(batches, name="mine")
    outcome = train(data, method="er", memory=ODEDM(30, rho=0.5), batch=8, device="cpu")
    result = outcome.result
    assert result.task_labels == [[0, 1], [2, 3, 4], [0, 2]]
    assert result.task_il is None
    assert result.experiment["tasks"] == 3
    assert result.experiment["shuffle"] is False
    assert result.class_counts[-1]["long"] == [4, 4, 3, 3, 3], "15 rows, half for each task that was consolidated"
    assert result.acc_last > 50
    with pytest.raises(UsageError, match="VRMCL takes a task's classes for consecutive numbers.*task 3 are not"):
        train(data, method="vrmcl", memory=ODEDM(30, rho=0.5), device="cpu")
    for options in ({"blur": 0.1}, {"recurring": 2}, {"class_order": "seed"}, {"limit": 3}, {"domain": "same"}):
        with pytest.raises(UsageError, match="The rows of the stream 'mine' have their own order and tasks; leave out"):
            train(data, method="er", **options)
    with pytest.raises(UsageError, match=r"has 3 task\(s\) of its own; leave out tasks=2"):
        train(data, method="er", tasks=2)


GOOD = batch(0, 1, 0, 1)
IMAGES = (GOOD[0].reshape(4, 2, 3), GOOD[1])


@pytest.mark.parametrize(
    ("batches", "options", "sentence"),
    [
        (5, {}, r"an iterable of \(x, y\)"),
        ([], {}, "no rows"),
        ([GOOD[0]], {}, r"Batch 0 must be \(x, y\) or \(x, y, task\)"),
        ([GOOD, (GOOD[0], GOOD[1][:2])], {}, "x of batch 1 has 4 rows but y has 2"),
        (
            [GOOD, (GOOD[0][:, :3], GOOD[1])],
            {},
            r"x of batch 1 has the shape \[3\], and .* \[6\]",
        ),
        (
            [IMAGES, (IMAGES[0].astype(np.uint8), IMAGES[1])],
            {},
            "x of batch 1 holds uint8, and .* float32",
        ),
        ([GOOD, (GOOD[0], ["a"] * 4)], {}, "Batch 1 has labels of another kind"),
        ([GOOD, (*GOOD, 0)], {}, "Batch 1 has a task and the first not"),
        ([(GOOD[0] * np.nan, GOOD[1])], {}, "x of batch 0 has a NaN"),
        ([(np.zeros((0, 6)), [])], {}, "x of batch 0 has 0 rows"),
        ([(*GOOD, 1)], {}, "The task of batch 0 is 1: it leaves task 0 without rows"),
        ([(*GOOD, 0), (*GOOD, 1), (*GOOD, 0)], {}, "The task of batch 2 is 0: it falls from 1"),
        ([(*GOOD, 0), (*GOOD, 2)], {}, "leaves task 1 without rows"),
        ([(*GOOD, "one")], {}, "The task of batch 0 must be a whole number"),
        ([(*GOOD, 0)], {"rows_per_task": 2}, "leave out rows_per_task"),
        ([GOOD], {"test_share": 1.0}, "test_share must be a number between 0 and 1"),
        ([batch(0, 1)], {}, "one row of each of its classes"),
        ([GOOD], {"test": batch(0)}, "The test y lacks the class"),
        ([GOOD], {"test": batch(0, 1, 2)}, "label 2, which never comes"),
        ([GOOD], {"test": [batch(0, 1)] * 2}, "2 pairs for 1 tasks"),
        ([(*GOOD, 0), (*batch(2, 2), 1)], {"test": [batch(0), batch(1)]}, "task 2 has the class .*no row"),
        ([GOOD], {"test": GOOD[0]}, "a pair"),
        ([GOOD], {"flip": True}, "pad and flip are for images"),
    ],
)
def test_faults_of_a_stream_are_sentences(batches, options, sentence):
    with pytest.raises(UsageError, match=sentence):
        from_batches(batches, **options)


# -- torch ------------------------------------------------------------------------------------------------------------


class Picture:
    """What of a PIL image is asked for."""

    def __init__(self, pixels, mode="RGB"):
        self.pixels, self.mode = pixels, mode

    def convert(self, mode):
        return Picture(self.pixels[..., None].repeat(3, -1) if mode == "RGB" else self.pixels, mode)

    def __array__(self, dtype=None, copy=None):
        return self.pixels


class Pictures:
    """A map-style data set as torchvision's are: no torch in it, and names of its classes."""

    classes = ("cat", "dog")

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        return self.rows[place]


class Endless(IterableDataset):
    def __iter__(self):
        return iter([(torch.ones(4) * each, each % 2) for each in range(10)])


IMAGES = torch.arange(20 * 3 * 4 * 4, dtype=torch.float32).view(20, 3, 4, 4)
LABELS = torch.arange(20) % 2


def test_every_kind_of_torch_data_gives_the_same_rows():
    rows = TensorDataset(IMAGES, LABELS)
    pairs = [(image.numpy(), int(label)) for image, label in rows]
    kinds = [rows, DataLoader(rows, batch_size=7), DataLoader(rows, batch_size=None), pairs, Subset(rows, range(20))]
    first = from_torch(kinds[0])
    for kind in kinds[1:]:
        other = from_torch(kind)
        assert other.checksum == first.checksum
        assert other.class_names == ("0", "1")
    assert first.tasks == 1
    assert from_torch(rows, test=rows, tasks=2).test_image.equal(IMAGES)
    assert from_torch(Endless()).shape == (4,)


def test_pictures_stay_bytes_and_names_are_found():
    bytes_ = (np.arange(10 * 4 * 5 * 3) % 256).astype(np.uint8).reshape(10, 4, 5, 3)
    data = from_torch(Pictures([(Picture(each), place % 2) for place, each in enumerate(bytes_)]), tasks=2)
    assert data.image.dtype == torch.uint8
    assert data.shape == (3, 4, 5)
    assert data.class_names == ("cat", "dog")
    loader = DataLoader(Subset(Pictures([(torch.rand(2), place % 2) for place in range(8)]), range(8)), batch_size=3)
    assert from_torch(loader).class_names == ("cat", "dog")
    indexed = from_torch([(Picture(each[..., 0], "P"), place % 2) for place, each in enumerate(bytes_)])
    assert indexed.shape == (3, 4, 5), "a palette's numbers are no grey values"


def failing():
    yield torch.ones(2), 0
    raise OSError("disk gone")


ONE = (np.ones(3), 0)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("cifar10", "data must be a Dataset or DataLoader of torch"),
        (torch.ones(3, 2), "data must be a Dataset or DataLoader of torch"),
        (7, "data must be a Dataset or DataLoader of torch"),
        ([], "data gives no rows"),
        ([np.ones(3)], r"Item 0 of data must be \(image, label\)"),
        ([(1, 2, 3)], r"Item 0 of data must be \(image, label\)"),
        ([ONE, (np.ones(4), 1)], r"Row 1 of data is \(4,\).*the first one \(3,\)"),
        ([ONE, (np.ones(3, np.uint8), 1)], "Row 1 of data is .*uint8"),
        ([(np.ones((3, 2)), [0, 1])], "Item 0 of data has 3 images but 2 labels"),
        ([("cat.jpg", 0)], "The image of item 0 of data must hold numbers"),
        ([ONE, (np.ones(3), "dog")], "Labels must be of one type: row 0 has whole numbers"),
        ([ONE, (np.ones(3), 0.5)], "y of data must hold whole numbers or text"),
        (failing(), r"Item 1 of data cannot be read \(OSError: disk gone\)"),
    ],
)
def test_faults_of_torch_data_are_sentences(data, sentence):
    with pytest.raises(UsageError, match=sentence):
        from_torch(data)
