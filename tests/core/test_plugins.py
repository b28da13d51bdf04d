"""Code from outside: registered, installed or given as a plug-in it is known; a name in a file imports nothing."""

import copy
import gc
import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from commands import odedm as command
from jobs import SMALL
from torch import nn

import odedm
from odedm import ODEDM, Experiment, Prototypes, Reservoir, UsageError
from odedm.checkpoint.load_state_tree import load_state_tree
from odedm.checkpoint.state_tree import State, StateError
from odedm.core import plugins
from odedm.core.plugin_modules import export_plugins, import_plugins, load_plugins, source_hash
from odedm.core.registry import DISTANCES, METHODS, NETS, POLICIES, REGISTRIES, RETRIEVALS, Entry
from odedm.execute.backend import ExecutionConfig, InProcessBackend, open_backend
from odedm.execute.job import Job
from odedm.execute.planning import plan_jobs
from odedm.memory.reservoir import ReservoirBuffer
from odedm.methods.er import ER
from odedm.selection.distance import L2, MMD
from odedm.studies.grid import Grid
from odedm.studies.spec import Study, parse

CANARY = """
import pathlib
from odedm.methods.er import ER

pathlib.Path({path!r}).touch()

class Mine(ER):
    "One of mine."
"""


class Own(ER):
    """A method of a test module."""


class Scaled:
    """A distance with a number."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def fit(self, candidates, image_shape):
        return self

    def pairwise(self, x, y):
        return self.scale * L2().pairwise(x, y)

    def between_sets(self, x, y):
        return self.scale * L2().between_sets(x, y)


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A module that Python would find, and that leaves a file when it is imported."""
    folder = tmp_path / "lib"
    folder.mkdir()
    trace = tmp_path / "imported"
    (folder / "odedm_canary.py").write_text(CANARY.format(path=str(trace)))
    monkeypatch.syspath_prepend(folder)
    yield trace
    sys.modules.pop("odedm_canary", None)
    plugins._entry_points.cache_clear()


BAD = {
    "built in": (("methods", "er", "a.b:C"), "The method 'er' is built in"),
    "reserved": (("nets", "auto", "a.b:C"), "The net 'auto' is built in"),
    "no such list": (("method", "mine", "a.b:C"), "did you mean 'methods'"),
    "no name": (("methods", "a/b", "a.b:C"), "letters, digits"),
    "no place": (("methods", "mine", "a.b"), "'package.module:Name'"),
    "wrong base": (("methods", "mine", L2), "a subclass of odedm.Method"),
    "an object": (("methods", "mine", 3), "a subclass of odedm.Method"),
    "abstract": (("policies", "mine", odedm.Memory), "lacks add,"),
    "no distance": (("distances", "mine", ER), "fit, pairwise and between_sets"),
    "no net": (("nets", "mine", int), "an nn.Module"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_registered_is_refused_with_a_sentence(case):
    words, sentence = BAD[case]
    with pytest.raises(UsageError, match=sentence):
        odedm.register(*words)


def test_a_name_stands_for_one_thing():
    odedm.register("methods", "mine", Own)
    odedm.register("methods", "mine", Own)
    with pytest.raises(UsageError, match=r"registered already, as test_plugins:Own"):
        odedm.register("methods", "mine", ER)


def test_a_cell_that_is_run_again_registers_its_class_anew():
    def cell():
        class Mine(ER):
            """Of a notebook."""

        odedm.register("methods", "mine", Mine)
        return Mine

    first, second = cell(), cell()
    assert METHODS["mine"].load() is second is not first


def test_a_class_is_named_by_its_module_and_the_same_class_by_its_name():
    assert Experiment(method=Own).method == "test_plugins.Own"
    odedm.register("methods", "own", Own)
    assert Experiment(method=ER).method == "er"
    assert Experiment(Reservoir, method="er").memory == Reservoir()
    assert Experiment(ReservoirBuffer).memory.policy == "reservoir"
    assert Experiment("herded").memory.policy == "herded"


def test_an_object_has_a_name_in_its_process_only():
    first, second = Scaled(2.0), Scaled(3.0)
    memories = [ODEDM(selection=Prototypes(distance)) for distance in (first, second, first)]
    names = [memory.flat()["distance"] for memory in memories]
    assert names == ["test_plugins.Scaled@1", "test_plugins.Scaled@2", "test_plugins.Scaled@1"]
    assert Prototypes(MMD).distance == odedm.MMD()
    assert Prototypes(MMD(bandwidth=2.0)).distance.endswith("MMD@1")
    assert DISTANCES[names[1]].load() is second


class Sized(nn.Module):
    """A network of a test."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(16, 8), nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.body(x).relu())


def test_an_object_given_by_value_lives_as_long_as_its_experiment():
    plan = Experiment(Reservoir(20), method="er", data="blobs", net=Sized())
    name, reference = str(plan.net), NETS[plan.net].reference
    gc.collect()
    assert reference() is not None
    assert Experiment.from_dict(plan.describe()) == copy.deepcopy(plan) == replace(plan, seed=0)
    odedm.train("blobs", method="er", memory=Reservoir(20), net=plan.net)
    assert type(pickle.loads(pickle.dumps(plan.net))) is str
    del plan
    gc.collect()
    assert reference() is None
    with pytest.raises(UsageError, match="The net '.*' is gone: .* Give the object again"):
        NETS[name].load()
    assert Experiment(net=Sized()).net != name, "a number is not given twice"
    assert name not in NETS
    with pytest.raises(UsageError, match="Unknown net"):
        Experiment(net=name)


def test_what_is_registered_by_value_stays():
    odedm.register("nets", "mine", Sized())
    gc.collect()
    assert Experiment(net="mine").net == "mine"
    assert NETS["mine"].load() is not None


def test_an_objects_numbers_are_those_of_the_run():
    """Distances that rank alike choose alike, whoever wrote them; and the result says what it was made with."""
    plans = {name: ODEDM(30, k=2, selection=Prototypes(name, dac=None)) for name in ("l2", Scaled(3.0))}
    theirs, ours = (odedm.train("blobs", method="er", memory=memory, batch=16) for memory in plans.values())
    assert theirs.memory.rows()["index"].equal(ours.memory.rows()["index"])
    origin = {"title": "Scaled", "from": None, "again": False, "code": source_hash(Scaled)}
    assert ours.result.provenance["plugins"] == {"memory.distance": origin}
    assert ours.result.not_importable() == {"memory.distance": "Scaled"}
    assert "plugins" not in theirs.result.provenance


def test_jobs_of_objects_run_in_this_process_or_not_at_all(tmp_path):
    plan = replace(SMALL, memory=ODEDM(20, k=1, selection=Prototypes(Scaled())))
    planned = plan_jobs([plan, plan.with_seed(1)], lambda experiment: tmp_path / str(experiment.seed))
    assert isinstance(open_backend(planned.jobs, ExecutionConfig(), planned.data), InProcessBackend)
    for execution in (ExecutionConfig(workers=2), ExecutionConfig(backend="ray")):
        with pytest.raises(UsageError, match="known to this process alone"):
            open_backend(planned.jobs, execution, planned.data)
    on_gpu = [replace(job, experiment=replace(job.experiment, device="cuda")) for job in planned.jobs]
    with pytest.raises(UsageError, match="leave out workers, gpu_share and backend"):
        open_backend(on_gpu, ExecutionConfig(gpu_share=40), planned.data)


def test_a_job_of_registered_code_crosses_a_pipe():
    odedm.register("methods", "mine", Own, title="Mine")
    handed = json.loads(json.dumps(export_plugins()))
    assert ["methods", "mine", "test_plugins:Own", "A method of a test module.", "Mine"] in handed["entries"]
    assert str(Path(__file__).parent) in handed["path"], "where Python finds the class's module"
    text = Job("key", Experiment(method="mine")).to_text()
    del METHODS["mine"]
    with pytest.raises(UsageError, match="--plugin"):
        Job.from_text(text)
    import_plugins(handed)
    assert Job.from_text(text).experiment.method == "mine"
    assert METHODS["mine"].load() is Own


def test_workers_get_the_parents_path_without_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend("")
    monkeypatch.chdir(tmp_path)
    path = export_plugins()["path"]
    assert str(tmp_path / "library") in path
    assert str(tmp_path) not in path
    assert "" not in path
    monkeypatch.setattr(sys, "path", ["elsewhere"])
    import_plugins({"path": ["elsewhere", "library"], "entries": [], "plugins": []})
    assert sys.path == ["elsewhere", "library"]


@pytest.mark.parametrize("group", REGISTRIES)
def test_what_is_built_in_is_registered_where_it_is_defined(group):
    """Else a class that is given has another name than its own."""
    for name, entry in REGISTRIES[group].items():
        if isinstance(entry, Entry):
            assert plugins.import_path(entry.load()) == entry.import_path, name


def test_installed_packages_are_known_by_their_entry_points_and_imported_when_they_run(canary, tmp_path):
    info = tmp_path / "lib" / "odedm_canary-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: odedm-canary\nVersion: 1\n")
    points = "[odedm.methods]\ninstalled = odedm_canary:Mine\ner = odedm_canary:Mine\n[odedm.nothing]\nx = y:z\n"
    (info / "entry_points.txt").write_text(points)
    plugins._entry_points.cache_clear()
    plan = Experiment(Reservoir(20), method="installed", data="blobs")
    assert not canary.exists(), "a name is looked up, nothing is imported"
    assert METHODS["er"].load() is ER, "what is built in cannot be replaced"
    assert "installed" in command("list", "methods")
    assert not canary.exists()
    odedm.Run(plan)
    assert canary.exists()


def test_entry_points_of_the_current_folder_are_not_read(canary, tmp_path, monkeypatch):
    info = tmp_path / "lib" / "odedm_canary-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: odedm-canary\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[odedm.methods]\ninstalled = odedm_canary:Mine\n")
    monkeypatch.chdir(tmp_path / "lib")
    plugins._entry_points.cache_clear()
    with pytest.raises(UsageError, match="Unknown method 'installed'"):
        Experiment(method="installed")


def test_known_names_read_no_entry_points(monkeypatch):
    monkeypatch.setattr(plugins, "_entry_points", lambda: pytest.fail("read"))
    Experiment(ODEDM(selection=Prototypes("l2")), method="er", net="mlp")


def strange(plain, name):
    return {**plain, "method": name}


@pytest.mark.parametrize("name", ["odedm_canary:Mine", "odedm_canary.Mine", "canary"])
def test_a_strangers_files_that_name_code_import_nothing(name, canary, tmp_path, capsys):
    """Results, checkpoints and studies: one sentence says what to give."""
    outcome = odedm.train("blobs", method="er", memory=Reservoir(10))
    folder = outcome.save(tmp_path / "run")
    path = folder / "result.json"
    plain = json.loads(path.read_text())
    plain["experiment"] = strange(plain["experiment"], name)
    plain["provenance"]["plugins"] = {"method": {"title": "Nice \x1b[31m", "from": "odedm_canary:Mine", "again": True}}
    path.write_text(json.dumps(plain))
    (folder / "checksums.json").unlink()  # a stranger would have made its own
    assert "--plugin" in command("run", "--from", folder, code=2)
    study = tmp_path / "study.toml"
    study.write_text(f"method = {json.dumps(name)}\n")
    assert "--plugin" in command("study", study, "--out", tmp_path / "out", code=2)
    study.write_text(f"[options.{json.dumps(name)}]\nlr = 0.1\n")
    assert "--plugin" in command("study", study, "--out", tmp_path / "out", code=2)
    assert "Nice" in command("report", folder, "--markdown"), "a report needs no plug-in, and has its title"
    with pytest.raises(UsageError, match="--plugin"):
        Experiment.from_dict(plain["experiment"])
    assert not canary.exists()


def test_a_checkpoints_tree_that_names_a_class_makes_one_of_registered_modules_only(canary):
    node = {"type": "object", "path": "own", "class": "odedm_canary.Mine", "attributes": {"seen": 3}}
    tree = {"type": "dict", "path": "", "items": [["own", node]]}
    with pytest.raises(StateError, match="not one of this package"):
        load_state_tree({"own": None}, State({}, tree))
    assert not canary.exists()
    load_plugins(["odedm_canary"])
    living = {"own": None}
    load_state_tree(living, State({}, tree))
    assert type(living["own"]) is sys.modules["odedm_canary"].Mine


def test_a_study_with_a_class_of_ones_own_is_read_back():
    plan = parse(
        f"method = {json.dumps(Experiment(method=Own).method)}\n[options.'test_plugins.Own']\nlr = [0.1, 0.2]\n"
    )
    assert parse(plan.to_toml()).experiments() == plan.experiments()
    assert {experiment.options["lr"] for experiment in plan.experiments()} == {0.1, 0.2}


@pytest.mark.parametrize(
    ("table", "shelf", "name", "options"),
    [
        ("options", METHODS, "er", {"lr": (0.1, 0.2)}),
        ("retrieval_options", RETRIEVALS, "mir", {"candidates": (20, 30)}),
        ("policy_options", POLICIES, "purity", {"alpha": (0.1, 0.2)}),
    ],
)
def test_a_study_keeps_options_of_names_with_dots(table, shelf, name, options, monkeypatch):
    monkeypatch.setitem(shelf, "my.own", shelf[name])
    study = Study("mine", (Grid({f"{table}.my.own.{name}": values for name, values in options.items()}),))
    assert parse(study.to_toml()) == study
