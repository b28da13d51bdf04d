"""The live memory, for a training loop of one's own: add rows, draw rows, keep prototypes of what is over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from odedm.core.accel.device import enough_memory
from odedm.core.errors import UsageError, unknown_name_error
from odedm.core.row_folder import RowFolder
from odedm.core.row_schema import RowSchema
from odedm.core.rows import Task, count
from odedm.core.tensor_archive import packed, unpacked
from odedm.core.validators import Int
from odedm.memory import live_state
from odedm.memory.buffer import TaskEndBuffer
from odedm.memory.callback_view import Annotate, CallbackModelView, Embed, class_list
from odedm.memory.changing import Changing
from odedm.memory.dual import DualBuffer
from odedm.memory.live_folder import new_folder, open_folder, save_in_folder
from odedm.memory.live_rows import LiveRows, as_device
from odedm.memory.merge import check_mergeable, merge_buffers
from odedm.memory.open_stream import INDEX, OF_METHODS, TASK, Generators, empty_dual, generators, quota_of, settle
from odedm.memory.settings import ODEDM, MemorySettings
from odedm.selection.flat_settings import FLAT


class DualMemory(LiveRows):
    """The live memory for a loop of your own: a short-term sample of the stream, and prototypes that stay for good.

    Rows are vectors or images with whole numbers as labels, numpy's or torch's, and come back as they were given.
    Columns beyond these are whatever the first `add` has. `from_config` makes one of a configuration, of which
    replay and gamma say nothing here: there is no method, and the loop draws from the part that it names. One thread
    at a time may use it. An interrupt in the midst of a change makes it refuse all that is asked of it afterwards.

    Args:
        capacity: rows in all (λ), short-term and long-term together.
        rho: at most this share of them is long-term, shared equally by the classes consolidated so far; when a class
            joins, the others lose their last prototypes. 0.25 unless k is given.
        k: prototypes of each class, in the place of rho; what does not fit is refused. 0 keeps a plain reservoir.
        seed: the same seed and the same calls give the same memory.
        device: where the rows are kept; draws come from there.
        storage: a folder to keep images and columns in, as files that are mapped into memory: for more rows than fit
            into RAM. Labels and some 40 bytes a row stay in RAM. `save` without a path makes what is there a consistent
            point, to which `load` of the folder returns even if the process is killed meanwhile.
        settings: the others of `odedm.ODEDM`: selection, candidates, rows_per_prototype, short_policy,
            policy_options. Prototypes are chosen among the short-term rows of their class, and move; with candidates=N
            among N rows of each class that count inside λ, as long as half of the rows that are not long-term have room
            for them; with candidates="task" among all rows since the last call, a second store that grows until then.

    >>> import numpy as np
    >>> from odedm import Prototypes
    >>> memory = DualMemory(capacity=20, k=2, selection=Prototypes(space="pixels"), seed=0)
    >>> memory.add(np.random.default_rng(0).random((60, 8)), np.arange(60) % 3)
    >>> memory.end_task()
    >>> memory
    <DualMemory of 20 rows, k=2: 14 short-term, 6 long-term>
    >>> memory.sample(4, part="long")["images"].shape
    (4, 8)
    """

    def __init__(
        self,
        capacity: int = 100,
        *,
        rho: float | None = None,
        k: int | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        storage: str | Path | None = None,
        **settings: Any,
    ) -> None:
        known = [field.name for field in fields(ODEDM) if field.name not in OF_METHODS]
        for name in settings:
            if name in FLAT:
                raise UsageError(f"{name} belongs to the selection: selection=odedm.Prototypes(…), say.")
            if name not in known:
                raise unknown_name_error("setting of a live memory", name, [*known, "seed", "device", "storage"])
        self._begin(ODEDM(capacity, rho=rho, k=k, **settings), seed, device)
        self._folder = new_folder(storage, self.device)

    @classmethod
    def from_config(
        cls,
        configuration: Any,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        storage: str | Path | None = None,
    ) -> DualMemory:
        """Make the memory of a configuration.

        Args:
            configuration: `odedm.ODEDM`, `odedm.Reservoir` or `odedm.Native`; a number is the capacity of an `ODEDM`.
            seed: the same seed and the same calls give the same memory.
            device: where the rows are kept.
            storage: a folder to keep them in.

        >>> DualMemory.from_config(ODEDM(200, k=6))
        <DualMemory of 200 rows, k=6: 0 short-term, 0 long-term>
        """
        memory = cls.__new__(cls)
        memory._begin(configuration, seed, device)
        memory._folder = new_folder(storage, memory.device)
        return memory

    def _begin(self, configuration: Any, seed: int, device: torch.device | str) -> None:
        self.settings: MemorySettings = settle(configuration)
        self.seed = Int().validate("seed", seed)
        self.device = as_device(device)
        self.tasks = 0
        """How many tasks have ended."""
        self._rngs = generators(self.seed, self.device)
        self._schema: RowSchema | None = None
        self._dual: DualBuffer | None = None
        self._new_classes: dict[int, None] = {}  # since the last call of end_task, by arrival
        self._broken = ""  # why it is of no use any more
        self._worker_seed: int | None = None
        self._folder: RowFolder | None = None
        self._slots = None

    @enough_memory()
    def add(self, images: Any, labels: Any = None, **columns: Any) -> None:
        """See rows of the stream, each once: a batch after the update it led to, say.

        Args:
            images: vectors [n, d], images or token sequences, [n, …] of any type, finite.
            labels: their classes [n], whole numbers; none where rows have no classes.
            columns: what else belongs to a row (logits, times, weights …), [n, …] each; the same at every call.

        >>> memory = DualMemory(5)
        >>> memory.add(torch.zeros(8, 2), torch.arange(8), logits=torch.zeros(8, 3))
        >>> sorted(memory.rows())
        ['images', 'labels', 'logits', 'prototype']
        """
        self._check_sound()
        if self._schema is None:
            schema, rows = RowSchema.of_rows(images, labels, columns)
        else:
            schema, rows = self._schema, self._schema.read_rows(images, labels, columns)
        dual, rngs, first = self._dual, self._rngs, self._dual is None
        if dual is None:  # what is refused leaves not even a generator moved
            rngs = {name: rng.clone_state() for name, rng in rngs.items()}
            dual = self._empty(schema, rngs)
        rows = {name: column.to(self.device) for name, column in rows.items()}
        if INDEX.name in dual.columns:
            rows[INDEX.name] = dual.buffer.num_seen + torch.arange(count(rows), device=self.device)
        if TASK.name in dual.columns:
            rows[TASK.name] = torch.full_like(rows["label"], self.tasks)
        new = dict.fromkeys(rows["label"].tolist()) if dual.selector or dual.pool else {}
        with Changing(self, later=first) as changing:
            dual.join([*new])
            dual.add(rows, CallbackModelView(schema), rng=rngs["memory"])
            changing.begin()
            self._rngs, self._schema, self._dual = rngs, schema, dual
            self._new_classes |= new

    def _empty(self, schema: RowSchema, rngs: Generators) -> DualBuffer:
        if self._folder is None:
            return empty_dual(self.settings, schema, self.device, rngs)
        dual = empty_dual(self.settings, schema, self.device, rngs, capacity=0)
        live_state.move_to_disk(dual, schema, self._folder)
        dual.buffer.resize(self.settings.capacity)
        return dual

    def end_task(
        self, classes: Iterable[int] | None = None, *, embed: Embed | None = None, annotate: Annotate | None = None
    ) -> None:
        """End a task: keep prototypes of its classes for good.

        A class that has prototypes already is chosen anew, among them and its rows since. What is refused changes
        nothing.

        Args:
            classes: the labels to consolidate; unless given, those that came since the last call, as far as the memory
                has a row of them.
            embed: from raw images, of the kind that was added, to features [n, d]; a module is put into evaluation
                mode meanwhile. Not needed with space="pixels" and by memories that pin nothing.
            annotate: from images to a table of columns, to take the place of what prototypes had in the stream (their
                logits by the network of now, say).
        """
        schema, dual = self._known()
        view = CallbackModelView(schema, embed, annotate)
        new, rows = list(self._new_classes), dual.pool.rows() if dual.pool else {}
        ending = dual.with_rows(new) if classes is None else class_list(classes)
        with Changing(self, later=True) as changing:
            self._pin(ending, view, changing)
            if isinstance(dual.buffer, TaskEndBuffer) and new:
                task = Task(self.tasks, self.tasks + 2, tuple(new), rows)
                dual.buffer.end_task(task, view, rng=self._rngs["memory borders"])
            dual.forget_candidates(new)
            self._new_classes.clear()
            self.tasks += 1

    def consolidate(
        self, classes: Iterable[int] | int, *, embed: Embed | None = None, annotate: Annotate | None = None
    ) -> None:
        """Keep prototypes of some classes for good, as `end_task` does, while what was collected of others stays.

        Args:
            classes: the labels.
            embed: from images to features.
            annotate: from images to new values of columns.
        """
        schema, dual = self._known()
        if isinstance(dual.buffer, TaskEndBuffer):
            raise UsageError("This memory's policy chooses rows when a task ends: call end_task instead.")
        labels = class_list(classes)
        with Changing(self, later=True) as changing:
            self._pin(labels, CallbackModelView(schema, embed, annotate), changing)

    def _pin(self, classes: list[int], view: CallbackModelView, changing: Changing) -> None:
        """Pin prototypes of all these classes, or of none and say why."""
        _, dual = self._known()
        # rows bring along what they had in the stream, in the place of which `annotate` gives new values
        asked = replace(view, annotation=None)
        how: dict[str, Any] = {"annotate": view.annotate, "all_or_nothing": True, "on_change": changing.begin}
        outcome = dual.consolidate(classes, asked, **how)
        if outcome.missing:
            came = ", ".join(map(str, self._new_classes)) or "none"
            raise UsageError(
                f"There are no rows of class {outcome.missing[0]} to choose from; since the last call came {came}."
            )
        if outcome.error:
            raise outcome.error
        changing.begin()  # where nothing is ever pinned it has not begun
        for label in classes:
            self._new_classes.pop(label, None)

    def release(self, labels: Iterable[int] | int) -> int:
        """Forget the prototypes of some classes; their room goes back to the short-term part.

        Args:
            labels: the classes.

        Returns:
            How many rows that were.
        """
        classes = class_list(labels)
        self._check_sound()
        with Changing(self):
            return self._dual.release(classes) if self._dual else 0

    def resize(self, capacity: int) -> None:
        """Give the memory another number of rows: short-term rows go at random, prototypes only as rho says.

        Args:
            capacity: rows in all (λ). One that cannot hold what is pinned by k is refused.
        """
        settings = replace(self.settings, capacity=Int(1).validate("capacity", capacity))
        self._check_sound()
        with Changing(self, later=True) as changing:
            if self._dual:
                self._dual.resize(settings.capacity, quota_of(settings), changing.begin)
            self.settings = settings

    def merge(self, other: DualMemory) -> None:
        """Take in the rows of another machine's memory, which stays as it is.

        The short-term part is then a uniform sample of both streams, as if one memory had seen both. Prototypes of both
        stay, as far as a class may have so many: of one that has some in both the first of each come first.

        Args:
            other: of the same settings and columns, with another seed and no fewer rows of capacity; both with
                short_policy="reservoir" and without candidates.
        """
        check_mergeable(self, other)
        (_, mine), (_, theirs) = self._known(), other._known()
        with Changing(self):
            merge_buffers(mine, theirs)
            self.tasks += other.tasks
            self._new_classes |= other._new_classes

    def state_dict(self) -> dict[str, Any]:
        """Return everything as tensors and plain values, safe for `torch.save` and for reading with weights_only."""
        self._check_sound()
        if self._folder is not None:
            raise UsageError(
                f"The rows of this memory are files in '{self._folder.path}', which no state holds: call save()."
            )
        return live_state.capture(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the memory was of which this is the state: bit for bit on the same kind of device.

        Args:
            state: from `state_dict` of a memory with the same settings; the capacity may differ.
        """
        live_state.restore(self, state)

    def save(self, path: str | Path | None = None) -> Path:
        """Write everything to one safetensors file, whole or not at all; with storage make a consistent point there.

        Args:
            path: where to; a file that is there is replaced, and folders on the way are made. With storage none is
                given: the rows are in the folder already.

        Returns:
            The path.
        """
        if self._folder is None:
            if path is None:
                raise UsageError("save needs a path: where to write the memory.")
            return live_state.write(self.state_dict(), Path(path))
        return save_in_folder(self, self._folder, path)

    @classmethod
    @enough_memory()
    def load(cls, path: str | Path, *, device: torch.device | str = "cpu") -> DualMemory:
        """Return the memory that was saved; a file of anyone's can be read without harm.

        Args:
            path: of the file, or of the folder that was given as storage.
            device: where the rows are to be kept.

        Returns:
            A memory that goes on as the saved one would have.
        """
        if Path(path).is_dir():
            return open_folder(cls, Path(path), device)
        state = live_state.read(Path(path))
        if state["generation"] is not None:
            raise UsageError(f"The rows of '{path}' are files beside it: load the folder '{Path(path).parent}'.")
        memory = cls.from_config(live_state.settings_in(state), seed=state["seed"], device=device)
        memory.load_state_dict(state)
        return memory

    def close(self) -> None:
        """Let another process have the folder of a memory with storage; what came after the last save is dropped."""
        if self._folder is not None:
            self._folder.close()
            self._dual = None

    def __getstate__(self) -> dict[str, Any]:
        if self._folder is not None:
            raise UsageError(
                "A memory with storage is not copied into another process: load its folder there once this one has "
                "closed it, or let workers be forked."
            )
        return {"state": packed(self.state_dict()), "device": str(self.device)}

    def __setstate__(self, stored: dict[str, Any]) -> None:
        state = unpacked(stored["state"])
        self._begin(live_state.settings_in(state), state["seed"], stored["device"])
        self.load_state_dict(state)
