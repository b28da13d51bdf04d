import pytest
import torch

from odedm.stream import augment
from odedm.stream.augment import Transform, crop_and_flip
from odedm.stream.dataset import constants


def slow_view(image, pad, top, left, mirror):
    channels, height, width = image.shape
    out = torch.zeros_like(image)
    for y in range(height):
        for x in range(width):
            source_x = (width - 1 - x if mirror else x) + left - pad
            source_y = y + top - pad
            if 0 <= source_y < height and 0 <= source_x < width:
                out[:, y, x] = image[:, source_y, source_x]
    return out


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("pad", [0, 1, 4])
def test_batched_views_equal_a_loop_over_pixels(pad, flip):
    image = torch.randint(0, 256, (20, 3, 5, 6), dtype=torch.uint8)
    view = crop_and_flip(image, pad, flip, torch.Generator().manual_seed(4))
    draw = torch.rand(3, 20, generator=torch.Generator().manual_seed(4))
    for i in range(20):
        top, left = (int(draw[j, i] * (2 * pad + 1)) for j in (0, 1))
        assert view[i].equal(slow_view(image[i], pad, top, left, flip and bool(draw[2, i] < 0.5)))


def test_offsets_and_mirror_images_are_uniform():
    n, pad = 20_000, 1
    image = torch.zeros(n, 1, 5, 5, dtype=torch.uint8)
    image[:, 0, 2, 1] = 1  # off the middle column, so a mirror image shows
    where = crop_and_flip(image, pad, True, torch.Generator().manual_seed(0)).flatten(1).long().argmax(1)
    counts = torch.bincount(where, minlength=25).float() / n
    # three columns of offsets around column 1, and around its mirror image 3: columns 0..2 and 2..4
    expected = torch.zeros(5, 5)
    for row in (1, 2, 3):
        for column in (0, 1, 2):
            expected[row, column] += 1 / 18
            expected[row, 4 - column] += 1 / 18
    assert (counts - expected.flatten()).abs().max() < 5 * (1 / 9 / n) ** 0.5


def test_padding_is_black_before_normalising():
    image = torch.full((64, 1, 4, 4), 255, dtype=torch.uint8)
    transform = constants(image, torch.tensor([0.5]), torch.tensor([0.25]), pad=2)
    view = transform.augment(image, torch.Generator().manual_seed(0))
    assert set(view.unique().tolist()) == {-2.0, 2.0}, "white is (1 - .5)/.25, padded black (0 - .5)/.25"
    assert transform.normalize(image).unique().tolist() == [2.0]


def test_uint8_is_lossless():
    grey = torch.arange(256, dtype=torch.uint8).view(256, 1, 1, 1)
    transform = constants(grey, torch.tensor([0.0]), torch.tensor([1.0]))
    assert (transform.normalize(grey).flatten() * 255).round().to(torch.uint8).equal(grey.flatten())


def test_no_augmentation_draws_nothing():
    rng = torch.Generator().manual_seed(0)
    before = rng.get_state()
    Transform(torch.zeros(1), torch.ones(1)).augment(torch.zeros(2, 3), rng)
    assert rng.get_state().equal(before)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("pad", [0, 3])
def test_both_ways_to_make_views_agree(monkeypatch, dtype, flip, pad):
    image = torch.randint(0, 256, (9, 3, 6, 5), generator=torch.Generator().manual_seed(1)).to(dtype)
    here = crop_and_flip(image, pad, flip, torch.Generator().manual_seed(2))
    monkeypatch.setattr(augment, "_sliced", augment._gathered)
    assert here.equal(crop_and_flip(image, pad, flip, torch.Generator().manual_seed(2)))
