"""What a learner's `save` writes `load` reads, and it goes on the same; what is too large is refused."""

import os
import random
import tracemalloc
import warnings

import numpy as np
import pytest
from torch import nn

from odedm import ODEDM, Learner, Reservoir, UsageError
from odedm.core.tensor_archive import write_archive
from odedm.learner import learner_state

CASES = int(os.environ.get("ODEDM_SAVE_LOAD_CASES", "24"))
"""Three hundred by hand."""
rng = np.random.default_rng(0)
CENTERS = rng.normal(size=(8, 6)) * 3
LABELS = {
    "whole numbers": np.arange(8) * 10**17,
    "numbers": np.arange(8) / 7,
    "text": np.array(["ant", "bee", "cat", "d\u00f6g", "", "a b", "z" * 50, "\u4e00"]),
}


def batch_norm_net():
    return nn.Sequential(nn.Linear(6, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 1))


def images(vectors):
    return vectors.repeat(6, 1).reshape(len(vectors), 1, 6, 6).clip(-8, 8)


def case_of(number):
    """Settings and batches, drawn by a number."""
    draw = random.Random(number)
    method = draw.choice(["er", "er-ace", "der", "derpp", "mir", "gss", "cope", "scr", "agem", "fdr"])
    policy = {"short_policy": "reservoir"}
    memory = draw.choice(
        [
            ODEDM(30, rho=0.5, **policy),
            ODEDM(40, rho=0.5, candidates=3, **policy),
            ODEDM(24, k=2, **policy),
            Reservoir(9),
        ]
    )
    plain = method in ("er", "derpp")
    settings = {
        "method": method,
        "memory": memory,
        "net": draw.choice(["mlp", batch_norm_net]) if plain else "mlp",
        "scaling": draw.choice(["auto", None]),
        "every": draw.choice([None, 24]),
        "patience": draw.choice([None, 16]),
        "batch": draw.choice([1, 5, 8]),
        "seed": draw.randrange(100),
    }
    if plain:
        settings |= {
            "optimizer": draw.choice(["sgd", "adamw"]),
            "weight_average": draw.choice([None, 0.9]),
            "predict_by": draw.choice([None, "nearest-mean"]),
            "updates": draw.choice([1, 2]),
            "retrieval": draw.choice(["uniform", "balanced"]),
        }
    labels, generator = LABELS[draw.choice([*LABELS])], np.random.default_rng(number)
    batches = []
    for place in range(draw.randrange(1, 7)):
        y = generator.integers(0, min(8, 2 + place), draw.choice([1, 8, 13]))
        batches.append(((CENTERS[y] + generator.normal(size=(len(y), 6))).astype(np.float32), labels[y]))
    return settings, batches


@pytest.mark.parametrize("number", range(CASES))
def test_what_is_saved_is_loaded_and_goes_on_the_same(number, tmp_path):
    settings, batches = case_of(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = Learner(**settings)
        for x, y in batches:
            learner.partial_fit(x, y)
        path = learner.save(tmp_path / "learner.safetensors")
        again = Learner.load(path, **({} if settings["net"] == "mlp" else {"net": settings["net"]}))
        for x, y in [*batches[:2], *batches[-1:]]:
            assert again.predict_proba(x).tobytes() == learner.predict_proba(x).tobytes()
            assert again.predict(x).tolist() == learner.predict(x).tolist()
            learner.partial_fit(x, y)
            again.partial_fit(x, y)
        assert again.classes_.tolist() == learner.classes_.tolist()
        assert again.classes_.dtype == learner.classes_.dtype
        assert again.events == learner.events
        for name, column in learner.rows().items():
            assert column.tolist() == again.rows()[name].tolist()


def small_file():
    learner = Learner("derpp", memory=20, net="mlp", batch=8)
    learner.partial_fit(*case_of(3)[1][0])
    return learner_state.capture(learner)


def change(head, **parameters):
    head["parameters"] |= parameters


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda head: head.update(outputs=1 << 23), "outputs"),
        (
            lambda head: change(head, memory=head["parameters"]["memory"] | {"capacity": 10**9}),
            "its memory has 20 rows",
        ),
        (lambda head: change(head, net_options={"width": 10**6}), "its network would have .* weights"),
        (lambda head: head.update(rows=[[10**7], "float32", None]), "its network would have .* weights"),
        (lambda head: change(head, threads=10**6), "threads"),
        (lambda head: change(head, updates=10**9), "updates"),
        (lambda head: change(head, draw=10**12), "draw"),
    ],
    ids=["outputs", "capacity", "width", "row shape", "threads", "updates", "draw"],
)
def test_a_small_file_that_asks_for_much_is_refused_before_anything_large_is_built(spoil, sentence, tmp_path):
    state = small_file()
    spoil(state["head"])
    write_archive(tmp_path / "file", state["head"], state["tensors"])
    tracemalloc.start()
    with pytest.raises(UsageError, match=sentence):
        Learner.load(tmp_path / "file")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


def test_a_learner_whose_weights_are_no_numbers_is_not_saved_over_a_good_file(tmp_path):
    learner = Learner("er", memory=20, net="mlp", batch=8)
    x, y = case_of(3)[1][0]
    path = learner.partial_fit(x, y).save(tmp_path / "file")
    good = path.read_bytes()
    next(learner._fitted.engine.method.net.parameters()).data[0, 0] = float("nan")
    with pytest.raises(UsageError, match="holds a NaN or an infinity"):
        learner.save(path)
    assert path.read_bytes() == good
