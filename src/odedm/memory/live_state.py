"""A live memory as tensors and plain values, and as one file; what comes back is believed only after a look at it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from odedm.core.errors import InvalidFileError, UsageError, require
from odedm.core.files import write_for_user
from odedm.core.plain_data import differences
from odedm.core.rng import derive_seed
from odedm.core.row_folder import RowFolder
from odedm.core.row_schema import LABEL, RESERVED_COLUMNS, TYPES, USER_PREFIX, RowSchema, public
from odedm.core.rows import ColumnSpec, Rows
from odedm.core.store import Store
from odedm.core.tensor_archive import read_archive, write_archive
from odedm.core.validators import LARGEST
from odedm.memory.buffer import Buffer
from odedm.memory.candidate_pool import CandidatePool, ClassReservoirPool, TaskPool
from odedm.memory.changing import Changing
from odedm.memory.dual import DualBuffer
from odedm.memory.open_stream import OF_METHODS, PURPOSES, Generators, empty_dual, generators
from odedm.memory.settings import MemorySettings, NoMemory, memory_from_dict, memory_to_dict

if TYPE_CHECKING:
    from odedm.memory.live import DualMemory

SCHEMA = "odedm.memory/5"
PLAIN = ("schema", "memory", "seed", "device", "tasks", "format", "seen", "new_classes", "candidates", "generation")


def capture(memory: DualMemory) -> dict[str, Any]:
    """Return the whole state: plain values, and copies of all tensors on the CPU but those that are files."""
    tensors = {f"generator.{name}": rng.get_state() for name, rng in memory._rngs.items()}
    state: dict[str, Any] = {
        "schema": SCHEMA,
        "memory": memory_to_dict(memory.settings),
        "seed": memory.seed,
        "device": memory.device.type,
        "tasks": memory.tasks,
        "format": None,
        "seen": 0,
        "new_classes": [*memory._new_classes],
        "candidates": None,
        "generation": None,
    }
    if memory._schema and memory._dual:
        schema, buffer, pool = memory._schema, memory._dual.buffer, memory._dual.pool
        fields = [[field.name, list(field.shape), str(field.dtype).removeprefix("torch.")] for field in schema.columns]
        layout = {"numpy": schema.numpy, "labelled": schema.labelled, "fields": fields}
        state |= {"format": layout, "seen": int(buffer.num_seen)}
        tensors |= stored("host", buffer.store)
        if isinstance(pool, TaskPool):
            tensors |= {f"collected.{name}": column for name, column in pool.rows().items()}
        elif isinstance(pool, ClassReservoirPool):
            state["candidates"] = pool.classes()
            tensors |= stored("candidates", pool.store)
    return state | {"tensors": {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}}


def stored(name: str, store: Store) -> dict[str, Tensor]:
    """Return the tensors of a store by name, without those that are mapped from files."""
    return {f"{name}.{title}": column for title, column in in_memory(store).items()}


def in_memory(store: Store) -> Rows:
    """Return the columns and priorities of a store that are not mapped from files."""
    mapped = store.folder.columns if store.folder else {}
    return {
        **{name: column for name, column in store.columns.items() if name not in mapped},
        "priority": store.priority,
    }


def settings_in(state: Mapping[str, Any]) -> MemorySettings:
    """Return the configuration of the memory that a state is of."""
    if not isinstance(state, Mapping) or state.get("schema") != SCHEMA or not isinstance(state.get("tensors"), Mapping):
        given = str(state.get("schema"))[:60] if isinstance(state, Mapping) else type(state).__name__
        raise UsageError(f"This is no state of a memory in the format '{SCHEMA}'; '{given}' was given.")
    kept = memory_from_dict(state.get("memory"))
    if isinstance(kept, NoMemory):
        raise UsageError("This is the state of no memory: nothing can be kept in one.")
    return kept


def restore(memory: DualMemory, state: Mapping[str, Any]) -> None:
    """Put a state into a memory of the same settings; one that does not fit is refused and changes nothing."""
    settings = settings_in(state)
    mine, theirs = (
        {name: value for name, value in memory_to_dict(config).items() if name not in {"capacity", *OF_METHODS}}
        for config in (memory.settings, settings)
    )
    other = differences(mine, theirs)
    if other:
        theirs_differ, mine_differ = other[0]
        raise UsageError(
            f"The state is of a memory with other settings: {theirs_differ} there, {mine_differ} here. "
            "Build the memory as that one was built."
        )
    try:
        require(all(name in state for name in PLAIN), f"it lacks one of {', '.join(PLAIN)}")
        seed, tasks = _number(state["seed"], "seed"), _number(state["tasks"], "number of tasks")
        rngs = _generators(seed, _number(state["seen"], "number of rows seen"), memory.device, state)
        new_classes = dict.fromkeys(_labels(state["new_classes"], "its new classes"))
        schema, dual = None, None
        if state["format"] is not None:
            schema = _schema(state["format"])
            dual = empty_dual(settings, schema, memory.device, rngs, capacity=0)
            if memory._folder is not None:
                move_to_disk(dual, schema, memory._folder, settings.capacity)
            restore_parts(dual.buffer, dual.pool, settings.capacity, state)
    except InvalidFileError as error:
        raise UsageError(f"The state of a memory cannot be used: {error}.") from error
    with Changing(memory):
        memory.settings, memory.seed, memory.tasks = settings, seed, tasks
        memory._rngs, memory._schema, memory._dual, memory._new_classes = rngs, schema, dual, new_classes


def _labels(value: Any, name: str) -> list[int]:
    sound = isinstance(value, list) and all(type(label) is int and abs(label) <= LARGEST for label in value)
    require(sound, f"{name} are not a list of labels")
    require(len({*value}) == len(value), f"a class of {name} is there twice")
    return list(value)


def _number(value: Any, name: str) -> int:
    require(type(value) is int and 0 <= value <= LARGEST, f"its {name} is no whole number")
    number: int = value
    return number


def _generators(seed: int, seen: int, device: torch.device, state: Mapping[str, Any]) -> Generators:
    """Return generators that go on where they were; on another kind of device new ones, other than at the start."""
    same = state["device"] == device.type
    rngs = generators(seed if same else derive_seed(seed, f"on {device.type} after {seen}"), device)
    for name, rng in rngs.items():
        stored = state["tensors"].get(f"generator.{name}")
        require(isinstance(stored, Tensor), f"the generator '{name}' is missing")
        if same or not PURPOSES[name]:
            try:
                rng.set_state(stored)
            except (RuntimeError, TypeError) as error:
                raise InvalidFileError(f"the generator '{name}' has no such state") from error
    return rngs


def _schema(plain: Any) -> RowSchema:
    """Return the columns of rows, as anyone may have written them."""
    require(isinstance(plain, Mapping) and isinstance(plain.get("numpy"), bool), "its columns are not described")
    listed = plain.get("fields")
    require(isinstance(listed, list) and len(listed) >= 2, "its columns are not listed")
    fields = []
    for entry in listed:
        sound = isinstance(entry, list) and len(entry) == 3 and isinstance(entry[0], str) and isinstance(entry[1], list)
        require(
            sound and isinstance(entry[2], str) and entry[2] in TYPES, "a column is not named with its shape and type"
        )
        name, shape, dtype = entry
        require(all(type(side) is int and 0 <= side <= LARGEST for side in shape), f"the shape of '{name}' is none")
        fields.append(ColumnSpec(name, tuple(shape), TYPES[dtype]))
    names = [field.name for field in fields]
    require(
        names[0] == "image" and fields[1] == LABEL and fields[0].shape, "images and labels are not its first columns"
    )
    users = [name for name in names[2:] if name.startswith(USER_PREFIX) and public(name) not in RESERVED_COLUMNS]
    require(users == names[2:] and len(set(users)) == len(users), "its columns have names that they cannot have")
    require(isinstance(plain.get("labelled"), bool), "nobody knows whether its rows have labels")
    return RowSchema(tuple(fields), None, plain["numpy"], plain["labelled"])


def restore_parts(host: Buffer, pool: CandidatePool | None, capacity: int, state: Mapping[str, Any]) -> None:
    """Put the rows of a state, as anyone may have written it, into empty parts. Raises `InvalidFileError`."""
    tensors = dict(state["tensors"])
    if isinstance(pool, ClassReservoirPool):
        _restore_reservoirs(pool, capacity, state["candidates"], tensors)
    room = capacity - (pool.reserved() if pool else 0)
    restore_store(host, room, tensors, "host", state["seen"])
    task = host.rows()["task"] if "task" in host.store.columns else torch.zeros(0)
    require(bool(((task >= 0) & (task < state["tasks"])).all()), "its rows are of tasks that have not ended")
    if isinstance(pool, TaskPool):
        columns = pool.rows()
        collected = {name: tensors.get(f"collected.{name}") for name in columns}
        amount = len(collected["label"]) if isinstance(collected["label"], Tensor) and collected["label"].dim() else 0
        for name, column in columns.items():
            _check(collected[name], (amount, *column.shape[1:]), column.dtype, f"collected.{name}")
        task = tensors.get("collected.task", torch.zeros(0))
        require(bool((task == state["tasks"]).all()) or "task" not in columns, "it has collected rows of another task")
        pool.insert({name: tensors[f"collected.{name}"].to(column.device) for name, column in columns.items()})


def _restore_reservoirs(pool: ClassReservoirPool, capacity: int, listed: Any, tensors: Mapping[str, Any]) -> None:
    labels = _labels(listed, "its candidates")
    rows = pool.per_class * len(labels)
    require(rows <= capacity, "its candidates do not fit into the capacity")
    _check_columns(pool.store, rows, tensors, "candidates")
    priority, label = tensors["candidates.priority"], tensors["candidates.label"]
    held = (priority >= 0) & (priority < 1)
    require(bool((held | (priority == -math.inf)).all()), "candidates have priorities that are none")
    of_compartment = torch.tensor(labels, dtype=torch.int64).repeat_interleave(pool.per_class)
    require(label[held].equal(of_compartment[held]), "candidates are of another class than they should be")
    pool.join(labels)
    _fill(pool.store, tensors, "candidates")


def restore_store(memory: Buffer, capacity: int, tensors: Mapping[str, Any], name: str, seen: int) -> None:
    """Put the rows of one store; their shapes are checked before as much memory is taken."""
    _check_columns(memory.store, capacity, tensors, name)
    priority = tensors[f"{name}.priority"]
    short, long = (priority >= 0) & (priority < 1), priority == math.inf
    require(bool((short | long | (priority == -math.inf)).all()), f"{name} has priorities that are none")
    rank, order = tensors[f"{name}.prototype"], tensors[f"{name}.order"]
    require(bool((rank[long] >= 0).all() and (rank[short] == -1).all()), f"{name} has prototypes that are none")
    amount = int(long.sum())
    require(order[long].sort().values.equal(torch.arange(amount)), f"the prototypes of {name} are in no order")
    require(bool(((order[short] >= 0) & (order[short] < max(seen, 1))).all()), f"{name} has rows of no time")
    memory.resize(capacity)
    _fill(memory.store, tensors, name)
    memory.num_seen.fill_(seen)
    memory._short, memory._long = int(short.sum()), amount


def _check_columns(store: Store, rows: int, tensors: Mapping[str, Any], name: str) -> None:
    for title, column in in_memory(store).items():
        _check(tensors.get(f"{name}.{title}"), (rows, *column.shape[1:]), column.dtype, f"{name}.{title}")


def _fill(store: Store, tensors: Mapping[str, Any], name: str) -> None:
    for title, column in in_memory(store).items():
        column.copy_(tensors[f"{name}.{title}"])


def _check(tensor: Any, shape: tuple[int, ...], dtype: torch.dtype, name: str) -> None:
    require(isinstance(tensor, Tensor) and tensor.is_cpu, f"'{name}' is missing")
    same = tuple(tensor.shape) == shape and tensor.dtype == dtype and tensor.layout == torch.strided
    require(same, f"'{name}' is {tensor.dtype} {list(tensor.shape)} where {dtype} {list(shape)} is needed")
    if tensor.is_floating_point() and not name.endswith(".priority"):
        require(bool(tensor.isfinite().all()), f"'{name}' holds a NaN or an infinity")


def move_to_disk(dual: DualBuffer, schema: RowSchema, folder: RowFolder, saved_capacity: int | None = None) -> None:
    """Keep what users gave, all but labels, in the files of a folder; saved ones must be there and long enough."""
    names = [name for name in schema.names if name != LABEL.name]
    specs = [spec for spec in dual.buffer.store.fields if spec.name in names]
    if saved_capacity is not None:
        folder.check_files(specs, saved_capacity)
    dual.buffer.store.move_to(folder, names)


def write(state: Mapping[str, Any], path: Path) -> Path:
    """Write a state as one file: an archive whose head is the plain values."""
    head = {name: state[name] for name in PLAIN}
    return write_for_user("memory", path, lambda given: write_archive(given, head, state["tensors"]))


def read(path: Path) -> dict[str, Any]:
    """Return the state in a file of anyone's; the tensors are plain numbers, whatever else it is."""
    head, tensors = read_archive(path, SCHEMA, "memory", "DualMemory.save")
    if set(head) != set(PLAIN):
        raise UsageError(f"'{path}' is no memory that can be loaded: its head has not {', '.join(PLAIN)} alone.")
    return {**head, "tensors": tensors}
