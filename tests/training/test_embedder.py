"""Data sets of features: equal to a plain loop, in shards that outlive a kill, found again, and of texts."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import odedm as command
from safetensors.torch import save_file
from torch import nn

import odedm
from odedm import UsageError
from odedm.data import cache
from odedm.execute import embedding
from odedm.nets.build import build

DATA = odedm.shapes(per_class=30)


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(432, 20), nn.BatchNorm1d(20), nn.Dropout(0.5))

    def forward(self, x):
        return self.layers(x)


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(embedding, "SHARD", 40)
    return tmp_path / "data"


def test_features_are_those_of_a_plain_loop_in_evaluation_mode():
    body = Body()
    stored, held = (odedm.embed(DATA, body, name=name, batch=8) for name in ("features", None))
    with torch.no_grad():
        expected = body.eval()(DATA.image.float() / 255)
    for data in (stored, held):
        torch.testing.assert_close(data.image, expected)
        assert data.label.equal(DATA.label)
        assert (data.class_names, data.tasks) == (DATA.class_names, DATA.tasks)
    assert odedm.load_dataset("features").checksum == held.checksum
    assert odedm.train(stored, method="slda", memory=odedm.NoMemory()).result.acc_last > 60


def test_what_a_kill_leaves_is_not_computed_again(data_folder):
    seen = []

    def killed(image):
        seen.append(len(image))
        if len(seen) == 5:
            raise KeyboardInterrupt
        return image.flatten(1)

    with pytest.raises(KeyboardInterrupt):
        odedm.embed(DATA, killed, name="features", batch=20)
    assert not cache.is_cached("features")
    data = odedm.embed(DATA, killed, name="features", batch=20)
    assert sum(seen[5:]) == len(DATA.image) + len(DATA.test_image) - 2 * 40
    assert data.image.equal(DATA.image.flatten(1).float())
    assert not list(data_folder.glob(".embedding*"))
    before = len(seen)
    odedm.embed(DATA, killed, name="features", batch=20)
    assert len(seen) == before, "the same again is found"
    with pytest.raises(UsageError, match="There is a data set 'features' already, of other rows or another network"):
        odedm.embed(DATA, Body(), name="features")
    assert odedm.embed(DATA, Body(), name="features", overwrite=True).shape == (20,)


def test_a_net_by_name_gives_what_enters_its_last_layer_and_names_its_weights(tmp_path):
    options = {"patch": 4, "depth": 1, "width": 192, "heads": 3}
    net = build("vit", DATA.shape, 6, seed=3, options=options)
    nn.init.normal_(net.positions)
    save_file(net.state_dict(), tmp_path / "vit.safetensors")
    with pytest.raises(UsageError, match=r"would embed by fresh weights, which are random: give weights"):
        odedm.embed(DATA, "vit")
    with pytest.raises(UsageError, match=r"not for this net"):  # of another depth
        odedm.embed(DATA, "vit", weights=str(tmp_path / "vit.safetensors"))


def test_texts_from_a_table_by_a_function_of_a_file(tmp_path):
    lines = [{"text": f"{word} {i}", "intent": word} for word in ("hello", "goodbye") for i in range(10)]
    (tmp_path / "talk.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "lengths.py").write_text("def lengths(texts):\n    return [[len(t), t.count('o')] for t in texts]\n")
    words = ["--text-column", "text", "--label-column", "intent", "--net", f"{tmp_path}/lengths.py:lengths"]
    command("data", "embed", tmp_path / "talk.jsonl", *words, "--out", "talk")
    data = odedm.load_dataset("talk")
    assert (data.class_names, len(data.image), len(data.test_image)) == (("goodbye", "hello"), 16, 4)
    assert set(map(tuple, data.image[data.label == 1].tolist())) == {(7.0, 1.0)}
    assert "lengths" in command("data", "show", "talk", "--json")


def test_sentence_transformers_without_the_network(monkeypatch):
    asked = {}

    class Model(nn.Linear):
        def __init__(self, name, **options):
            super().__init__(1, 2)
            asked.update(options, name=name)

        def encode(self, texts, **_):
            return np.array([[len(text), 1.0] for text in texts])

    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=Model))
    rows = (["a", "bb"] * 5, [0, 1] * 5)
    data = odedm.embed(rows, "sentence-transformers:mini", test=(["ccc", "d"], [1, 0]))
    assert asked == {"name": "mini", "device": "cpu", "local_files_only": True}
    assert data.test_image.tolist() == [[3, 1], [1, 1]]


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (3, "net must be a name, an nn.Module or a function"),
        (lambda image: image, r"must give one vector of finite numbers a row, \[64, d\]; it gave \[64, 3, 12, 12\]"),
        (nn.Linear(5, 2), "Linear does not take these rows: RuntimeError"),
        ("vitt", "Unknown net 'vitt'"),
        ("sentence-transformers:none", "cannot be had here"),
    ],
)
def test_what_cannot_embed_is_refused(net, message):
    with pytest.raises(UsageError, match=message):
        odedm.embed(DATA, net)
    with pytest.raises(UsageError, match="There are 1 rows and 2 labels"):
        odedm.embed((["a"], [0, 1]), len)
