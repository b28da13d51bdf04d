"""SCR and OnPro: contrastive losses against their definitions, the views, and what a step trains."""

import math

import pytest
import torch
from fixed_replay import FixedReplay, task
from torch.nn import functional as F

import odedm
from odedm import ODEDM, Reservoir, UsageError, shapes
from odedm.methods.contrastive import (
    Projection,
    class_prototypes,
    ocm_replay_loss,
    ocm_stream_loss,
    ope_loss,
    supcon_loss,
)
from odedm.methods.contrastive_views import in_turns, random_view
from odedm.methods.onpro import OnPro, beta_quantiles
from odedm.methods.scr import SCR
from odedm.nets.small import MLP
from odedm.training.preparation import prepare

RNG = torch.Generator().manual_seed(0)
POINTS, LABEL = F.normalize(torch.randn(6, 4, generator=RNG)), torch.tensor([0, 0, 1, 2, 1, 0])


def log_p(similarity, i, j, itself):
    total = sum(math.exp(each) for k, each in enumerate(similarity[i].tolist()) if itself or k != i)
    return similarity[i, j].item() - math.log(total)


def test_supcon_is_its_sum_over_pairs():
    own, total = POINTS @ POINTS.T / 0.5, 0.0
    for i in range(6):
        alike = [j for j in range(6) if j != i and LABEL[j] == LABEL[i]]
        total += sum(-log_p(own, i, j, itself=False) for j in alike) / max(1, len(alike))
    assert supcon_loss(POINTS, LABEL, 0.5).item() == pytest.approx(total / 6, rel=1e-5)


def test_ocms_two_losses_are_their_sums_over_pairs():
    label, own = LABEL[:3], POINTS @ POINTS.T / 0.5
    both, twin, replayed = label.repeat(2), 0.0, 0.0
    for i in range(6):
        alike = [j for j in range(6) if both[j] == both[i]]
        twin -= log_p(own, i, (i + 3) % 6, itself=False)
        twin -= 2 * (sum(log_p(own, i, j, itself=False) for j in alike if j != i) + math.log(1e-8)) / len(alike)
        replayed -= sum(log_p(own, i, j, itself=True) for j in alike) / len(alike)
    assert ocm_stream_loss(0.5 * own, label, 0.5).item() == pytest.approx(twin / 6, rel=1e-5)
    assert ocm_replay_loss(0.5 * own, label, 0.5).item() == pytest.approx(replayed / 6, rel=1e-5)


def test_rows_of_a_class_that_are_too_far_apart_are_not_pulled_together():
    similarity = torch.tensor([[2.0, 2.0, -2.0, 2.0]] * 4, requires_grad=True)  # 4 / .07 is far below log 1e-8
    near, far = torch.autograd.grad(ocm_replay_loss(similarity, torch.tensor([0, 1]), 0.07), similarity)[0][0, 1:3]
    assert abs(far) < 1e-12 < abs(near)


def test_absent_classes_have_no_part_in_the_contrast_of_prototypes():
    one, other = torch.randn(2, 6, 4, generator=RNG).requires_grad_()
    label = torch.tensor([0, 0, 3, 3, 3, 0])
    wide, narrow = (
        ope_loss(*(class_prototypes(each, named, classes) for each in (one, other)), 0.5)
        for named, classes in ((label, 7), (label // 3, 2))
    )
    assert wide.item() == pytest.approx(narrow.item(), rel=1e-5)
    assert all(each.isfinite().all() for each in torch.autograd.grad(wide, [one, other]))
    alone = class_prototypes(one, torch.zeros(6, dtype=torch.int64), 3)
    assert ope_loss(alone, alone, 0.5).item() == pytest.approx(0.0, abs=1e-5), "nothing to tell apart"


def test_views_stay_on_the_scale_of_their_images_and_are_drawn_by_their_generator():
    image = shapes(per_class=4).image
    first, second = (
        random_view(image, torch.Generator().manual_seed(3), area=0.2, grey=0.2, colours=(0.4, 0.1)) for _ in range(2)
    )
    assert first.equal(second)
    assert first.shape == image.shape
    assert 0 <= first.min() < first.max() <= 255
    whole = random_view(image, RNG, area=1.0, grey=0.0)
    mirrored = [torch.allclose(a, b.float().flip(-1), atol=30) for a, b in zip(whole, image, strict=True)]
    assert 0 < sum(mirrored) < len(mirrored), "the whole image, mirrored or not"


def test_crops_that_do_not_fit_are_drawn_again():
    ramp, area = torch.arange(32.0).expand(4000, 1, 32, 32), 1.0
    for each in (ramp, ramp.transpose(2, 3)):  # the same crops twice: their widths, then their heights
        crop = random_view(each, torch.Generator().manual_seed(1), area=0.3, grey=0.0)
        area = area * (crop.amax((1, 2, 3)) - crop.amin((1, 2, 3))) / 31
    part, ratio = 0.3 + 0.7 * torch.rand(10**5, generator=RNG), (torch.rand(10**5, generator=RNG) - 0.5) * 2
    fits = part * (ratio.abs() * math.log(4 / 3)).exp() <= 1
    assert area.mean().item() == pytest.approx(part[fits].mean().item(), abs=0.01)
    assert part.mean() > part[fits].mean() + 0.03, "clamped sides would show"


def test_sixteen_turns_are_different_images_of_the_same_pixels():
    image = torch.arange(16.0).view(1, 1, 4, 4)
    turns = in_turns(image, 16)
    assert len({tuple(turn.flatten().tolist()) for turn in turns}) == 16
    assert all(turn.sort().values.sum() == image.sum() for turn in turns)
    assert turns[0].equal(image)
    assert [turn.equal(other) for turn, other in zip(in_turns(image, 4), turns[::4], strict=True)] == [True] * 4


def test_quantiles_have_the_moments_of_a_beta():
    drawn = beta_quantiles(0.4).double()
    assert drawn.mean().item() == pytest.approx(0.5, abs=1e-3)
    assert drawn.var().item() == pytest.approx(1 / (4 * (2 * 0.4 + 1)), rel=1e-2)


def method(kind, **more):
    torch.manual_seed(0)
    return kind(net=MLP((5,), 6, width=16), draw=4, **more)


def test_confused_classes_are_those_with_near_prototypes():
    onpro = method(OnPro)
    onpro.prototypes[:3] = F.normalize(torch.randn(3, 16, generator=RNG))
    onpro.prototypes[4] = onpro.prototypes[2] + 0.01
    pool = {"label": torch.arange(6).repeat(3)}
    first, second = onpro.confused(pool, 50)
    assert set(pool["label"][first].tolist()) == {2}
    assert set(pool["label"][second].tolist()) == {4}


@pytest.mark.parametrize("prototypes", [[], [4]])
def test_without_a_pair_of_prototypes_partners_are_any_rows(prototypes):
    onpro = method(OnPro)
    onpro.prototypes[prototypes] = 1.0
    pool = {"label": torch.arange(6).repeat(3)}
    for found in onpro.confused(pool, 200):
        assert set(pool["label"][found].tolist()) == set(range(6))


def test_onpros_defaults_are_the_releases_for_few_classes_and_for_many():
    plans = [odedm.Experiment(odedm.Reservoir(9), "onpro", data=name) for name in ("few", "many")]
    few, many = (odedm.blobs(classes=classes, tasks=2, per_class=4) for classes in (10, 12))
    chosen = [prepare(plan, data).experiment.options for plan, data in zip(plans, (few, many), strict=True)]
    named = [[options[name] for name in ("mixup", "base_rate", "similarity")] for options in chosen]
    assert named == [[0.6, 0.75, 0.5], [0.2, 0.9, 1.0]]
    asked = odedm.Experiment(odedm.Reservoir(9), "onpro", data="many", options={"mixup": 0.5})
    assert prepare(asked, many).experiment.options["mixup"] == 0.5


def test_onpro_takes_no_momentum():
    with pytest.raises(UsageError, match="OnPro takes no momentum, because its optimizer is Adam"):
        odedm.train("blobs", method="onpro", memory=Reservoir(9), options={"momentum": 0.9})


def test_a_draw_is_mixed_as_a_whole_or_not_and_then_row_by_row():
    onpro = method(OnPro, base_rate=1.0)
    label = torch.zeros(40, dtype=torch.int64)
    rows = {"image": torch.randn(40, 5, generator=RNG), "label": label}
    mixed = torch.stack([(onpro.mix(rows, rows).share > 0).float().mean() for _ in range(300)])
    assert (mixed == 0).float().mean().item() == pytest.approx(0.4, abs=0.1)
    assert mixed[mixed > 0].mean().item() == pytest.approx(0.6, abs=0.05)


def test_draws_are_whole_in_the_first_task_and_by_classes_later():
    onpro = method(OnPro, per_class=1)
    rows = {"image": torch.randn(6, 5, generator=RNG), "label": LABEL}
    replay = FixedReplay(rows)
    replay.normalize = lambda image: image
    onpro.draw = 5
    for index in (0, 0, 1):
        onpro.begin_task(task(index))
        onpro.observe(rows, replay)
    assert replay.asked == [5, 5, 4, 512], "later one row for each of four classes, and the pool of partners"


def test_scr_trains_features_and_projection_and_leaves_the_head():
    scr = method(SCR)
    head, projected = scr.net.head.weight.clone(), scr.projection.layers[0].weight.clone()
    hidden = scr.net.hidden[1].weight.clone()
    rows = {"image": torch.randn(6, 5, generator=RNG), "label": LABEL}
    rows["input"] = rows["image"]
    replay = FixedReplay(rows)
    replay.normalize = lambda image: image
    scr.observe(rows, replay)
    assert scr.net.head.weight.equal(head)
    assert not scr.net.hidden[1].weight.equal(hidden)
    assert not scr.projection.layers[0].weight.equal(projected)
    before = scr.last_loss.item()
    replay.long, replay.gamma = rows, 2.0
    scr.observe(rows, replay)
    assert scr.last_loss.item() > 2 * before, "the same loss on a long-term draw, twice"


def test_a_projection_follows_from_its_seed():
    one, other = (Projection(4, 3, like=POINTS, seed=7, hidden=True) for _ in range(2))
    assert one(POINTS).equal(other(POINTS))
    assert one(POINTS).norm(dim=1).tolist() == pytest.approx([1.0] * 6)


def test_both_learn_a_stream_and_predict_in_their_ways(tmp_path):
    data = shapes(per_class=20)
    for name, options in (("scr", {}), ("onpro", {"turns": 1, "lr": 0.02, "mixup": 0.0})):
        outcome = odedm.train(
            data, method=name, memory=ODEDM(24, k=1), batch=8, replay_batch=24, options=options, device="cpu"
        )
        assert outcome.result.acc_last > 30, f"{name}: chance is 17 per cent"
        model = odedm.load(outcome.save(tmp_path / f"{name}.safetensors"))
        assert model.predict(data.test_image).tolist() == outcome.predict(data.test_image).tolist()
    with pytest.raises(UsageError, match="predicts by nearest-mean"):
        odedm.train(data, method="scr", memory=Reservoir(10), predict="head")
    with pytest.raises(UsageError, match="onpro's turns must be 1, 4 or 16; 3 was given"):
        odedm.train(data, method="onpro", memory=Reservoir(10), options={"turns": 3})
