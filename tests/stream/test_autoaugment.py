"""The batched policy against Pillow's own operators, image by image, and the policy's own promises."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from odedm.stream import autoaugment as module
from odedm.stream.augment import Transform, crop_and_flip
from odedm.stream.autoaugment import OPERATIONS, POLICY, autoaugment, operate
from odedm.stream.dataset import constants


def pictures(n=12, channels=3, height=32, width=32, seed=0):
    """Smooth patterns under a little noise, some of them flat or of narrow range."""
    rng = torch.Generator().manual_seed(seed)
    coarse = 255 * torch.rand(n, channels, 4, 4, generator=rng)
    image = torch.nn.functional.interpolate(coarse, size=(height, width), mode="bilinear")
    image = (image + 12 * torch.randn(image.shape, generator=rng)).clamp(0, 255)
    image[0] = 77
    image[1] = 100 + 0.1 * image[1]
    image[2, 0] = 3
    image[3] = torch.where(image[3] < 128, 0.0, 255.0)
    return image.to(torch.uint8)


def to_pillow(image):
    if len(image) == 1:
        return Image.fromarray(image[0].numpy())
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def from_pillow(image):
    array = torch.from_numpy(np.array(image))
    return array[None] if array.dim() == 2 else array.permute(2, 0, 1)


def affine(picture, a, b, c, d, e, f):
    grey = (128,) * len(picture.getbands())
    return picture.transform(picture.size, Image.Transform.AFFINE, (a, b, c, d, e, f), fillcolor=grey)


def by_pillow(picture, name, magnitude, sign):
    level, factor = magnitude / 9, 1 + sign * 0.1 * magnitude
    width, height = picture.size
    grey = (128,) * len(picture.getbands())
    return {
        "identity": lambda: picture,
        "shearX": lambda: affine(picture, 1, 0.3 * level * sign, 0, 0, 1, 0),
        "shearY": lambda: affine(picture, 1, 0, 0, 0.3 * level * sign, 1, 0),
        "translateX": lambda: affine(picture, 1, 0, 150 / 331 * width * level * sign, 0, 1, 0),
        "translateY": lambda: affine(picture, 1, 0, 0, 0, 1, 150 / 331 * height * level * sign),
        "rotate": lambda: picture.rotate(30 * level, fillcolor=grey),
        "invert": lambda: ImageOps.invert(picture),
        "posterize": lambda: ImageOps.posterize(picture, round(8 - 4 * level)),
        "solarize": lambda: ImageOps.solarize(picture, 256 - 256 * level),
        "autocontrast": lambda: ImageOps.autocontrast(picture),
        "equalize": lambda: ImageOps.equalize(picture),
        "color": lambda: ImageEnhance.Color(picture).enhance(factor),
        "contrast": lambda: ImageEnhance.Contrast(picture).enhance(factor),
        "brightness": lambda: ImageEnhance.Brightness(picture).enhance(factor),
        "sharpness": lambda: ImageEnhance.Sharpness(picture).enhance(factor),
    }[name]()


MOVES = {"shearX", "shearY", "translateX", "translateY", "rotate"}


def everywhere(image, name, magnitude, sign):
    n = len(image)
    return operate(image, torch.full((n,), OPERATIONS.index(name)), torch.full((n,), magnitude), torch.full((n,), sign))


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 20, 31)], ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_pillows(name, shape):
    channels, height, width = shape
    image = pictures(12, channels, height, width)
    for magnitude in (0.0, 1.0, 4.0, 7.0, 9.0):
        for sign in (-1.0, 1.0):
            ours = everywhere(image, name, magnitude, sign)
            theirs = torch.stack([from_pillow(by_pillow(to_pillow(each), name, magnitude, sign)) for each in image])
            difference = (ours.int() - theirs.int()).abs()
            if name in MOVES:  # a coordinate within 2^-16 of a pixel's edge may fall on either side
                assert (difference > 0).float().mean() < 0.002, (magnitude, sign)
            elif name in ("color", "contrast", "brightness", "sharpness", "autocontrast"):
                assert difference.max() <= 1, (magnitude, sign)
                assert (difference > 0).float().mean() < 0.01, (magnitude, sign)
            else:
                assert difference.max() == 0, (magnitude, sign)
    if name != "identity" and not (name == "color" and channels == 1):
        assert not ours.equal(image), "at the largest magnitude something changes"


def test_images_of_one_batch_do_not_touch_each_other():
    image = pictures(30)
    rng = torch.Generator().manual_seed(3)
    operation = torch.arange(30) % len(OPERATIONS)
    magnitude = torch.randint(0, 10, (30,), generator=rng).float()
    sign = torch.where(torch.rand(30, generator=rng) < 0.5, -1.0, 1.0)
    together = operate(image, operation, magnitude, sign)
    for i in range(30):
        one = slice(i, i + 1)
        assert together[one].equal(operate(image[one], operation[one], magnitude[one], sign[one]))


def test_the_policy_has_25_pairs_of_known_operations():
    assert len(POLICY) == 25
    for pair in POLICY:
        assert len(pair) == 2
        for name, probability, magnitude in pair:
            assert name in OPERATIONS
            assert 0 <= probability <= 1
            assert magnitude in range(10)
    assert sum(probability for pair in POLICY for _, probability, _ in pair) == pytest.approx(26.5)


def test_pairs_coins_and_signs_are_drawn_as_often_as_the_policy_says(monkeypatch):
    n, calls = 40_000, []
    monkeypatch.setattr(module, "operate", lambda image, *drawn: calls.append(drawn) or image)
    autoaugment(torch.zeros(n, 1, 1, 1, dtype=torch.uint8), torch.Generator().manual_seed(0))
    assert len(calls) == 2
    for step, (operation, magnitude, sign) in enumerate(calls):
        expected = torch.zeros(len(OPERATIONS))
        for pair in POLICY:
            name, probability, _ = pair[step]
            expected[OPERATIONS.index(name)] += probability / 25
            expected[0] += (1 - probability) / 25
        frequency = torch.bincount(operation, minlength=len(OPERATIONS)) / n
        assert (frequency - expected).abs().max() < 5 * (0.25 / n) ** 0.5
        assert sign.mean().abs() < 5 / n**0.5
        legal = {(OPERATIONS.index(pair[step][0]), pair[step][2]) for pair in POLICY}
        drawn = {(int(o), int(m)) for o, m in zip(operation, magnitude, strict=True) if o}
        assert drawn <= legal
        assert len(drawn) >= len(legal) - 1, "all but the pair that has probability 0"
    moved = calls[0][0] != 0
    both = (moved & (calls[1][0] != 0)).float().mean()
    expected = sum(pair[0][1] * pair[1][1] for pair in POLICY) / 25
    assert abs(both - expected) < 5 * (0.25 / n) ** 0.5, "the two coins of an image are independent"


def test_one_seed_one_view_and_the_next_call_another():
    image = pictures()
    first, again = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    view = autoaugment(image, first)
    assert view.equal(autoaugment(image, again))
    assert not view.equal(autoaugment(image, first))


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 2), (3, 1, 5)], ids=str)
def test_images_of_a_pixel_or_two(shape):
    image = torch.full((50, *shape), 9, dtype=torch.uint8)
    assert autoaugment(image, torch.Generator().manual_seed(0)).shape == (50, *shape)


def test_a_strong_view_is_crop_and_mirror_then_the_policy_then_the_norm():
    image = pictures()
    transform = constants(image, torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.3, 0.4]), pad=4, flip=True)
    rng = torch.Generator().manual_seed(5)
    expected = transform.normalize(autoaugment(crop_and_flip(image, 4, True, rng), rng))
    assert transform.strong_augment(image, torch.Generator().manual_seed(5)).equal(expected)
    assert image.equal(pictures()), "the stored image is as it was"


@pytest.mark.parametrize("rows", [torch.randn(4, 5), torch.randn(4, 3, 6, 6), torch.ones(4, 5, dtype=torch.uint8)])
def test_vectors_and_real_valued_images_get_a_training_view(rows):
    shape = (1,) if rows.dim() == 2 else (1, 1, 1)
    transform = Transform(torch.full(shape, 0.5), torch.full(shape, 2.0), pad=1 if rows.dim() == 4 else 0)
    views = [view(rows, torch.Generator().manual_seed(0)) for view in (transform.strong_augment, transform.augment)]
    assert views[0].equal(views[1])
