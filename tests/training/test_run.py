import gc
import json
import weakref

import numpy as np
import pytest
import torch

import odedm
from odedm import (
    DAC,
    ODEDM,
    Experiment,
    MemoryPart,
    Prototypes,
    Reservoir,
    Run,
    UsageError,
    blobs,
    shapes,
    train,
)
from odedm.results.result import SCHEMA, Result
from odedm.training.evaluation import evaluate
from odedm.training.preparation import prepare, resolve_precision


def outcome_of(seed=0, **options):
    return train("blobs", memory=ODEDM(30, k=2), batch=16, seed=seed, device="cpu", **options)


def weights(outcome):
    return torch.cat([p.detach().flatten() for p in outcome.method.net.parameters()])


def test_the_same_seed_gives_the_same_run_bit_for_bit_whatever_ran_before():
    first = outcome_of(3)
    torch.manual_seed(12345)
    torch.rand(7)
    outcome_of(4)
    again, other = outcome_of(3), outcome_of(4)
    assert weights(first).equal(weights(again))
    assert first.result.class_il == again.result.class_il
    assert first.result.class_counts == again.result.class_counts
    assert all(first.memory.rows()[name].equal(column) for name, column in again.memory.rows().items())
    assert not weights(first).equal(weights(other))


def test_a_run_leaves_the_global_generator_and_threads_alone():
    torch.manual_seed(5)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    Run(Experiment(Reservoir(5), data="blobs", threads=2, device="cpu")).finish()
    assert torch.get_rng_state().equal(state)
    assert torch.get_num_threads() == threads


def test_memory_choice_shifts_no_other_draw():
    """The stream's order and views, and the initial weights, are the same with and without ODEDM."""
    plain = Run(Experiment(Reservoir(30), data="shapes", seed=1))
    dual = Run(Experiment(ODEDM(30, k=2), data="shapes", seed=1))
    for a, b in zip(plain.stream.tasks, dual.stream.tasks, strict=True):
        assert a.rows["index"].equal(b.rows["index"])
    for a, b in zip(plain.method.net.parameters(), dual.method.net.parameters(), strict=True):
        assert a.equal(b)
    first = [run.finish().result.class_il[0] for run in (plain, dual)]
    assert first[0] == first[1], "until the first prototypes are pinned both are the same run"


def test_result_holds_everything_and_survives_its_file():
    result = outcome_of().result
    assert result.schema == SCHEMA
    assert [len(row) for row in result.class_il] == [1, 2, 3, 4, 5]
    assert result.acc_last == pytest.approx(sum(result.class_il[-1]) / 5)
    assert result.acc_mean == pytest.approx(sum(result.acc) / 5)
    assert result.forgetting_rate == [100 - value for value in result.acc]
    assert {"train", "embed", "reduce", "centre", "select", "evaluate"} <= set(result.seconds)
    assert result.experiment["seed"] == 0
    assert result.experiment["memory"]["k"] == 2
    assert result.experiment["method"] == "derpp"
    assert result.experiment["options"] == {
        "lr": 0.03, "momentum": 0.0, "weight_decay": 0.0, "alpha": 0.1, "beta": 0.5,
    }  # fmt: skip
    assert result.experiment["memory"]["replay"] == "auxiliary"
    assert result.classes == [str(label) for label in range(10)]
    assert {"odedm", "torch", "device", "precision", "commit", "data_checksum"} <= set(result.provenance)
    assert len(result.class_counts) == 5
    assert Result.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    assert prepare(Experiment.from_dict(result.experiment)).experiment.describe() == result.experiment


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Cannot read"),
        ("{", "Cannot read"),
        ("[]", "is not a result: there is no format"),
        ('{"schema": "odedm.result/99"}', "odedm.result/99"),
        ('{"schema": "odedm.result/3"}', "lacks experiment, classes, class_il"),
        ('{"schema": "odedm.result/1"}', "has the format 'odedm.result/1'"),
        ("\udcff", "Cannot read"),
    ],
)
def test_damaged_results_are_named(tmp_path, text, sentence):
    path = tmp_path / "result.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=sentence):
        Result.load(path)


def test_evaluation_masks_by_task_and_slices_to_seen_classes():
    label = torch.tensor([0, 1])
    tests = [{"image": torch.zeros(2, 1), "label": label}, {"image": torch.ones(2, 1), "label": label + 2}]
    table = torch.tensor([[5.0, 1.0, 9.0, 0.0, 99.0], [0.0, 0.0, 3.0, 4.0, 99.0]])

    def predict(image):
        return table[image[:, 0].long()]

    class_il, task_il = evaluate(predict, tests, labels=((0, 1), (2, 3)))
    assert class_il == [0.0, 50.0]
    assert task_il == [50.0, 50.0]
    assert evaluate(predict, tests, labels=((0, 1), (2, 3)), columns="all")[0] == [0.0, 0.0]
    narrow = evaluate(lambda image: predict(image)[:, :4], tests, labels=((0, 1), (2, 3)))
    assert narrow == (class_il, task_il), "fewer columns than classes pass unharmed"


def test_a_row_of_another_tasks_class_may_be_right_among_all_and_wrong_in_its_task():
    test = {"image": torch.eye(4), "label": torch.tensor([0, 1, 2, 1])}
    class_il, task_il = evaluate(lambda image: image, [test, test | {"image": torch.eye(4)}], labels=((0, 1), (2, 3)))
    assert class_il == [75.0, 75.0]
    assert task_il == [50.0, 25.0]


def test_an_untrained_net_is_at_chance():
    data = blobs(per_class=200)
    run = Run(Experiment(Reservoir(0), data="blobs", options={"lr": 0.0}), data)
    result = run.finish().result
    for seen, acc in enumerate(result.acc, start=1):
        assert abs(acc - 100 / (2 * seen)) < 25


def test_sgd_knows_the_last_task_alone():
    result = train("fashion-mini", memory=Reservoir(0), method="er", batch=10).result
    last = result.class_il[-1]
    assert last[-1] > 60
    assert max(last[:-1]) < 10
    assert result.acc_last < 21, "a bit below one task in five"
    assert result.forgetting > 60


def test_evaluation_changes_no_buffer():
    run = Run(Experiment(Reservoir(10), data="shapes", device="cpu"))
    run.method.net.train()
    before = {name: value.clone() for name, value in run.method.net.state_dict().items()}
    run._evaluate(2)
    assert all(before[name].equal(value) for name, value in run.method.net.state_dict().items())
    assert run.method.net.training


def test_divergence_is_said_plainly():
    with pytest.raises(UsageError, match="training diverged.*--lr"):
        train("blobs", memory=Reservoir(10), options={"lr": 1e30})


def test_one_task_is_legal_and_pins_nothing():
    result = train(blobs(classes=4, tasks=1), memory=ODEDM(10, rho=0.5)).result
    assert len(result.acc) == 1
    assert result.forgetting is None
    assert result.backward_transfer is None
    assert sum(result.class_counts[0]["long"]) == 0


def test_predict_names_classes_of_raw_rows():
    data = shapes()
    outcome = train(data, memory=Reservoir(60), method="er", batch=4)
    right = (outcome.predict(data.test_image) == data.test_label.numpy()).mean()
    assert right == pytest.approx(outcome.result.acc_last / 100)


def test_predict_takes_rows_as_they_were_given():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (40, 8, 8, 3)).astype(np.uint8)
    outcome = train(odedm.from_arrays(x, np.array(["b", "a"] * 20), tasks=2), memory=Reservoir(10))
    assert set(outcome.predict_names(x)) <= {"a", "b"}
    assert outcome.predict(x[:3]).shape == (3,)
    vectors = train(odedm.from_arrays(rng.normal(size=(20, 3)), np.arange(20) % 2, tasks=2), memory=Reservoir(10))
    assert vectors.predict(rng.normal(size=(4, 3))).shape == (4,)
    for run, bad, sentence in [
        (outcome, x[:, :4], r"^A row of x has the shape \[4, 8, 3\], and in the first rows it had \[3, 8, 8\]\."),
        (outcome, x.astype(float), "uint8"),
        (vectors, np.zeros((2, 5)), r"^A row of x has the shape \[5\], and in the first rows it had \[3\]\."),
    ]:
        with pytest.raises(UsageError, match=sentence):
            run.predict(bad)


def test_numpy_numbers_are_numbers():
    memory = ODEDM(np.int64(30), k=np.int64(2), gamma=np.float32(1))
    outcome = train("blobs", memory=memory, batch=np.int64(16), seed=np.int64(3), tasks=np.int64(5), device="cpu")
    plain = train("blobs", memory=ODEDM(30, k=2, gamma=1.0), batch=16, seed=3, device="cpu")
    assert weights(outcome).equal(weights(plain))


@pytest.mark.parametrize("around", ["no_grad", "inference_mode", "float64", "autocast", "threads"])
def test_what_the_caller_has_set_changes_nothing(around):
    expected = weights(outcome_of(1))
    threads = torch.get_num_threads()
    try:
        if around == "no_grad":
            with torch.no_grad():
                outcome = outcome_of(1)
        elif around == "inference_mode":
            with torch.inference_mode():
                outcome = outcome_of(1)
        elif around == "autocast":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                outcome = outcome_of(1)
        elif around == "float64":
            torch.set_default_dtype(torch.float64)
            outcome = outcome_of(1)
            assert torch.get_default_dtype() == torch.float64
        else:
            torch.set_num_threads(2)
            outcome = outcome_of(1)
            assert torch.get_num_threads() == 2
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(threads)
    assert weights(outcome).equal(expected)


def test_bounded_candidates_shift_no_key_of_the_stream():
    runs = [Run(Experiment(ODEDM(60, k=2, candidates=c), data="blobs")) for c in ("task", 4)]
    for run in runs:
        run.finish()
    wide, narrow = (set(run.memory.rows(MemoryPart.SHORT)["index"].tolist()) for run in runs)
    assert narrow < wide, "the smaller short-term part holds the largest keys of the same draw"


def test_a_share_of_one_is_legal_at_any_capacity():
    for capacity in (100, 203, 300):
        outcome = train("blobs", memory=ODEDM(capacity, rho=1.0), tasks=5)
        assert outcome.memory.size(MemoryPart.LONG) <= capacity
        assert outcome.memory.size(MemoryPart.LONG) > capacity - 8


IMPOSSIBLE = {
    "capacity": (lambda: Reservoir(-1), "capacity must be a whole number of rows, 0 or more, .*; -1"),
    "rho above one": (lambda: ODEDM(10, rho=1.5), "from 0 to 1; 1.5"),
    "k below zero": (lambda: ODEDM(10, k=-1), "0 or more; -1"),
    "rho that rounds to nothing": (lambda: train("blobs", memory=ODEDM(10, rho=0.05)), "rho|ρ"),
    "pins that do not fit": (lambda: train("blobs", memory=ODEDM(10, k=5)), "10"),
    "candidates that do not fit": (lambda: train("blobs", memory=ODEDM(10, k=1, candidates=6)), "need 12 rows"),
    "method": (lambda: train("blobs", memory=Reservoir(5), method="dre"), "Unknown method 'dre'"),
    "data": (lambda: train("blob", memory=Reservoir(5)), "did you mean 'blobs'"),
    "data by a path": (lambda: train("./blobs.npz", memory=Reservoir(5)), "There is no file or folder './blobs.npz'"),
    "distance": (lambda: ODEDM(10, k=1, selection=Prototypes("l3")), "Unknown distance 'l3'"),
    "replay": (lambda: ODEDM(10, k=1, replay="auxilary"), "did you mean 'auxiliary'"),
    "screen without sinkhorn": (
        lambda: ODEDM.from_flat(capacity=10, k=1, distance="l2", screen=5),
        "screen does nothing beside distance='l2'; 5",
    ),
    "dac": (lambda: train("blobs", memory=ODEDM(20, k=1, selection=Prototypes(dac=DAC(1, 2)))), "2"),
    "factor": (lambda: train("blobs", memory=Reservoir(5), factor=3.0), "belongs to imbalance='long-tail'"),
    "batch": (lambda: train("blobs", memory=Reservoir(5), batch=0), "batch must be a whole number, 1 or more; 0"),
    "tasks": (lambda: train("blobs", memory=Reservoir(5), tasks=3), "10 classes do not split into 3"),
    "net for images": (lambda: train("blobs", memory=Reservoir(5), net="cnn"), "is for images"),
    "fraction for k": (lambda: ODEDM(10, k=1.5), "k must be a whole number"),
    "fraction for capacity": (lambda: Reservoir(8.0), "capacity must be a whole number"),
    "fraction of a candidate": (lambda: ODEDM(10, k=1, candidates=2.5), "'task' or a whole number"),
    "no candidates": (lambda: ODEDM(10, k=1, candidates=0), "'task' or a whole number"),
    "rho as a word": (lambda: ODEDM(10, rho="0.5"), "rho must be a number from 0 to 1"),
    "endless gamma": (lambda: ODEDM(10, k=1, gamma=float("inf")), "gamma must be a finite number"),
    "half a cluster": (lambda: ODEDM(10, k=1, selection=Prototypes(dac=DAC(2.5))), "a pair of whole numbers"),
    "memory as a fraction": (lambda: train("blobs", memory=2.5), "must be a Reservoir, Native, ODEDM or NoMemory"),
    "memory as an odd word": (lambda: train("blobs", memory="odem"), "did you mean 'odedm'"),
    "data as an array": (lambda: train(np.zeros(3), memory=Reservoir(5)), "a name or a Dataset"),
    "no method": (lambda: train("blobs", memory=Reservoir(5), method=None), "method must be a name"),
    "too many threads": (lambda: train("blobs", memory=Reservoir(5), threads=10**5), "cores of this machine"),
    "endless memory": (lambda: train("blobs", memory=Reservoir(10**12)), "GiB"),
    "option": (lambda: train("blobs", memory=Reservoir(5), options={"alfa": 1}), "did you mean 'alpha'"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_wishes_end_in_one_clear_sentence(case):
    call, sentence = IMPOSSIBLE[case]
    with pytest.raises(UsageError, match=sentence):
        call()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="no GPU here"):
        train("blobs", memory=Reservoir(5), device="cuda")


def test_precision_is_chosen_by_device_and_recorded():
    assert outcome_of().result.provenance["precision"] == "fp32"
    half = outcome_of(precision="bf16")
    assert half.result.experiment["precision"] == half.result.provenance["precision"] == "bf16"
    assert not weights(half).equal(weights(outcome_of()))
    assert weights(half).dtype == torch.float32
    assert half.result.provenance["steps"]["captured"] == 0
    with pytest.raises(UsageError, match="tf32' is for GPUs"):
        outcome_of(precision="tf32")
    with pytest.raises(UsageError, match="did you mean 'bf16'"):
        outcome_of(precision="bf15")


@pytest.mark.parametrize("second_order", [False, True])
def test_a_gpu_computes_in_bfloat16_unless_a_method_derives_twice(monkeypatch, second_order):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    gpu = torch.device("cuda")
    assert resolve_precision("auto", gpu, second_order=second_order) == ("tf32" if second_order else "bf16")
    assert resolve_precision("fp32", gpu, second_order=second_order) == "fp32"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    assert resolve_precision("auto", gpu, second_order=second_order) == "tf32"


def test_a_finished_run_is_gone_with_its_last_name():
    gc.collect()
    gc.disable()
    try:
        run = Run(Experiment(Reservoir(5), data="blobs", device="cpu"))
        seen = weakref.ref(run)
        run.finish()
        del run
        assert seen() is None, "else its part of a GPU stays until Python happens to collect garbage"
    finally:
        gc.enable()
