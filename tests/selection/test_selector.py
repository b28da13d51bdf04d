"""The selector with a made-up network: identities, counts, columns that stay together."""

import pytest
import torch
from clouds import relu_features, rng

from odedm.core.errors import UsageError
from odedm.core.timer import Timer
from odedm.selection import selector as module
from odedm.selection.dac import Dac
from odedm.selection.distance import DISTANCES, L2
from odedm.selection.selector import PrototypeSelector


class FakeProbe:
    """Features and logits that are a fixed function of the image, and a count of how often they were asked for."""

    def __init__(self):
        self.calls = []

    def embed(self, image):
        self.calls.append(len(image))
        return image.float().flatten(1)[:, :12] + 1.0

    def annotate(self, rows):
        return {"logits": rows["image"].float().flatten(1)[:, :3] * rows["label"][:, None]}


def task_rows(per_class=30, classes=(4, 7), seed=0):
    n = per_class * len(classes)
    image = torch.randint(256, (n, 3, 4, 4), generator=rng(seed), dtype=torch.uint8)
    label = torch.tensor(classes).repeat(per_class)
    return {"image": image, "label": label, "task": torch.full((n,), 2), "index": torch.arange(n) + 1000}


def run(selector, rows, classes=(4, 7), probe=None, seed=0, timer=None):
    return selector(rows, classes, probe or FakeProbe(), rng=rng(seed), timer=timer or Timer())


@pytest.mark.parametrize("space", ["features", "pixels"])
@pytest.mark.parametrize("distance", list(DISTANCES.values()), ids=list(DISTANCES))
@pytest.mark.parametrize("dac", [None, Dac(3, 2)])
def test_chosen_rows_are_real_distinct_balanced_and_whole(space, distance, dac):
    rows = task_rows()
    chosen = run(PrototypeSelector(5, distance, dac, rows_per_prototype=2, space=space), rows)
    assert sorted(chosen) == ["image", "index", "label", "logits", "prototype", "task"]
    assert chosen["label"].tolist() == [4] * 10 + [7] * 10
    assert chosen["prototype"].dtype == torch.int64
    assert chosen["prototype"].tolist() == [p for _ in range(2) for p in range(5) for _ in range(2)]
    assert len(chosen["index"].unique()) == 20
    source = chosen["index"] - 1000
    for name in rows:
        assert torch.equal(chosen[name], rows[name][source])
    assert torch.equal(chosen["logits"], FakeProbe().annotate(chosen)["logits"])


def test_the_order_of_classes_is_kept_and_others_are_left_alone():
    rows = task_rows(classes=(1, 2, 3))
    probe = FakeProbe()
    chosen = run(PrototypeSelector(2), rows, classes=(3, 1), probe=probe)
    assert chosen["label"].tolist() == [3, 3, 1, 1]
    assert probe.calls == [60]  # all candidates at once, none of class 2


def test_features_and_pixels_are_different_spaces():
    rows = task_rows()
    # the features see 12 of 48 values, so the nearest rows differ
    features, pixels = (run(PrototypeSelector(6, L2(), None, space=s), rows)["index"] for s in ("features", "pixels"))
    assert features.tolist() != pixels.tolist()


def test_pixels_need_no_embedding():
    probe = FakeProbe()
    run(PrototypeSelector(2, space="pixels"), task_rows(), probe=probe)
    assert probe.calls == []


def test_a_class_without_rows_gives_none():
    chosen = run(PrototypeSelector(3), task_rows(), classes=(5, 7))
    assert chosen["label"].tolist() == [7, 7, 7]


def test_no_rows_at_all_keeps_the_columns():
    rows = task_rows()
    chosen = run(PrototypeSelector(3), rows, classes=(5,))
    assert {name: len(column) for name, column in chosen.items()} == dict.fromkeys(
        ["image", "label", "task", "index", "prototype", "logits"], 0
    )
    assert chosen["image"].shape == (0, 3, 4, 4)


def test_fewer_rows_than_prototypes():
    chosen = run(PrototypeSelector(50), task_rows(per_class=8))
    assert chosen["label"].tolist() == [4] * 8 + [7] * 8
    assert sorted(chosen["index"].tolist()) == list(range(1000, 1016))


def test_same_draws_same_rows():
    one, same, other = (run(PrototypeSelector(6), task_rows(200), seed=s)["index"].tolist() for s in (1, 1, 2))
    assert one == same
    assert one != other


def test_mixup_stores_the_mean_image_of_each_cluster():
    base = torch.zeros(6, 1, 2, 6, dtype=torch.uint8)
    base[:3] = torch.tensor([10, 11, 13], dtype=torch.uint8).view(3, 1, 1, 1)
    base[3:] = torch.tensor([200, 201, 203], dtype=torch.uint8).view(3, 1, 1, 1)
    rows = {"image": base, "label": torch.full((6,), 9), "task": torch.full((6,), 1), "index": torch.arange(6)}
    chosen = run(PrototypeSelector(2, dac=None, mixup=True), rows, classes=(9,))
    assert chosen["image"].dtype == torch.uint8
    assert sorted(chosen["image"][:, 0, 0, 0].tolist()) == [11, 201]  # 11.33 and 201.33
    assert chosen["index"].tolist() == [-1, -1]
    assert chosen["label"].tolist() == [9, 9]
    assert chosen["task"].tolist() == [1, 1]
    assert chosen["prototype"].tolist() == [0, 1]
    assert chosen["logits"].shape == (2, 3)


def test_mixup_rounds_and_keeps_floats():
    image = torch.tensor([[1.0], [2.0]]).view(2, 1, 1, 1).expand(2, 1, 2, 6)
    rows = {"image": image.clone(), "label": torch.zeros(2, dtype=torch.int64)}
    assert float(run(PrototypeSelector(1, mixup=True), rows, classes=(0,))["image"].mean()) == 1.5
    rows["image"] = (rows["image"] * 2 - 1).to(torch.uint8)  # 1 and 3
    rows["image"][1] += 2  # 1 and 5
    assert run(PrototypeSelector(1, mixup=True), rows, classes=(0,))["image"].unique().tolist() == [3]


def test_a_network_that_has_diverged_is_named():
    class Diverged(FakeProbe):
        def embed(self, image):
            return super().embed(image) * torch.nan

    with pytest.raises(UsageError, match=r"60 of 60 rows .* diverged"):
        run(PrototypeSelector(3), task_rows(), probe=Diverged())
    assert len(run(PrototypeSelector(3, space="pixels"), task_rows(), probe=Diverged())["label"]) == 6


def test_seconds_by_phase():
    timer = Timer()
    run(PrototypeSelector(3), task_rows(), timer=timer)
    assert sorted(timer.seconds) == ["centre", "embed", "reduce", "select"]


def test_the_rows_given_are_left_as_they_are():
    rows = task_rows()
    before = {name: column.clone() for name, column in rows.items()}
    run(PrototypeSelector(3), rows)
    run(PrototypeSelector(3, mixup=True), rows)
    assert sorted(rows) == sorted(before)
    assert all(torch.equal(rows[name], before[name]) for name in rows)


def test_where_all_rows_stay_their_points_are_not_copied(monkeypatch):
    given, real = [], module.batched_kmeans
    monkeypatch.setattr(module, "batched_kmeans", lambda sets, *a, **b: given.extend(sets) or real(sets, *a, **b))
    run(PrototypeSelector(3, L2(), None), task_rows())
    one, two = given
    assert two.untyped_storage().data_ptr() == one.untyped_storage().data_ptr()


def test_selected_rows_lie_near_their_prototype():
    image = relu_features(60, 12).view(60, 1, 1, 12)
    rows = {"image": image, "label": torch.zeros(60, dtype=torch.int64)}
    chosen = run(PrototypeSelector(60, L2(), None), rows, classes=(0,))
    assert len(chosen["image"].flatten(1).unique(dim=0)) == 60


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"k": 0}, "1 or more"),
        ({"rows_per_prototype": 0}, "1 or more"),
        ({"space": "pixel"}, "did you mean 'pixels'"),
        ({"mixup": True, "rows_per_prototype": 2}, "mixup"),
    ],
)
def test_refusals(wrong, said):
    with pytest.raises(UsageError, match=said):
        PrototypeSelector(**({"k": 2} | wrong))
