"""Makes features of rows: what there is to embed, and what embeds it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from odedm.core.errors import UsageError, describe_error, short_repr
from odedm.core.plain_data import json_hash
from odedm.core.plugin_modules import object_in_file, source_hash
from odedm.core.plugins import check_name
from odedm.core.registry import NETS
from odedm.data.contents import OnProgress
from odedm.data.images import Array
from odedm.data.importer import no_progress
from odedm.data.opening import load_dataset
from odedm.nets.backbones import PRETRAINED, LibraryNet, Preprocessing
from odedm.nets.base import evaluating
from odedm.nets.build import build, configure, pick
from odedm.stream.class_schedule import default_tasks
from odedm.stream.dataset import Dataset, as_class_labels, from_arrays

SENTENCES = "sentence-transformers:"
"""How the name of a model of sentence-transformers begins, a folder or a name in its cache."""
Rows = Tensor | Sequence[str]


@dataclass(frozen=True)
class Embedder:
    """Gives features [n, d] of some rows; `origin` says what it is, plain data in which another one differs."""

    embed: Callable[[Any], Any]
    origin: dict[str, Any]

    def __call__(self, rows: Rows) -> Array:
        """Return features as float32, checked."""
        try:
            features = self.embed(rows)
        except UsageError:
            raise
        except Exception as error:  # a network of anyone's may raise what it likes
            raise UsageError(f"{self.origin['net']} does not take these rows: {describe_error(error)}.") from error
        array = np.asarray(features.detach().cpu() if isinstance(features, Tensor) else features, np.float32)
        if array.ndim != 2 or len(array) != len(rows) or not np.isfinite(array).all():
            raise UsageError(
                f"{self.origin['net']} must give one vector of finite numbers a row, [{len(rows)}, d]; it gave "
                f"{list(array.shape)}."
            )
        return array


@dataclass(frozen=True)
class Source:
    """Rows to be embedded, with their labels as numbers."""

    name: str
    rows: Rows
    label: Array
    test_rows: Rows
    test_label: Array
    class_names: tuple[str, ...]
    tasks: int
    checksum: str

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Return the shape of a row; None of texts."""
        return tuple(self.rows.shape[1:]) if isinstance(self.rows, Tensor) else None

    @property
    def parts(self) -> tuple[Rows, Rows]:
        """Return training and test rows."""
        return self.rows, self.test_rows


def source_of(data: Any, test: Any = None, on_progress: OnProgress = no_progress) -> Source:
    """Return the rows of a data set, its name or path; or of a pair of rows of any kind and labels."""
    if isinstance(data, tuple) and len(data) == 2:
        return _texts(data, test)
    if not isinstance(data, Dataset):
        data = load_dataset(data, on_progress=on_progress)
    if data.task is not None:
        raise UsageError("A data set that is a stream in its own order keeps it no longer as features: embed its rows.")
    labels, tests = data.label.numpy(), data.test_label.numpy()
    return Source(data.name, data.image, labels, data.test_image, tests, data.class_names, data.tasks, data.checksum)


def _texts(data: tuple[Any, Any], test: tuple[Any, Any] | None) -> Source:
    """Return rows of any kind in lists; without a test part a fifth of each class is held out."""
    pairs = [data] if test is None else [data, test]
    rows, labels = [], []
    for given, label in pairs:
        rows.append(list(given))
        labels.append(as_class_labels(label))
        if len(rows[-1]) != len(labels[-1]):
            raise UsageError(f"There are {len(rows[-1])} rows and {len(labels[-1])} labels; give one label a row.")
    index = [np.arange(len(label), dtype=np.float32)[:, None] for label in labels]
    split = from_arrays(index[0], labels[0], tasks=1, test=None if test is None else (index[1], labels[1]))
    train = [rows[0][int(i)] for i in split.image[:, 0]]
    tested = [rows[-1][int(i)] for i in split.test_image[:, 0]]
    checksum = json_hash([[train, tested], split.label.tolist(), split.test_label.tolist()])
    numbers, tests, tasks = split.label.numpy(), split.test_label.numpy(), default_tasks(split.classes)
    return Source("texts", train, numbers, tested, tests, split.class_names, tasks, checksum)


def embedder_of(
    net: Any, shape: tuple[int, ...] | None, weights: str, size: int | None, device: torch.device
) -> Embedder:
    """Return what makes features of rows of a shape, None for texts, on a device."""
    if isinstance(net, str) and net.startswith(SENTENCES):
        return _sentences(net, weights, device)
    if not isinstance(net, str | nn.Module):
        if not callable(net):
            raise UsageError(f"net must be a name, an nn.Module or a function of rows; {short_repr(net)} was given.")
        origin = {"net": getattr(net, "__qualname__", type(net).__name__), "code": source_hash(net)}
        return Embedder(net, origin)
    if shape is None:
        raise UsageError(f"Texts are embedded by '{SENTENCES}NAME' or a function; {short_repr(net)} was given.")
    prepare = Preprocessing(size)
    if isinstance(net, nn.Module):
        title, module, function = type(net).__name__, net, net.__call__
    else:
        title = pick(check_name("net", net, NETS, ("auto",)), shape)
        factory = NETS[title].load()
        if isinstance(factory, LibraryNet):
            published = factory.preprocessing()
            prepare = replace(published, size=size or published.size)
        sides = (prepare.size, prepare.size) if prepare.size and len(shape) == 3 else shape[1:]
        planes = max(shape[0], len(prepare.mean)) if len(shape) == 3 else shape[0]
        built = build(title, (planes, *sides), 2, seed=0, options=_options(title, (planes, *sides), weights))
        module, function = built, built.features
    module = module.to(device)
    constants = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(prepare).items()}  # as JSON has them

    def features(rows: Tensor) -> Tensor:
        with evaluating(module):
            output: Tensor = function(prepare(rows.to(device)))
            return output

    return Embedder(
        features, {"net": title, "weights": weights_hash(module), "transform": constants if len(shape) == 3 else {}}
    )


def _options(name: str, shape: tuple[int, ...], weights: str) -> dict[str, Any]:
    if weights == PRETRAINED:
        return {"weights": weights}
    if not weights:
        raise UsageError(
            f"The net '{name}' would embed by fresh weights, which are random: give weights, a safetensors file, or "
            f"'{PRETRAINED}' to let its library load its own (--weights)."
        )
    return configure(name, shape, 2, {"weights": weights})


def _sentences(net: str, weights: str, device: torch.device) -> Embedder:
    """Return a model of sentence-transformers, from this machine alone unless weights="pretrained" asks the network."""
    try:
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(
            net.removeprefix(SENTENCES), device=str(device), local_files_only=weights != PRETRAINED
        )
    except Exception as error:  # the library may raise what it likes
        raise UsageError(
            f"'{net}' cannot be had here: {describe_error(error)}. Install sentence-transformers, and give a folder or "
            f"a model that is here already, or weights='{PRETRAINED}' (--weights {PRETRAINED}) to download it."
        ) from error

    def features(texts: Sequence[str]) -> Array:
        array: Array = model.encode(list(texts), batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True)
        return array

    return Embedder(features, {"net": net, "weights": weights_hash(model)})


def weights_hash(module: nn.Module) -> str:
    """Return a hash of all weights of a network."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in module.state_dict().items():
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def find_net(net: Any) -> Any:
    """Return a network as it was given, or of a file, "mine.py:features"."""
    return object_in_file(net) if isinstance(net, str) and ".py:" in net else net


def embed_rows(embedder: Embedder, rows: Rows, batch: int) -> Array:
    """Return the features of rows, so many at once."""
    return np.concatenate([embedder(rows[start : start + batch]) for start in range(0, len(rows), batch)])
