import hashlib
import tracemalloc

import numpy as np
import pytest
import torch

from odedm import UsageError, blobs, from_arrays, shapes
from odedm.data.builtin import digits, fashion_mini


def test_fashion_mini_is_what_it_says():
    data = fashion_mini()
    assert data.shape == (1, 28, 28)
    assert data.image.dtype == torch.uint8
    assert torch.bincount(data.label).tolist() == [300] * 10
    assert torch.bincount(data.test_label).tolist() == [100] * 10
    assert data.class_names[9] == "Ankle boot"
    x = data.transform.normalize(data.image)
    assert abs(float(x.mean())) < 1e-4
    assert float(x.std()) == pytest.approx(1, abs=1e-3)
    both = torch.cat([data.image, data.test_image]).flatten(1)
    assert len(np.unique(both.numpy(), axis=0)) > 3990, "pictures are pictures, not copies of a few"


def test_digits_come_from_scikit_learn():
    pytest.importorskip("sklearn")
    data = digits()
    assert data.shape == (1, 8, 8)
    assert len(data.image) + len(data.test_image) == 1797
    assert data.classes == 10


@pytest.mark.parametrize(
    ("shape", "stored"),
    [((40, 7), (7,)), ((40, 5, 6), (1, 5, 6)), ((40, 3, 5, 6), (3, 5, 6)), ((40, 5, 6, 3), (3, 5, 6))],
)
def test_arrays_of_every_legal_shape(shape, stored):
    x = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    data = from_arrays(x, np.arange(40) % 4, tasks=2)
    assert data.shape == stored
    assert data.image.dtype == (torch.float32 if len(shape) == 2 else torch.uint8), "only images are kept as bytes"
    if shape[-1] == 3:
        where = (data.image == torch.from_numpy(x[0]).permute(2, 0, 1)).flatten(1).all(1)
        held = (data.test_image == torch.from_numpy(x[0]).permute(2, 0, 1)).flatten(1).all(1)
        assert where.any() or held.any(), "channels last is turned, not reshaped"


def test_labels_may_be_words_and_keep_their_names():
    data = from_arrays(np.random.default_rng(0).normal(size=(20, 3)), np.array(["cat", "ant"] * 10), tasks=2)
    assert data.class_names == ("ant", "cat")
    assert set(data.label.tolist()) == {0, 1}


def test_held_out_rows_are_a_seeded_share_of_every_class_and_never_trained_on():
    x = np.arange(100, dtype=np.float64)[:, None].repeat(2, 1)
    first, again, other = (from_arrays(x, np.arange(100) % 5, tasks=5, seed=seed) for seed in (0, 0, 1))
    assert first.test_image.equal(again.test_image)
    assert not first.test_image.equal(other.test_image)
    assert torch.bincount(first.test_label).tolist() == [4] * 5
    assert not set(first.image[:, 0].tolist()) & set(first.test_image[:, 0].tolist())


def test_normalisation_uses_the_training_part_alone():
    x, y = np.random.default_rng(0).normal(5, 2, (60, 3)), np.arange(60) % 3
    far = np.full((9, 3), 1e6)
    data = from_arrays(x, y, tasks=3, test=(far, np.arange(9) % 3))
    assert data.transform.normalize(data.image).mean(0).abs().max() < 1e-5


def test_constant_columns_do_not_become_nan():
    x = np.random.default_rng(0).normal(size=(20, 3))
    x[:, 1] = 7
    data = from_arrays(x, np.arange(20) % 2, tasks=2)
    assert data.transform.normalize(data.image).isfinite().all()


def nan_in_row_3():
    x = np.zeros((10, 2))
    x[3, 1] = np.nan
    return x


Y = np.arange(10) % 2
BAD = {
    "NaN": (lambda: from_arrays(nan_in_row_3(), Y, tasks=2), "NaN or an infinity in 1 of 10 rows, first in row 3"),
    "too large for float32": (lambda: from_arrays(np.full((10, 2), 1e300), Y, tasks=2), "NaN or an infinity"),
    "lengths": (lambda: from_arrays(np.zeros((10, 2)), Y[:5], tasks=2), "x has 10 rows but y has 5"),
    "one dimension": (lambda: from_arrays(np.zeros(10), Y, tasks=2), r"its shape is \[10\]"),
    "no rows": (lambda: from_arrays(np.zeros((0, 2)), Y[:0], tasks=2), "x has 0 rows"),
    "words as x": (lambda: from_arrays(np.full((10, 2), "a"), Y, tasks=2), "must hold numbers"),
    "fractions as labels": (
        lambda: from_arrays(np.zeros((10, 2)), Y + 0.5, tasks=2),
        "or numbers too large",
    ),
    "NaN as labels": (lambda: from_arrays(np.zeros((10, 2)), Y * np.nan, tasks=2), "label of row 0 of y is nan"),
    "matrix of labels": (lambda: from_arrays(np.zeros((10, 2)), np.zeros((10, 2)), tasks=2), "one label for each row"),
    "objects as labels": (
        lambda: from_arrays(np.zeros((2, 2)), np.array([None, {}]), tasks=2),
        "row 0 of y is None",
    ),
    "single row of a class": (lambda: from_arrays(np.zeros((3, 2)), [0, 0, 1], tasks=2), "Class '1' has a single row"),
    "test share": (
        lambda: from_arrays(np.zeros((10, 2)), Y, tasks=2, test_share=1.5),
        "and neither; 1.5",
    ),
    "strange test label": (
        lambda: from_arrays(np.zeros((10, 2)), Y, tasks=2, test=(np.zeros((2, 2)), [0, 7])),
        "labels that training lacks: \\[7\\]",
    ),
    "missing test label": (
        lambda: from_arrays(np.zeros((10, 2)), Y, tasks=2, test=(np.zeros((2, 2)), [0, 0])),
        "lacks the labels \\[1\\]",
    ),
    "test shape": (
        lambda: from_arrays(np.zeros((10, 2)), Y, tasks=2, test=(np.zeros((2, 3)), [0, 1])),
        r"The test x has the shape \[3\], and in the first rows it had \[2\]",
    ),
    "infinite labels": (
        lambda: from_arrays(np.zeros((10, 2)), np.where(Y, np.inf, 0), tasks=2),
        "row 1 of y is inf",
    ),
    "huge labels": (lambda: from_arrays(np.zeros((10, 2)), Y * 1e300, tasks=2), "numbers too large"),
    "ragged": (lambda: from_arrays([[1, 2], [3]], [0, 1], tasks=2), "not an array"),
    "no columns": (lambda: from_arrays(np.zeros((10, 0)), Y, tasks=2), "none of them 0"),
    "half a test": (lambda: from_arrays(np.zeros((10, 2)), Y, tasks=2, test=(np.zeros((2, 2)),)), "a pair"),
    "tasks": (lambda: from_arrays(np.zeros((10, 2)), Y, tasks=3), "do not split into 3"),
    "fraction of a task": (lambda: from_arrays(np.zeros((10, 2)), Y, tasks=1.5), "whole number"),
    "pad": (lambda: from_arrays(np.zeros((10, 4, 4)), Y, tasks=2, pad=-1), "0 or more, up to 1000"),
    "class names": (lambda: from_arrays(np.zeros((10, 2)), Y, tasks=2, class_names=["a"]), "1 class names .* 2"),
    "flip of vectors": (lambda: from_arrays(np.zeros((10, 2)), Y, tasks=2, flip=True), "for images"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arrays_end_in_one_clear_sentence(case):
    call, sentence = BAD[case]
    with pytest.raises(UsageError, match=sentence):
        call()


@pytest.mark.timeout(20)
def test_many_classes_take_no_more_time_than_few():
    rows = 200_000
    data = from_arrays(np.ones((rows, 1), np.float32), np.arange(rows) % (rows // 2), tasks=1)
    assert len(data.test_image) == rows // 2


def test_labels_in_half_precision_are_read_without_a_warning():
    assert from_arrays(np.eye(8), np.array([0, 1] * 4, np.float16), tasks=1).class_names == ("0", "1")


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_features_of_any_scale_are_standardised(scale):
    x = scale * np.random.default_rng(0).normal(size=(200, 3))
    data = from_arrays(x, np.arange(200) % 2, tasks=2)
    assert data.transform.normalize(data.image).std(0).sub(1).abs().max() < 1e-2


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.tolist(),
        torch.from_numpy,
        lambda x: torch.from_numpy(x).requires_grad_(),
        lambda x: torch.from_numpy(x).bfloat16(),
        lambda x: x.astype(np.float16),
        lambda x: x.astype(np.int64),
        lambda x: x > 0,
    ],
)
def test_rows_may_come_in_many_kinds(make):
    x = 100 * np.random.default_rng(0).normal(size=(40, 3))
    data = from_arrays(make(x), np.array(["a", "b"] * 20, dtype=object), tasks=2)
    assert data.image.dtype == torch.float32
    assert data.class_names == ("a", "b")


def test_checksum_tells_data_apart():
    assert blobs().checksum == blobs().checksum != blobs(seed=1).checksum
    assert shapes().checksum != blobs().checksum


def test_the_checksum_is_that_of_the_bytes_and_copies_no_data_set():
    data = from_arrays(np.zeros((4000, 1, 64, 64), np.uint8), np.arange(4000) % 4, tasks=2)
    digest = hashlib.blake2b(digest_size=16)
    for part in (data.image, data.label, data.test_image, data.test_label):
        digest.update(f"{tuple(part.shape)}{part.dtype}".encode() + part.numpy().tobytes())
    tracemalloc.start()
    assert data.checksum == digest.hexdigest()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < data.image.nbytes / 4


def test_square_maps_of_many_channels_are_not_turned():
    x = np.random.default_rng(0).integers(0, 256, (40, 12, 4, 4)).astype(np.uint8)
    data = from_arrays(x, np.arange(40) % 4, tasks=2)
    assert data.shape == (12, 4, 4)
