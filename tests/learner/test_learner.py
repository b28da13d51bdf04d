"""The learner on streams without borders: what it keeps, when, and that it stays inside its bounds."""

import numpy as np
import pytest
import torch
from sampling import KEEPING
from torch import nn

import odedm
from odedm import ODEDM, Learner, Native, Reservoir, UsageError
from odedm.core.registry import METHODS
from odedm.learner.endless_memory import stores
from odedm.nets.small import MLP

FREE = [name for name in KEEPING if "borders" not in METHODS[name].load().requires]
BOUND = [name for name in KEEPING if name not in FREE]


def rows(labels, seed=0, width=6):
    """Vectors around a centre for each label."""
    labels = np.asarray(labels)
    centre = np.random.default_rng(9).normal(size=(100, width)) * 3
    noise = np.random.default_rng(seed).normal(size=(len(labels), width))
    return (centre[labels] + noise).astype(np.float32), np.array([f"class {each}" for each in labels])


def blocks(*classes, each=40):
    """Classes one after the other, in batches of 8."""
    for place, label in enumerate(classes):
        x, y = rows([label] * each, seed=place)
        for start in range(0, each, 8):
            yield x[start : start + 8], y[start : start + 8]


def learned(stream, **settings):
    learner = Learner(**{"method": "er", "memory": ODEDM(40, rho=0.5), "batch": 8, "net": "mlp", **settings})
    for x, y in stream:
        learner.partial_fit(x, y)
    return learner


def feed(learner, stream):
    for x, y in stream:
        learner.partial_fit(x, y)


def counts(learner):
    names, amounts = np.unique(learner.rows("long")["y"], return_counts=True)
    return dict(zip(names.tolist(), amounts.tolist(), strict=True))


@pytest.mark.parametrize("method", FREE)
def test_every_method_without_borders_learns_words_that_join(method):
    options = {"alpha": 0.9, "lr": 0.05} if method == "cope" else {}  # prototypes that move within twenty batches
    memory = ODEDM(40, rho=0.5, short_policy="reservoir")
    learner = learned(blocks(0, 1, 2, 3), method=method, memory=memory, options=options, patience=40)
    x, y = rows([0, 1, 2, 3] * 10, seed=77)
    assert learner.classes_.tolist() == ["class 0", "class 1", "class 2", "class 3"]
    assert learner.score(x, y) > 0.5
    chance = learner.predict_proba(x)
    assert chance.shape == (40, 4)
    assert np.allclose(chance.sum(1), 1)
    assert (learner.classes_[chance.argmax(1)] == learner.predict(x)).all()
    assert learner.size("long") == 20 // 3 * 3


def test_the_ones_that_need_borders_are_these_and_are_refused():
    assert sorted(BOUND) == ["gdumb", "gem", "icarl", "onpro", "pocl", "puridiver", "refresh", "vrmcl"]
    for name in BOUND:
        with pytest.raises(UsageError, match=r"must be told where tasks begin and end.*er, der, derpp"):
            Learner(name)
    with pytest.raises(UsageError, match=r"'task-quota' chooses rows when a task ends"):
        Learner("fdr")
    with pytest.raises(UsageError, match=r"'herded' chooses rows when a task ends"):
        Learner("er", memory=Native(50, policy="herded"))


def test_a_class_is_consolidated_when_it_rests_and_chosen_anew_when_it_returns():
    learner = learned(blocks(0, 1), patience=16)
    assert list(counts(learner)) == ["class 0"]
    first = learner.rows("long")["index"]
    learner = learned(blocks(0, 1, 0, 1), patience=16)
    assert sorted(counts(learner)) == ["class 0", "class 1"]
    again = learner.rows("long")
    mine = again["index"][again["y"] == "class 0"]
    assert mine.max() >= 80, "rows of its return are among its prototypes"
    assert set(mine.tolist()) != set(first.tolist())
    assert [event.labels for event in learner.events if event.what == "pinned"] == [
        ("class 0",), ("class 1",), ("class 0",)
    ]  # fmt: skip


def test_shares_shrink_as_classes_join_last_prototypes_first():
    learner = Learner("er", memory=ODEDM(48, rho=0.5), batch=8, net="mlp", patience=None)
    before = None
    for number, stream in enumerate([blocks(0), blocks(1), blocks(2), blocks(3), blocks(4)], start=1):
        for x, y in stream:
            learner.partial_fit(x, y)
        assert learner.consolidate() == [f"class {number - 1}"]
        quota = 24 // number
        assert counts(learner) == {f"class {label}": quota for label in range(number)}
        kept = learner.rows("long")
        assert kept["prototype"].max() == quota - 1
        oldest = set(kept["index"][kept["y"] == "class 0"].tolist())
        assert before is None or oldest < before
        before = oldest
        assert learner.size() <= 48


def test_with_k_classes_beyond_the_room_are_refused_once_by_a_warning_and_then_by_events():
    learner = Learner("er", memory=ODEDM(20, k=6), batch=8, net="mlp", patience=8)
    with pytest.warns(UserWarning, match=r"no long-term room for 'class 3'.*release classes") as said:
        feed(learner, blocks(0, 1, 2, 3, 4, 5))
    assert len(said) == 1
    assert list(counts(learner)) == ["class 0", "class 1", "class 2"]
    assert [event.labels[0] for event in learner.events if event.what == "refused"]
    assert learner.size() <= 20
    assert learner.release(["class 0"]) == 6
    for x, y in blocks(4, 5):
        learner.partial_fit(x, y)
    assert len(counts(learner)) == 3
    assert {"class 4", "class 5"} & set(counts(learner))


def test_with_a_share_classes_beyond_the_rows_are_refused_too():
    learner = Learner("er", memory=ODEDM(30, rho=0.1), batch=8, net="mlp", patience=8)
    with pytest.warns(UserWarning, match="no long-term room"):
        feed(learner, blocks(0, 1, 2, 3, 4, 5))
    assert set(counts(learner).values()) == {1}
    assert len(counts(learner)) == 3


def test_every_so_many_rows_a_trigger_and_by_hand():
    at = lambda learner: [event.row for event in learner.events if event.what == "pinned"]  # noqa: E731
    assert at(learned(blocks(0, 1, 2), patience=None, every=50)) == [56, 104]
    assert at(learned(blocks(0, 1, 2), patience=None)) == []
    chosen = learned(blocks(0, 1, 2), patience=None, trigger=lambda learner: learner.rows_seen_ == 48)
    assert [(event.row, event.labels) for event in chosen.events] == [(48, ("class 0", "class 1"))]
    named = learned(
        blocks(0, 1), patience=None, trigger=lambda learner: ["class 1"] if learner.rows_seen_ == 56 else []
    )
    assert [(event.row, event.labels) for event in named.events] == [(56, ("class 1",))]
    with pytest.raises(UsageError, match=r"no class 'class 9'; the labels so far are \['class 0'"):
        named.consolidate(["class 9"])


@pytest.mark.parametrize(
    "memory",
    [ODEDM(60, k=4, candidates=8), ODEDM(60, rho=0.4, candidates=9), ODEDM(24, k=4), ODEDM(60, rho=1.0)],
    ids=["k, candidates", "rho, candidates", "k", "rho 1"],
)
@pytest.mark.filterwarnings("ignore:There is no long-term room")
def test_everything_is_inside_the_capacity_and_no_row_is_there_twice(memory):
    learner = Learner("derpp", memory=memory, batch=8, net="mlp", patience=20)
    mixed = np.random.default_rng(3).permutation(np.arange(140) % 7)
    stream = [*blocks(0, 1, 2, 0, 3, each=24), rows(mixed), *blocks(4, 5, 6, 0, each=24)]
    for x, y in stream:
        learner.partial_fit(x, y)
        parts = learner._fitted.engine.memory
        inside = sum(store.capacity for store in stores(parts))
        assert inside == memory.capacity
        assert learner.size("long") <= (memory.capacity * memory.rho if memory.k is None else memory.capacity)
        index = learner.rows()["index"]
        if memory.candidates == "task":
            assert len(set(index.tolist())) == len(index)
    assert learner.size("long")


def test_candidates_are_what_prototypes_are_chosen_from():
    learner = learned(blocks(0, 1), memory=ODEDM(60, k=4, candidates=8), patience=None)
    seen = set(learner._fitted.engine.memory.pool.rows()["index"].tolist())
    learner.consolidate()
    assert set(learner.rows("long")["index"].tolist()) <= seen
    assert learner._fitted.engine.memory.pool.reserved() == 0


def test_a_class_without_room_for_candidates_is_chosen_among_short_term_rows():
    x, y = rows(np.arange(160) % 4)
    learner = Learner("er", memory=ODEDM(40, k=4, candidates=8), batch=8, net="mlp", patience=None).partial_fit(x, y)
    assert [event.labels for event in learner.events] == [("class 2", "class 3")], "once, not with every batch"
    assert learner._fitted.engine.memory.pool.reserved() == 16
    assert sorted(learner.consolidate()) == ["class 0", "class 1", "class 2", "class 3"]
    assert counts(learner)["class 0"] == counts(learner)["class 1"] == 4


def test_a_plain_reservoir_and_nothing_to_pin():
    for memory in (Reservoir(30), ODEDM(30, k=0), 30):  # a number is an ODEDM with one candidate of each class
        learner = learned(blocks(0, 1, 2), memory=memory, patience=16)
        assert 27 <= learner.size() <= 30
        assert (learner.size("long") > 0) is (memory == 30)


class TwoHeads(nn.Module):
    """Calls its logits' layer first, another after it."""

    def __init__(self, num_classes, width=6):
        super().__init__()
        self.body, self.logits, self.spare = nn.Linear(6, width), nn.Linear(width, num_classes), nn.Linear(width, 3)

    def forward(self, x):
        hidden = self.body(x).relu()
        found, _ = self.logits(hidden), self.spare(hidden)
        return found


def test_a_net_may_be_a_class_or_a_function(tmp_path):
    x, y = rows([0, 1, 2] * 20)
    for net, options in {
        TwoHeads: {"head": "logits", "width": 7},
        MLP: {"width": 7},
        lambda: nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 1)): {},
    }.items():
        learner = Learner("er", net=net, net_options=options, memory=20, batch=8).partial_fit(x, y)
        again = Learner("er", net=net, net_options=options, memory=20, batch=8).partial_fit(x, y)
        assert (learner.predict_proba(x) == again.predict_proba(x)).all(), "the seed alone decides the weights"
        assert learner._fitted.engine.method.net.head.weight.shape == (3, 7)
        other = Learner.load(learner.save(tmp_path / "own.safetensors"), net=net)
        more = rows([3] * 8)
        assert (other.partial_fit(*more).predict_proba(x) == learner.partial_fit(*more).predict_proba(x)).all()
    with pytest.raises(UsageError, match=r"name the one of the logits by head= \(of a Learner by net_options"):
        Learner("er", net=TwoHeads).partial_fit(x, y)
    with pytest.raises(UsageError, match=r"Unknown option of the net TwoHeads 'wide'"):
        Learner("er", net=TwoHeads, net_options={"wide": 3}).partial_fit(x, y)
    with pytest.raises(UsageError, match=r"net must be a name.*a class of one or a function"):
        Learner("er", net=dict).partial_fit(x, y)


def test_candidates_can_be_seen_and_counted():
    learner = learned(blocks(0, 1), memory=ODEDM(40, rho=0.25, candidates=5), patience=None)
    found = learner.rows("candidates")
    assert learner.size("candidates") == len(found["x"]) == 10
    assert sorted(set(found["y"])) == ["class 0", "class 1"]
    assert (found["prototype"] == -1).all()
    assert learner.size() == 30
    assert len(learned(blocks(0), memory=Reservoir(40)).rows("candidates")["y"]) == 0
    with pytest.raises(UsageError, match=r"Unknown part of the memory 'log'.*candidates"):
        learner.rows("log")


def test_where_nothing_rests_it_is_said_once():
    x, y = rows([0, 1] * 60)
    with pytest.warns(UserWarning, match=r"In 80 rows no class was away for 8 rows.*every") as said:
        learner = Learner("er", memory=ODEDM(20, rho=0.5), batch=8, patience=8).partial_fit(x, y)
    assert len(said) == 1
    assert [(event.row, event.what, event.labels) for event in learner.events] == [(80, "nothing rests", ())]
    for quiet in ({"memory": Reservoir(20)}, {"every": 50}, {"trigger": lambda learner: False}):
        Learner("er", **{"memory": ODEDM(20, rho=0.5), **quiet}, batch=8, patience=8).partial_fit(x, y)


def test_head_logits_and_momentum_grow_and_nothing_else_moves():
    learner = learned(blocks(0, 1), method="derpp", options={"momentum": 0.9})
    parts = learner._fitted.engine
    before = {name: each.clone() for name, each in parts.method.net.state_dict().items()}
    stored = parts.memory.buffer.store.columns["logits"].clone()
    moments = [each["momentum_buffer"].clone() for each in parts.method.optimizer.state.values()]
    parts.grow(5)
    for name, each in parts.method.net.state_dict().items():
        assert each[: len(before[name])].equal(before[name])
    wide = parts.memory.buffer.store.columns["logits"]
    assert wide.shape == (40, 5)
    assert wide[:, :2].equal(stored)
    now = parts.view.predict(parts.memory.buffer.store.columns["image"])
    assert torch.allclose(wide[:, 2:], now[:, 2:])
    assert len(parts.method.optimizer.state) == len(moments)
    assert {len(each["momentum_buffer"]) for each in parts.method.optimizer.state.values()} == {64, 5}
    assert {id(each) for each in parts.method.net.parameters()} == {
        id(each) for group in parts.method.optimizer.param_groups for each in group["params"]
    }


def test_announced_classes_have_outputs_and_are_never_answered():
    x, y = rows([0, 1] * 8)
    learner = Learner("er", memory=20, net="mlp").partial_fit(x, y, classes=["class 2", "class 0", "class 1"])
    assert learner.classes_.tolist() == ["class 0", "class 1", "class 2"]
    assert (learner.predict_proba(x)[:, 2] == 0).all()
    assert "class 2" not in learner.predict(x)


def test_images_and_a_network_of_ones_own(tmp_path):
    data = odedm.shapes(classes=4, tasks=2)
    words = np.array(["up", "down", "left", "right"])[data.label]
    order = np.random.default_rng(0).permutation(len(words)).repeat(2)
    learner = Learner("er", memory=40, patience=50, batch=8).partial_fit(data.image[order], words[order])
    assert learner.score(data.test_image, np.array(["up", "down", "left", "right"])[data.test_label]) > 0.4
    assert learner.rows()["x"].dtype == np.uint8
    flat = data.image.flatten(1).float() / 255
    net = MLP(flat.shape[1:], 2, width=8)
    weights = net.head.weight.clone()
    own = Learner("der", net=net, memory=40).partial_fit(flat, words)
    assert net.head.weight.equal(weights), "a copy is trained"
    assert own.predict(flat[:3]).dtype.kind == "U"
    plain = nn.Sequential(nn.Linear(flat.shape[1], 8), nn.ReLU(), nn.Linear(8, 1))
    grown = Learner("er", net=plain, memory=40).partial_fit(flat, words)
    assert grown.predict_proba(flat).shape[1] == len(set(words)), "its head grows with the classes"
    file = grown.save(tmp_path / "plain.safetensors")
    assert list(Learner.load(file, net=plain).predict(flat)) == list(grown.predict(flat))
    with pytest.raises(UsageError, match=r"net must be a name.*7"):
        Learner("er", net=7).partial_fit(flat, words)
    with pytest.raises(UsageError, match=r"Linear does not take rows"):
        Learner("er", net=nn.Linear(2, 2)).partial_fit(flat, words)
    with pytest.raises(UsageError, match="no linear layer"):
        Learner("er", net=nn.Flatten()).partial_fit(flat, words)
    with pytest.raises(UsageError, match=r"MLP cannot take rows of shape \[5\]"):
        Learner("er", net=net).partial_fit(flat[:, :5], words)


def test_inputs_are_scaled_by_what_was_seen_or_by_given_constants():
    x, y = rows([0, 1, 2, 3] * 20)
    learner = Learner("er", memory=40, net="mlp", batch=16).partial_fit(1000 * x + 5e4, y)
    transform = learner._fitted.engine.transform
    assert torch.allclose(transform.shift, torch.from_numpy((1000 * x + 5e4).mean(0)), rtol=1e-5)
    assert torch.allclose(1 / transform.scale, torch.from_numpy((1000 * x).std(0)), rtol=1e-4)
    data = odedm.blobs()
    fixed = Learner("er", memory=40, scaling=data.transform).partial_fit(data.image, data.label)
    assert fixed._fitted.engine.transform.shift.equal(data.transform.shift)
    with pytest.raises(UsageError, match="transform is for rows of another shape"):
        Learner("er", scaling=data.transform).partial_fit(x, y)


def test_bookkeeping_stays_flat():
    """Nothing in the learner grows with the rows: tensors and lists have one size after one stream and after five."""

    def size(learner):
        from odedm.learner.learner_state import capture

        state = capture(learner)
        return sum(each.nbytes for each in state["tensors"].values()), len(state["head"]["candidates"])

    learner = Learner("derpp", memory=ODEDM(40, rho=0.5, candidates=4), batch=8, net="mlp", patience=20)
    for x, y in blocks(0, 1, 2, 3):
        learner.partial_fit(x, y)
    before = size(learner)
    for _ in range(4):
        feed(learner, blocks(0, 1, 2, 3))
    assert size(learner) == before
    assert len(learner.events) <= 100


def test_the_same_seed_gives_the_same_and_large_batches_are_steps():
    x, y = rows(np.arange(96) % 4)
    one = Learner("derpp", memory=30, net="mlp", batch=8).partial_fit(x, y)
    two = Learner("derpp", memory=30, net="mlp", batch=8)
    for start in range(0, 96, 8):
        two.partial_fit(x[start : start + 8], y[start : start + 8], classes=sorted(set(y), key=list(y).index))
    assert (one.predict_proba(x) == two.predict_proba(x)).all()
    other = Learner("derpp", memory=30, net="mlp", batch=8, seed=1).partial_fit(x, y)
    assert (one.predict_proba(x) != other.predict_proba(x)).any()
