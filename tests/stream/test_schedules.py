"""Tasks of unequal size, classes that return, all classes in every task, rows in their order; and what is refused."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from odedm import UsageError, blobs, shapes, split
from odedm.stream.class_schedule import classes_return, is_regular, schedule
from odedm.stream.scenarios import in_domain

DATA = blobs(per_class=15, classes=6, tasks=3)


def indices(stream):
    return torch.cat([task.rows["index"] for task in stream.tasks])


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    passes=st.integers(1, 3),
    blur=st.sampled_from([0.0, 0.3]),
    shuffle=st.booleans(),
    order=st.sampled_from(["natural", "seed"]),
    seed=st.integers(0, 99),
)
def test_every_row_arrives_once_in_a_task_of_its_class(sizes, passes, blur, shuffle, order, seed):
    data = blobs(per_class=10, classes=sum(sizes), tasks=1)
    tasks = len(sizes) * passes
    blur = blur if tasks > 1 else 0.0
    options = {"recurring": passes, "blur": blur, "shuffle": shuffle, "class_order": order, "seed": seed}
    stream = split(data, task_classes=sizes, **options)
    assert sorted(indices(stream).tolist()) == list(range(len(data.label)))
    assert [len(own) for own in stream.labels] == sizes * passes
    for index, task in enumerate(stream.tasks):
        here = set(task.rows["label"].tolist())
        assert set(task.classes) <= here, "no class of a task without a row in it"
        assert blur or here == set(task.classes)
        names = [data.class_names[each] for each in data.label[task.rows["index"]]]
        assert names == [stream.class_names[each] for each in task.rows["label"]], "labels are numbered by arrival"
        assert set(stream.tests[index]["label"].tolist()) == set(task.classes)
        if not blur:
            sizes_here = torch.bincount(task.rows["label"])[list(task.classes)]
            assert sizes_here.max() - sizes_here.min() <= 1, "passes share the rows of a class evenly"


def test_passes_are_drawn_from_the_seed_and_in_order_without_shuffling():
    def first(seed, **options):
        return set(split(DATA, recurring=2, seed=seed, **options).tasks[0].rows["index"].tolist())

    assert first(0) == first(0) != first(1)
    own = (DATA.label < 2).nonzero().flatten()
    parts = [own[DATA.label[own] == each][:6] for each in (0, 1)]
    assert first(0, shuffle=False) == first(1, shuffle=False) == set(torch.cat(parts).tolist())


def test_without_shuffling_rows_come_as_they_are():
    for task in split(DATA, shuffle=False, task_classes=(1, 5)).tasks:
        assert task.rows["index"].tolist() == sorted(task.rows["index"].tolist())
    assert not torch.equal(indices(split(DATA)), indices(split(DATA, shuffle=False)))


def test_tests_of_classes_that_return_are_the_very_rows():
    stream = split(DATA, recurring=2)
    assert all(stream.tests[each] is stream.tests[each + 3] for each in range(3))
    assert stream.classes_return
    assert not split(DATA).classes_return


def test_noise_stays_within_tasks_of_unequal_size():
    data = blobs(per_class=50, classes=6, tasks=3)
    stream = split(data, task_classes=(2, 4), noise=0.4, seed=3)
    for task in stream.tasks:
        true = data.label[task.rows["index"]]
        wrong = task.rows["label"] != true
        assert torch.bincount(true[wrong], minlength=6)[list(task.classes)].tolist() == [16] * len(task.classes)
        assert set(task.rows["label"].tolist()) == set(task.classes)


def test_domains_change_places_and_no_values():
    data = shapes(per_class=8, classes=4, tasks=2)
    for domain in ("same", "permuted", "rotated"):
        stream = split(data, domain=domain, tasks=3, seed=5)
        assert stream.labels == (tuple(range(4)),) * 3
        for index, task in enumerate(stream.tasks):
            own = data.image[task.rows["index"]]
            seen = task.rows["image"]
            assert seen.flatten(2).sort().values.equal(own.flatten(2).sort().values)
            assert seen.equal(own) == (index == 0 or domain == "same")
            assert seen.equal(in_domain(own, domain, index, 5))
            assert stream.tests[index]["image"].equal(in_domain(data.test_image, domain, index, 5))
    turned = in_domain(data.image, "rotated", 1, 0)
    assert in_domain(turned, "rotated", 3, 0).equal(data.image)
    assert not in_domain(data.image, "permuted", 1, 0).equal(in_domain(data.image, "permuted", 2, 0))


def test_the_ordinary_stream_is_regular_and_nothing_else():
    assert is_regular(schedule(6, 3))
    for labels in (schedule(6, task_classes=(2, 4)), schedule(6, 4, recurring=2), schedule(6, 2, domain="same")):
        assert not is_regular(labels)
    assert [classes_return(schedule(6, 6, recurring=each)) for each in (1, 2)] == [False, True]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"task_classes": (2, 3)}, r"add up to the 6 classes of the data; 2 \+ 3 = 5"),
        ({"task_classes": (6, 0)}, "whole numbers from 1 on"),
        ({"task_classes": ()}, "whole numbers from 1 on"),
        ({"task_classes": "2,two"}, "whole numbers from 1 on"),
        ({"task_classes": (2, 4), "tasks": 3}, "gives 2 sizes for 3 tasks; give 3"),
        ({"tasks": 4}, "6 classes do not split into 4 tasks.*task_classes"),
        ({"recurring": 0}, "recurring must be a whole number, 1 or more"),
        ({"recurring": 2, "tasks": 3}, "3 tasks in 2 passes.*multiple of 2"),
        ({"recurring": 20}, r"comes in 20 tasks but has 12 training row\(s\)"),
        ({"recurring": 4, "limit": 3}, r"comes in 4 tasks but has 3 training row\(s\)"),
        ({"recurring": 8, "imbalance": "imbalanced"}, r"comes in 8 tasks but has 6 training row\(s\)"),
        ({"task_classes": (1, 5), "noise": 0.1}, "task 1 has one class"),
        ({"domain": "turned"}, "Unknown domain change 'turned'.*Known"),
        ({"domain": "rotated"}, "turns square images"),
        ({"domain": "same", "recurring": 2}, "every task has all classes, so leave out recurring"),
        ({"domain": "same", "task_classes": (2, 4)}, "so leave out task_classes"),
        ({"domain": "same", "blur": 0.1}, "with a domain every task has all"),
        ({"shuffle": "yes"}, "shuffle must be true or false"),
    ],
)
def test_what_no_stream_can_be_is_a_sentence(options, sentence):
    with pytest.raises(UsageError, match=sentence):
        split(DATA, **options)


def test_five_quarter_turns_are_refused():
    with pytest.raises(UsageError, match="4 tasks at most; 5 were asked for"):
        split(shapes(per_class=12), domain="rotated", tasks=5)
