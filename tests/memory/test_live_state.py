"""A live memory through pickle, copies, dictionaries and files: it goes on bit for bit, or a sentence says why not."""

import copy
import io
import json
import os
import pickle

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sampling import thorough

import odedm
from odedm import ODEDM, DualMemory, Native, Prototypes, Reservoir, UsageError
from odedm.core.tensor_archive import archive_checksum

KINDS = {
    "k": ODEDM(30, k=2, candidates="task", selection=Prototypes(space="pixels")),
    "share": ODEDM(30, rho=0.3, candidates="task", selection=Prototypes(space="pixels")),
    "usual": ODEDM(30, rho=0.3, selection=Prototypes(space="pixels")),
    "bounded": ODEDM(30, k=2, candidates=4, selection=Prototypes(space="pixels")),
    "quota": ODEDM(30, k=2, short_policy="task-quota", selection=Prototypes(space="pixels")),
    "reservoir": Reservoir(30),
    "native": Native(30, policy="class-quota"),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def through_dictionary(memory):
    file = io.BytesIO()
    torch.save(memory.state_dict(), file)
    file.seek(0)
    new = odedm.DualMemory.from_config(memory.settings, seed=99)
    new.load_state_dict(torch.load(file, weights_only=True))
    return new


def through_file(memory, path):
    assert memory.save(path) == path
    return DualMemory.load(str(path))


WAYS = {
    "pickle": lambda memory, _: pickle.loads(pickle.dumps(memory)),
    "copy": lambda memory, _: copy.copy(memory),
    "deepcopy": lambda memory, _: copy.deepcopy(memory),
    "state_dict": lambda memory, _: through_dictionary(memory),
    "file": through_file,
}


def step(memory, number):
    """One of what loops do, the same for the same number; what can be seen of it."""
    rng = torch.Generator().manual_seed(number)
    task = number // 4
    memory.add(
        torch.rand(12, 3, generator=rng), torch.arange(12) % 2 + 2 * task, logits=torch.rand(12, 2, generator=rng)
    )
    if number % 4 == 3 and task < 3:
        memory.end_task()
    if number == 9:
        memory.release([0])
        memory.resize(28)
    return memory.sample(5)["images"], memory.rows()["logits"], memory.size("long")


def equal(one, other):
    return all(torch.as_tensor(a).equal(torch.as_tensor(b)) for a, b in zip(one, other, strict=True))


@every_kind
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", [0, pytest.param(1, marks=thorough), 6, pytest.param(10, marks=thorough)])
def test_it_goes_on_bit_for_bit(kind, way, when, tmp_path):
    memory = odedm.DualMemory.from_config(KINDS[kind], seed=5)
    for number in range(when):
        step(memory, number)
    new = WAYS[way](memory, tmp_path / "memory.safetensors")
    for number in range(when, 14):
        old = step(memory, number)
        assert equal(old, step(new, number)), number
    assert repr(new) == repr(memory)


def under_way(kind):
    """A memory of a kind after a few steps."""
    made = odedm.DualMemory.from_config(KINDS[kind], seed=5)
    for number in range(6):
        step(made, number)
    return made


@pytest.fixture
def memory():
    return under_way("bounded")


@pytest.fixture
def whole():
    return under_way("k")


def test_a_copy_shares_nothing(memory):
    before, new = memory.rows(), copy.copy(memory)
    for number in range(6, 9):
        step(new, number)
    assert equal(before.values(), memory.rows().values())
    state = memory.state_dict()
    state["tensors"]["host.image"].zero_()
    assert equal(before.values(), memory.rows().values())


def test_numpy_stays_numpy(tmp_path):
    memory = DualMemory(5, k=1)
    memory.add([[0.5, 1.0]] * 3, [1, 2, 3])
    new = through_file(memory, tmp_path / "m")
    assert type(new.rows()["images"]).__module__ == "numpy"


def changed(state, name, value):
    return {**state, name: value}


def with_tensor(state, name, change):
    tensors = {each: tensor.clone() for each, tensor in state["tensors"].items()}
    found = change(tensors[name])
    tensors = {**tensors, name: found} if found is not None else {e: t for e, t in tensors.items() if e != name}
    return {**state, "tensors": tensors}


BAD = {
    "no state": (lambda s: {"a": 1}, "no state of a memory in the format 'odedm.memory/5'; 'None' was given"),
    "no table": (lambda s: [1], "'list' was given"),
    "another version": (lambda s: changed(s, "schema", "odedm.memory/9"), "'odedm.memory/9' was given"),
    "no tensors": (lambda s: changed(s, "tensors", 3), "no state of a memory"),
    "no memory": (lambda s: changed(s, "memory", {"name": "x"}), "must be one of reservoir, native, odedm"),
    "strange setting": (lambda s: changed(s, "memory", {**s["memory"], "x": 1}), "has 'x', which this version"),
    "other settings": (lambda s: changed(s, "memory", {**s["memory"], "k": 3}), "other settings: k=3 there, 2 here"),
    "other capacity": (lambda s: changed(s, "memory", {**s["memory"], "capacity": 31}), r"where torch.float32 \[[23]"),
    "lacks": (lambda s: {n: v for n, v in s.items() if n != "tasks"}, "it lacks one of"),
    "tasks": (lambda s: changed(s, "tasks", -1), "number of tasks is no whole number"),
    "seen": (lambda s: changed(s, "seen", "many"), "number of rows seen is no whole number"),
    "early": (lambda s: changed(s, "seen", 3), "rows of no time"),
    "format": (lambda s: changed(s, "format", {"numpy": True}), "columns are not listed"),
    "fields": (lambda s: changed(s, "format", {"numpy": False, "fields": [["image", [2], "complex"]] * 2}), "a column"),
    "names": (
        lambda s: changed(s, "format", {"numpy": False, "fields": [*s["format"]["fields"], ["key", [], "int64"]]}),
        "names that they cannot have",
    ),
    "generator": (lambda s: with_tensor(s, "generator.draw", lambda t: None), "generator 'draw' is missing"),
    "generator's state": (lambda s: with_tensor(s, "generator.draw", lambda t: t[:9]), "'draw' has no such state"),
    "missing": (lambda s: with_tensor(s, "host.image", lambda t: None), "'host.image' is missing"),
    "shape": (lambda s: with_tensor(s, "host.image", lambda t: t[:, :2]), "'host.image' is torch.float32"),
    "type": (lambda s: with_tensor(s, "host.label", lambda t: t.int()), "'host.label' is torch.int32"),
    "nan": (lambda s: with_tensor(s, "host.image", lambda t: t / 0), "'host.image' holds a NaN"),
    "keys": (lambda s: with_tensor(s, "host.priority", lambda t: t + 1), "priorities that are none"),
    "prototypes": (lambda s: with_tensor(s, "host.prototype", lambda t: t - 1), "prototypes that are none"),
    "order": (lambda s: with_tensor(s, "host.order", lambda t: t * 0), "in no order"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("which", ["memory", "whole"])
def test_a_state_that_is_not_sound_is_refused_and_changes_nothing(name, which, request):
    memory = request.getfixturevalue(which)
    spoil, said = BAD[name]
    before, state = memory.rows(), spoil(memory.state_dict())
    with pytest.raises(UsageError, match=said):
        memory.load_state_dict(state)
    assert equal(before.values(), memory.rows().values())


@pytest.mark.parametrize(("spoil", "said"), [
    (lambda s: changed(s, "new_classes", ["a"]), "its new classes are not a list of labels"),
    (lambda s: changed(s, "candidates", None), "its candidates are not a list of labels"),
    (lambda s: changed(s, "candidates", s["candidates"] * 2), "there twice"),
    (lambda s: changed(s, "candidates", list(range(9))), "do not fit into the capacity"),
    (lambda s: changed(s, "candidates", [label + 9 for label in s["candidates"]]), "of another class"),
    (lambda s: with_tensor(s, "candidates.priority", lambda t: t[:1]), "'candidates.priority' is"),
])  # fmt: skip
def test_candidates_that_are_not_sound_are_refused(spoil, said, memory):
    with pytest.raises(UsageError, match=said):
        memory.load_state_dict(spoil(memory.state_dict()))


def test_collected_rows_that_are_not_sound_are_refused(whole):
    with pytest.raises(UsageError, match="'collected.own.logits' is"):
        whole.load_state_dict(with_tensor(whole.state_dict(), "collected.own.logits", lambda t: t[:3]))
    with pytest.raises(UsageError, match="'collected.image' is .* is needed"):
        whole.load_state_dict(with_tensor(whole.state_dict(), "collected.label", lambda t: None))


def test_a_state_of_another_capacity_brings_it_along(whole):
    new = DualMemory(77, k=2, candidates="task", selection=Prototypes(space="pixels"))
    new.load_state_dict(whole.state_dict())
    assert (new.capacity, len(new)) == (30, 30)


def test_files_that_are_none_of_ours_are_refused(whole, tmp_path):
    path = whole.save(tmp_path / "memory.safetensors")
    content = path.read_bytes()
    spoiled = tmp_path / "spoiled"
    for bad in (b"", b"x" * 99, content[:-1], content[:50], pickle.dumps(whole)):
        spoiled.write_bytes(bad)
        with pytest.raises(UsageError, match="is no (saved memory|memory that can be loaded)"):
            DualMemory.load(spoiled)
    with safe_open(path, "pt") as file:
        head, tensors = file.metadata()["odedm"], {name: file.get_tensor(name) for name in file.keys()}
    plain = json.loads(head)

    def metadata_of(head: str) -> dict[str, str]:
        return {"odedm": head, "checksum": archive_checksum(head, tensors)}

    for metadata in (None, {}, *map(metadata_of, ("[", "[" * 10**5, "{}", "3", json.dumps(plain | {"more": 1})))):
        save_file(tensors, spoiled, metadata)
        with pytest.raises(UsageError, match="is no (saved memory|memory that can be loaded)"):
            DualMemory.load(spoiled)
    for change in ({"seed": -1}, {"seed": "x"}, {"schema": "x"}, {"memory": None}, {"device": []}, {"format": 7}):
        save_file(tensors, spoiled, metadata_of(json.dumps(plain | change)))
        if change == {"device": []}:
            DualMemory.load(spoiled)  # of another kind: generators anew
            continue
        with pytest.raises(UsageError):
            DualMemory.load(spoiled)
    with pytest.raises(UsageError, match="There is no file .*nothing.*DualMemory.save has written"):
        DualMemory.load(tmp_path / "nothing")
    with pytest.raises(UsageError, match="holds no saved memory"):
        DualMemory.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a regular file"):
        DualMemory.load(tmp_path / "pipe")


def test_a_file_is_written_whole_or_not_at_all(whole, tmp_path, monkeypatch):
    path = whole.save(tmp_path / "memory.safetensors")
    content = path.read_bytes()
    step(whole, 6)

    def fail(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(UsageError, match="Cannot write '.*': Input/output error. Mend that"):
            whole.save(path)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == [path.name]
    with pytest.raises(UsageError, match="Cannot write the memory to"):
        whole.save(path / "below a file")
