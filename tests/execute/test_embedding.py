"""Embedding by workers: the same features as in one process, whatever dies on the way."""

import subprocess
import sys

import numpy as np
import pytest

import odedm
from odedm import UsageError
from odedm.data import cache
from odedm.execute import embedding
from odedm.execute.backend import ExecutionConfig, InProcessBackend
from odedm.execute.shard_job import job_from_text

CODE = """
import os, signal
from pathlib import Path

def features(rows):
    return rows.float().flatten(1)[:, :5] * 2

def dies_once(rows):
    marker = Path(__file__).with_name("died")
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return features(rows)

def fails(rows):
    raise ValueError("no weights today")

def lengths(texts):
    return [[len(text), text.count("o")] for text in texts]
"""
DATA = odedm.shapes()


@pytest.fixture(autouse=True)
def net(tmp_path, monkeypatch):
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(embedding, "SHARD", 40)
    name = f"net_{tmp_path.name}"  # a module of its own for each test
    (tmp_path / f"{name}.py").write_text(CODE)
    return f"{tmp_path}/{name}.py"


def embed(net, name, **more):
    return odedm.embed("shapes", net, name=name, execution=ExecutionConfig(**more))


@pytest.fixture
def sent(monkeypatch):
    """Workers that are threads of this process, and what they were given to do."""
    keys = []

    class Threads(InProcessBackend):
        def __init__(self, _workers):
            super().__init__()

        def start(self, job):
            keys.append(job.key)
            super().start(job_from_text(job.to_text()))

    monkeypatch.setattr(embedding, "ProcessBackend", Threads)
    return keys


def test_a_worker_that_dies_loses_its_shard_alone(net, tmp_path):
    data = embed(f"{net}:dies_once", "by-workers", workers=2)
    assert data.image.equal(DATA.image.float().flatten(1)[:, :5] * 2)
    assert data.test_image.equal(DATA.test_image.float().flatten(1)[:, :5] * 2)
    assert data.label.equal(DATA.label)
    assert (tmp_path / "died").exists()
    assert not list((tmp_path / "data").glob(".embedding*"))


def test_shards_that_are_done_are_not_made_again(net, sent):
    def stopped(_what, done, _total):
        if done >= 80:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        odedm.embed("shapes", f"{net}:features", name="a", execution=ExecutionConfig(workers=2), on_progress=stopped)
    first = len(sent)
    assert not cache.is_cached("a")
    embed(f"{net}:features", "a", workers=2)
    shards = -(-len(DATA.image) // 40) + -(-len(DATA.test_image) // 40)
    assert shards > 3
    assert len(sent) - first in (shards - 2, shards - 3)  # one may have been under way


def test_texts_go_to_workers_themselves(net, sent):
    texts = [f"hello {i}" for i in range(200)] + [f"goodbye {i}" for i in range(200)]
    labels = ["greet"] * 200 + ["leave"] * 200
    one, two = (
        odedm.embed((texts, labels), f"{net}:lengths", name=name, execution=ExecutionConfig(workers=workers))
        for name, workers in (("one", 1), ("two", 2))
    )
    assert one.image.equal(two.image)
    assert one.test_image.equal(two.test_image)
    assert sent


def test_ray_gives_the_same_features(net):
    pytest.importorskip("ray")
    words = ["data", "embed", "shapes", "--net", f"{net}:dies_once", "--out", "by-ray", "--backend", "ray", "-j", "2"]
    subprocess.run([sys.executable, "-P", "-m", "odedm", *words], check=True)
    data = odedm.load_dataset("by-ray")
    assert data.image.equal(DATA.image.float().flatten(1)[:, :5] * 2)


@pytest.mark.usefixtures("sent")
def test_what_workers_cannot_do_is_a_sentence(net):
    with pytest.raises(UsageError, match=r"fails does not take these rows: ValueError.*no weights today"):
        embed(f"{net}:fails", "a", workers=2)
    with pytest.raises(UsageError, match="Workers find a network by its name, or as 'file.py:NAME'"):
        embed(np.array, "a", workers=2)
    other = odedm.shapes(per_class=20)
    with pytest.raises(UsageError, match="Workers open data by their name, and 'shapes' is not these rows"):
        odedm.embed(other, f"{net}:features", name="a", execution=ExecutionConfig(workers=2))
