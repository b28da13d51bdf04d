"""What a setting promises about the training rows: how many, where they arrive, what they are called."""

import itertools

import numpy as np
import pytest
import torch
from sampling import KEEPING, QUICK, pairs

from odedm import ODEDM, Experiment, MemoryPart, Native, Run, UsageError, blobs, from_arrays, split
from odedm.core.choices import IMBALANCES
from odedm.stream.class_schedule import schedule
from odedm.stream.scenarios import add_label_noise, blur_boundaries, check_shares, imbalance_mask, random_share

CLASSES, TASKS, PER_CLASS = 12, 4, 50
SHARES = (0.0, 0.1, 0.25, 0.5, 0.9)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def data():
    """Rows that say which they are: x = (row number, label)."""
    label = np.arange(CLASSES * PER_CLASS) % CLASSES
    x = np.stack([np.arange(len(label)), label], 1).astype(np.float32)
    return from_arrays(x, label, tasks=TASKS, test=(x[: 3 * CLASSES] + 0.5, label[: 3 * CLASSES]))


def together(stream):
    """All training rows of a stream, in arrival order."""
    return {name: torch.cat([task.rows[name] for task in stream.tasks]) for name in stream.tasks[0].rows}


def true_labels(data, stream):
    """What the rows of a stream are, whatever they are called."""
    return torch.tensor(
        [stream.class_names.index(str(each)) for each in data.label[together(stream)["index"]].tolist()]
    )


def within(observed, chances, trials, sigmas=5):
    """Whether counts are where binomial counts with these chances belong."""
    chances, trials = torch.as_tensor(chances).double(), torch.as_tensor(trials).double()
    spread = (trials * chances * (1 - chances)).sqrt()
    return bool(((torch.as_tensor(observed) - trials * chances).abs() <= sigmas * spread + 1e-9).all())


# -- which rows there are ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["natural", "seed"])
@pytest.mark.parametrize("setting", IMBALANCES)
def test_class_sizes_of_every_setting(data, setting, order):
    stream = split(data, imbalance=setting, factor=8.0, class_order=order, seed=1)
    expected = {
        "standard": [PER_CLASS] * CLASSES,
        "imbalanced": [PER_CLASS // 2, PER_CLASS] * (CLASSES // 2),
        "imbalanced-all": [PER_CLASS // 2] * CLASSES,
        "long-tail": [round(PER_CLASS * 8.0 ** (-each / (CLASSES - 1))) for each in range(CLASSES)],
    }[setting]
    assert torch.bincount(data.label[together(stream)["index"]]).tolist() == expected


# -- a random share of every class ------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", SHARES)
def test_the_share_is_exact_in_every_class_and_random_within_it(share):
    label = torch.arange(3).repeat_interleave(torch.tensor([400, 40, 4]))
    times = torch.zeros(len(label))
    for seed in range(200):
        marked = random_share(label, share, rng(seed))
        assert torch.bincount(label[marked], minlength=3).tolist() == [
            round(share * 400),
            round(share * 40),
            min(round(share * 4), 3),
        ]
        times += marked
    assert within(times[:440], share, 200)


def test_a_larger_share_marks_the_same_rows_and_more():
    label = torch.arange(300) % 7
    marks = [random_share(label, share, rng(3)) for share in SHARES]
    for less, more in itertools.pairwise(marks):
        assert (more | ~less).all()
        assert more.sum() > less.sum()


def test_no_class_is_marked_whole():
    label = torch.tensor([0, 1, 1, 2, 2, 2])
    assert torch.bincount(label[random_share(label, 0.99, rng())], minlength=3).tolist() == [0, 1, 2]


# -- blurry borders ---------------------------------------------------------------------------------------------------


def test_moved_rows_go_to_every_other_task_alike():
    label = torch.arange(CLASSES).repeat_interleave(2000)
    home = label // 3
    task = blur_boundaries(label, 0.3, home=home, tasks=TASKS, rng=rng())
    for each in range(CLASSES):
        count = torch.bincount(task[label == each], minlength=TASKS)
        assert count[each // 3] == 1400
        others = torch.cat([count[: each // 3], count[each // 3 + 1 :]])
        assert within(others, 1 / 3, 600)
    pairs = torch.bincount((home * TASKS + task)[home != task], minlength=TASKS**2).view(TASKS, TASKS)
    assert within(pairs[~torch.eye(TASKS, dtype=torch.bool)], 1 / 3, 1800)


@pytest.mark.parametrize("order", ["natural", "seed"])
@pytest.mark.parametrize("setting", IMBALANCES)
def test_blurry_streams_lose_nothing_and_repeat_nothing(data, setting, order):
    plain = split(data, imbalance=setting, class_order=order, seed=5)
    stream = split(data, imbalance=setting, class_order=order, seed=5, blur=0.3)
    rows, label = together(stream), true_labels(data, stream)
    assert sorted(rows["index"].tolist()) == sorted(together(plain)["index"].tolist())
    assert rows["image"].equal(data.image[rows["index"]])
    assert rows["label"].equal(label), "rows keep their label"
    for task, before in zip(stream.tasks, plain.tasks, strict=True):
        assert task.classes == before.classes
        assert (task.rows["task"] == task.index).all(), "the task in which they arrive"
    size = torch.bincount(label)
    moved = torch.bincount(label[rows["task"] != label // 3], minlength=CLASSES)
    assert moved.tolist() == (0.3 * size.double()).round().long().tolist()


def test_foreign_rows_arrive_among_the_others_and_not_in_a_block(data):
    task = split(data, blur=0.5, seed=2).tasks[1]
    foreign = (task.rows["label"] // 3 != 1).nonzero().flatten()
    assert abs(float(foreign.double().mean()) / len(task) - 0.5) < 5 / (12 * len(foreign)) ** 0.5


def test_the_same_rows_take_the_same_way_at_a_larger_share(data):
    ways = []
    for blur in (0.1, 0.4):
        rows = together(split(data, blur=blur, seed=3))
        ways.append(dict(zip(rows["index"].tolist(), rows["task"].tolist(), strict=True)))
    home = (data.label // 3).tolist()
    moved = [index for index, task in ways[0].items() if task != home[index]]
    assert len(moved) == 5 * CLASSES
    assert all(ways[1][index] == ways[0][index] for index in moved)


# -- label noise ------------------------------------------------------------------------------------------------------


def test_wrong_labels_are_every_other_one_of_the_task_alike():
    label = torch.arange(CLASSES).repeat_interleave(2000)
    given = add_label_noise(label, 0.4, home=label // 4, labels=schedule(CLASSES, CLASSES // 4), rng=rng())
    assert given[:8000].max() < 4
    assert (given // 4).equal(label // 4)
    table = torch.bincount(label * CLASSES + given, minlength=CLASSES**2).view(CLASSES, CLASSES)
    assert table.diagonal().tolist() == [1200] * CLASSES
    same_task = torch.block_diag(*[torch.ones(4, 4)] * 3).bool() & ~torch.eye(CLASSES, dtype=torch.bool)
    assert within(table[same_task], 1 / 3, 800)


@pytest.mark.parametrize("blur", [0.0, 0.3])
def test_noise_changes_labels_and_nothing_else(data, blur):
    plain, noisy = (split(data, blur=blur, noise=noise, seed=4) for noise in (0.0, 0.2))
    before, after = together(plain), together(noisy)
    for name in ("image", "task", "index"):
        assert after[name].equal(before[name]), name
    wrong = after["label"] != before["label"]
    assert torch.bincount(before["label"][wrong]).tolist() == [10] * CLASSES
    assert (after["label"] // 3).equal(before["label"] // 3)


def test_noise_and_blur_strike_independently():
    label = torch.arange(4).repeat_interleave(5000)
    moved = blur_boundaries(label, 0.3, home=label // 2, tasks=2, rng=rng(1)) != label // 2
    wrong = add_label_noise(label, 0.2, home=label // 2, labels=schedule(4, 2), rng=rng(2)) != label
    both = torch.bincount(label[moved & wrong], minlength=4)
    assert within(both, 0.3 * 0.2, 5000)
    data = blobs(classes=4, tasks=2, per_class=1000)
    rows = together(split(data, blur=0.3, noise=0.2, seed=0))
    true = data.label[rows["index"]]
    both = torch.bincount(true[(rows["task"] != true // 2) & (rows["label"] != true)], minlength=4)
    assert within(both, 0.3 * 0.2, 800), "in a stream too: each has a generator of its own"


# -- what they share --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", IMBALANCES)
def test_the_test_set_is_untouched(data, setting):
    plain = split(data, class_order="seed", seed=6)
    stream = split(data, imbalance=setting, blur=0.5, noise=0.5, class_order="seed", seed=6)
    for before, after in zip(plain.tests, stream.tests, strict=True):
        assert all(after[name].equal(column) for name, column in before.items())
    assert stream.class_names == plain.class_names


@pytest.mark.parametrize("wish", [{"blur": 0.3}, {"noise": 0.3}, {"blur": 0.3, "noise": 0.3}])
def test_the_seed_decides_everything(data, wish):
    first, again, other = (together(split(data, seed=seed, **wish)) for seed in (0, 0, 1))
    assert all(again[name].equal(column) for name, column in first.items())
    by_row = [rows["index"].argsort() for rows in (first, other)]
    names = [name for name, key in (("task", "blur"), ("label", "noise")) if key in wish]
    for name in names:
        assert not first[name][by_row[0]].equal(other[name][by_row[1]])


def test_every_task_keeps_a_row_of_every_class_of_its_own():
    data = from_arrays(np.eye(6).repeat(2, 0), np.arange(6).repeat(2), tasks=3, test=(np.eye(6), np.arange(6)))
    for seed in range(20):
        for task in split(data, blur=0.99, seed=seed).tasks:
            assert set(task.classes) <= set(task.rows["label"].tolist())


@pytest.mark.parametrize("value", [-0.1, 1.0, 1.5, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["blur", "noise"])
def test_what_is_no_share_is_refused(data, name, value):
    with pytest.raises(UsageError, match=rf"{name} (is a share.*below 1|must be a finite number); {value} was given"):
        split(data, **{name: value})


def test_nowhere_else_to_go_is_refused(data):
    with pytest.raises(UsageError, match="blur sends rows to other tasks, but there is one task"):
        split(data, tasks=1, blur=0.1)
    with pytest.raises(UsageError, match="task 1 has one class"):
        split(data, tasks=CLASSES, noise=0.1)
    check_shares(schedule(CLASSES, 1), blur=0.0, noise=0.9)
    check_shares(schedule(CLASSES, CLASSES), blur=0.9, noise=0.0)
    assert len(together(split(data, tasks=1, noise=0.1))["label"]) == len(data.label)
    assert len(together(split(data, tasks=CLASSES, blur=0.1))["label"]) == len(data.label)


def test_keep_is_the_same_for_data_in_any_order_of_classes():
    label = torch.arange(40) % 4
    grouped = label.sort(stable=True)
    for setting in IMBALANCES:
        kept = imbalance_mask(label, setting, 4.0, 4)
        assert kept[grouped.indices].equal(imbalance_mask(grouped.values, setting, 4.0, 4))


# -- learning from them -----------------------------------------------------------------------------------------------

BLOBS = blobs(per_class=30)


BLURRY = {
    "native": Native(20),
    "odedm": ODEDM(30, k=2),
    "bounded": ODEDM(40, k=2, candidates=5, replay="both"),
}


@pytest.mark.parametrize(("method", "name"), pairs(KEEPING, BLURRY))
def test_every_method_learns_from_blurry_and_noisy_streams(method, name):
    memory, options = BLURRY[name], QUICK.get(method, {})
    if method == "onpro":  # so few rows are not enough at the rate that it has for long streams
        options = {**options, "lr": 0.01}
    run = Run(Experiment(memory, method=method, options=options, data="blobs", batch=8, device="cpu"), BLOBS)
    run.stream = split(BLOBS, blur=0.4, noise=0.1, seed=0)
    outcome = run.finish()
    assert outcome.result.acc_last > 15, "chance is 10 per cent"
    assert outcome.method.last_loss.isfinite()
    assert all(weight.isfinite().all() for weight in outcome.method.net.parameters())
    if isinstance(memory, ODEDM):
        long = outcome.memory.rows(MemoryPart.LONG)
        assert torch.bincount(long["label"], minlength=10).tolist() == [2] * 8 + [0] * 2, "of its own classes alone"
        assert (long["task"] == long["label"] // 2).all(), "chosen from what came in the class's own task"
