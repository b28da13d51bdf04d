"""What settings take, in words: the bound that a value is beyond, names that can be typed, code where it is legal."""

import inspect

import numpy as np
import pytest
import torch
from torch import nn

import odedm
from odedm import Experiment, Learner, Native, Reservoir, UsageError, blobs, load, train
from odedm.core.options import cast_like
from odedm.core.validators import LARGEST, Bool, Int, WordOr, validate_params


def test_whole_numbers_have_bounds():
    for other in (-1, 0.5, True, "x", 2**70, -(2**70)):
        with pytest.raises(UsageError, match="^seed must be a whole number, 0 or more; "):
            Experiment(seed=other)
    with pytest.raises(UsageError, match="^side must be a whole number, 1 or more, up to 9; "):
        Int(1, 9).validate("side", 2**70)
    assert Experiment(seed=np.int64(LARGEST)).seed == LARGEST


def test_objects_without_a_name_are_in_no_list():
    """They have a number, which nobody types; their setting has it all the same."""
    net = nn.Sequential(nn.Linear(4, 4))
    assert Experiment(net=net).net.endswith("Sequential@1")
    for wrong in ("sequential", "mpl"):
        with pytest.raises(UsageError, match="Unknown net") as caught:
            Experiment(net=wrong)
        assert "@" not in str(caught.value)
    assert "did you mean 'mlp'" in str(caught.value)
    with pytest.raises(UsageError, match="net must be") as caught:
        Experiment(net=5)
    assert "@" not in str(caught.value)


def test_where_code_may_be_given_the_sentence_says_which():
    with pytest.raises(UsageError, match=r"^net must be a name, one of auto, linear, .*, or an nn\.Module, a class of"):
        Experiment(net=5)
    with pytest.raises(UsageError, match=r"^method must be a name, .*, or a subclass of odedm\.Method; 5 was given"):
        Learner(5)
    with pytest.raises(UsageError, match=r", or a subclass of odedm\.Memory; 5 was given"):
        Native(policy=5)
    with pytest.raises(UsageError, match=r"^eval_classes must be a name, one of seen, all; 5 was given\.$"):
        Experiment(eval_classes=5)


def test_a_device_may_be_torchs_own_object(tmp_path):
    cpu = torch.device("cpu")
    assert Experiment(device=cpu).device == "cpu"
    assert Experiment(device=torch.device("cuda:0")).device == "cuda"
    with pytest.raises(UsageError, match="Unknown device 'cuda:1': did you mean 'cuda'"):
        Experiment(device=torch.device("cuda:1"))
    data = blobs()
    learner = Learner("er", memory=20, device=cpu).partial_fit(data.image[:40], data.label[:40])
    assert learner.device is cpu
    again = Learner.load(learner.save(tmp_path / "learner"), device=cpu)
    assert np.array_equal(again.predict(data.image), learner.predict(data.image))
    outcome = train(data, method="er", memory=Reservoir(20), device=cpu)
    assert len(load(outcome.save(tmp_path / "run"), device=cpu).predict(data.image[:5])) == 5


def test_checked_functions_keep_their_signature_and_pythons_own_errors():
    assert list(inspect.signature(odedm.select).parameters)[:2] == ["x", "k"]
    with pytest.raises(TypeError, match=r"select\(\) takes 1 positional argument but 2 were given"):
        odedm.select([[1.0]], 5)
    with pytest.raises(TypeError, match=r"select\(\) missing 1 required keyword-only argument: 'k'"):
        odedm.select([[1.0]])


def test_a_type_error_from_inside_a_checked_function_stays_itself():
    @validate_params(x=Int())
    def broken(x):
        return x + "text"

    with pytest.raises(TypeError, match="unsupported operand"):
        broken(1)


def test_a_word_or_a_bool_reads_false_as_false():
    auto = WordOr("auto", Bool())
    assert [auto.validate("flip", value) for value in ("auto", "false", "True", False)] == ["auto", False, True, False]
    with pytest.raises(UsageError, match="flip must be 'auto' or true or false; 'no' was given"):
        auto.validate("flip", "no")


@pytest.mark.parametrize(
    ("value", "default", "legal"),
    [
        (None, "auto", "text"),
        (3, "auto", "text"),
        (None, 1, "a whole number"),
        ("ab", (1, 2), "a tuple"),
        ("ab", [], "a list"),
        (None, (1, 2), "a tuple"),
    ],
)
def test_an_option_of_another_type_than_its_default_is_refused(value, default, legal):
    with pytest.raises(UsageError, match=f"^alpha must be {legal}; {value!r} was given"):
        cast_like("alpha", value, default)


def test_an_option_keeps_the_type_of_its_default():
    assert cast_like("alpha", [3, 4], (1, 2)) == (3, 4)
    assert cast_like("alpha", "x", "auto") == "x"
