"""Validation: training rows in the place of test rows, which are never read, on the first tasks of the same stream."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from odedm import ODEDM, Dataset, Experiment, UsageError, blobs, split, train
from odedm.results.verification import verify
from odedm.training.preparation import prepare


def rows(*images: torch.Tensor) -> set[bytes]:
    return {row.numpy().tobytes() for image in images for row in image}


def parts(data: Dataset, **settings) -> tuple[set[bytes], set[bytes]]:
    stream = split(data, **settings)
    return rows(*(task.rows["image"] for task in stream.tasks)), rows(*(test["image"] for test in stream.tests))


@pytest.mark.parametrize("class_order", ["natural", "seed"])
def test_validation_rows_are_training_rows_that_are_not_trained_on(class_order: str) -> None:
    data = blobs()
    kept, held_out = parts(data, validation=0.25, class_order=class_order, seed=70)
    assert kept | held_out == rows(data.image)
    assert not kept & held_out
    for label in range(data.classes):
        members = rows(data.image[data.label == label])
        assert len(members & held_out) == round(0.25 * len(members))


def test_another_seed_holds_out_other_rows_and_the_first_tasks_do_not_change_which() -> None:
    data = blobs()
    held_out = [parts(data, validation=0.25, seed=seed)[1] for seed in (70, 71)]
    assert held_out[0] != held_out[1]
    first = parts(data, validation=0.25, seed=70, first_tasks=2)[1]
    assert first == held_out[0] & rows(data.image[data.label < 4])


def test_an_imbalanced_stream_is_validated_on_imbalanced_rows() -> None:
    data = blobs()
    stream = split(data, validation=0.25, imbalance="imbalanced", first_tasks=1)
    counts = torch.bincount(stream.tasks[0].rows["label"]) + torch.bincount(stream.tests[0]["label"])
    assert counts[0] < counts[1]


def test_the_first_tasks_are_those_of_the_whole_stream() -> None:
    settings = {"memory": ODEDM(20, rho=0.5), "method": "er", "blur": 0.1, "device": "cpu"}
    whole, first = train("blobs", **settings), train("blobs", **settings, first_tasks=2)
    assert first.result.class_il == whole.result.class_il[:2]
    assert first.result.class_counts == whole.result.class_counts[:2]


def test_a_validated_run_is_a_sound_run_of_its_own(tmp_path) -> None:
    outcome = train("blobs", memory=ODEDM(20, rho=0.5), method="er", validation=0.25, first_tasks=2, device="cpu")
    assert (outcome.result.experiment["validation"], outcome.result.experiment["first_tasks"]) == (0.25, 2)
    assert len(outcome.result.acc) == 2
    assert all(check.valid for check in verify(outcome.save(tmp_path / "run")))
    assert Experiment(validation=0.25).slug() != Experiment().slug()


def test_what_was_stored_without_the_settings_stays_what_it_is() -> None:
    plain = Experiment().describe()
    assert not {"validation", "first_tasks"} & {*plain}
    assert Experiment.from_dict(plain) == Experiment()
    assert Experiment.from_dict(Experiment(validation=0.5).describe()).validation == 0.5


def test_accuracy_does_not_change_when_the_test_set_does() -> None:
    data = blobs()
    noise = torch.randn(data.test_image.shape, generator=torch.Generator().manual_seed(1))
    other = replace(data, test_image=1000 * noise.to(data.test_image.dtype), known_checksum=None)
    found = [train(one, method="er", memory=20, validation=0.25, device="cpu").result.acc for one in (data, other)]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"first_tasks": 9}, "The stream has 5 tasks; first_tasks=9 was given"),
        ({"validation": 1}, "validation must be a number between 0 and 1, and neither; 1 was given"),
        ({"validation": 0.0}, "validation must be"),
        ({"first_tasks": 0}, "first_tasks must be a whole number, 1 or more"),
    ],
)
def test_what_cannot_be_held_out_is_refused(settings, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        prepare(Experiment(data="blobs", **settings), blobs())
    with pytest.raises(UsageError, match=words):
        split(blobs(), **settings)


def test_a_class_of_one_row_and_data_in_their_own_order_are_refused() -> None:
    data = blobs()
    single = (data.label != 3) | (torch.arange(len(data.label)) == int((data.label == 3).nonzero()[0]))
    few = replace(data, image=data.image[single], label=data.label[single], known_checksum=None)
    with pytest.raises(UsageError, match="Class '3' has 1 row, too few to hold one out"):
        split(few, validation=0.25)
    ordered = replace(data, task=data.label // 2, test_task=data.test_label // 2, known_checksum=None)
    with pytest.raises(UsageError, match="have their own order and tasks; leave out validation"):
        split(ordered, validation=0.25)
