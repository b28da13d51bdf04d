"""Convert stored results of this repository to today's format and names of settings.

python tools/convert_ledger.py              everything that the repository holds
python tools/convert_ledger.py FILE …       these files: *.jsonl.gz, result.json, or JSON that holds experiments

Whoever renames a setting or one of its values adds a line to `RENAMES`, runs this and commits the files. A file that
needs nothing stays as it is, byte for byte. A result keeps its numbers and the commit that made it; that is checked
before anything is written, and every file is written whole or not at all.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from odedm.core.checksums import FILE as CHECKSUMS
from odedm.core.checksums import write_checksums
from odedm.core.files import write_bytes, write_text
from odedm.results.packed import read_packed, write_packed
from odedm.results.result import SCHEMA, Result
from odedm.studies.run_store import key_of_result

ROOT = Path(__file__).resolve().parents[1]
EVERYTHING = (
    "docs/results/*.jsonl.gz",
    "src/odedm/paper/results/*.jsonl.gz",
    "docs/results/equal-tuning.json",
    "tests/results/runs/*/result.json",
    "tests/fuzz/corpus/results/*",
    "tests/fuzz/corpus/ledgers/*",
)
"""Where the repository keeps results and experiments."""

Json = dict[str, Any]
Step = Callable[[Json], None]
"""Changes a result in place, or a document that holds an `experiment`; does nothing where it was done before."""


def parents(plain: Any, path: str) -> Iterator[tuple[Json, str]]:
    """The objects that a dotted path leads into, each with the last name of the path; `*` stands for every name."""
    name, _, rest = path.partition(".")
    if name == "*":
        for value in plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ():
            yield from parents(value, rest)
    elif isinstance(plain, dict):
        if not rest:
            yield plain, name
        elif name in plain:
            yield from parents(plain[name], rest)


def rename(path: str, new: str) -> Step:
    """Call the last name of a path otherwise."""

    def step(plain: Json) -> None:
        for parent, name in parents(plain, path):
            if name in parent:
                parent[new] = parent.pop(name)

    return step


def replace(path: str, values: Mapping[Any, Any]) -> Step:
    """Put other values in the place of some."""

    def step(plain: Json) -> None:
        for parent, name in parents(plain, path):
            if isinstance(parent.get(name), str | int | float | bool | None) and parent.get(name) in values:
                parent[name] = values[parent[name]]

    return step


def drop(path: str) -> Step:
    """Remove the last name of a path."""

    def step(plain: Json) -> None:
        for parent, name in parents(plain, path):
            parent.pop(name, None)

    return step


def default(path: str, **values: Any) -> Step:
    """Add settings that an object lacks, with the values that it had without them."""

    def step(plain: Json) -> None:
        for parent, name in parents(plain, path):
            if isinstance(parent.get(name), dict):
                for setting, value in values.items():
                    parent[name].setdefault(setting, value)

    return step


def where(path: str, value: str, step: Step) -> Step:
    """A step for those alone that have this value at a path."""

    def conditional(plain: Json) -> None:
        if any(parent.get(name) == value for parent, name in parents(plain, path)):
            step(plain)

    return conditional


def from_first_format(plain: Json) -> None:
    """Separate hyper-parameters from the method's name, and move replay and its weight to the memory."""
    experiment = plain["experiment"]
    method, memory = experiment.pop("method"), experiment["memory"]
    name = method.pop("name")
    replay, gamma = experiment.pop("replay", "auxiliary"), experiment.pop("gamma", 1.0)
    native = {"fdr": "task-quota", "icarl": "herded", "puridiver": "purity"}.get(name, "reservoir")
    if memory["name"] == "native":
        memory["policy"] = memory.get("policy") or native
        if memory["policy"] == "reservoir":
            memory = {"name": "reservoir", "capacity": memory["capacity"]}
    elif memory["name"] == "odedm":
        short_policy = memory.pop("short")
        memory |= {"short_policy": native if short_policy == "native" else short_policy}
        memory |= {"replay": replay, "gamma": gamma}
        if memory["distance"] == "mmd":
            memory["distance"] = "l2"  # to centroids, and so it ranked
        elif memory["distance"] == "sinkhorn":
            sinkhorn = {"epsilon": 0.05, "pair_epsilon": 0.1, "ground": "auto"}
            memory |= {key: value for key, value in sinkhorn.items() if memory.get(key) is None}
    plain["classes"] = experiment.pop("classes")
    plain["experiment"] = {**experiment, "method": name, "options": method, "memory": memory}


def no_forgetting_of_one_task(plain: Json) -> None:
    """Leave forgetting undefined where there is one task; it was written as 0."""
    matrix = plain.get("class_il")
    if isinstance(matrix, list) and len(matrix) == 1:
        plain |= {name: None for name in ("forgetting", "backward_transfer") if plain.get(name) == 0}


ONCE: dict[int, tuple[Step, ...]] = {
    1: (from_first_format,),
    2: (
        default(
            "experiment",
            limit=None,
            task_classes=None,
            recurring=1,
            domain=None,
            shuffle=True,
            transform="data",
            optimizer="sgd",
            retrieval="uniform",
            retrieval_options={},
            epochs=1,
            updates=1,
            stream_loss=None,
            predict=None,
            views="crop",
            weight_average=None,
        ),
        where("experiment.memory.name", "native", default("experiment.memory", policy_options={})),
        where(
            "experiment.memory.name",
            "odedm",
            default(
                "experiment.memory",
                gamma_rule="fixed",
                dac_distance="sinkhorn",
                bandwidth=None,
                policy_options={},
                choose_again=False,
            ),
        ),
        where("experiment.method", "vrmcl", default("experiment.options", query_precision="same")),
        where("experiment.method", "pocl", default("experiment.options", query_precision="same")),
        no_forgetting_of_one_task,
    ),
}
"""What leads from a format to the next; done to results of this format and of earlier ones."""


def settings_of_clusters(plain: Json) -> None:
    """Say that divide-and-conquer compared all rows of clusters, and nothing of it where there was none."""
    memory = plain.get("experiment", {}).get("memory", {})
    if memory.get("name") != "odedm":
        return
    memory.setdefault("dac_sample", None)
    if memory["dac"] is None:
        memory |= {"dac_distance": None, "epsilon": None}
    elif memory["dac_distance"] == "sinkhorn" and memory["epsilon"] is None:
        memory["epsilon"] = 0.05


RENAMES: tuple[Step, ...] = (
    rename("census", "class_counts"),
    rename("provenance.outside", "plugins"),
    drop("experiment.memory.choose_again"),  # false in every run that is kept
    rename("experiment.setting", "imbalance"),
    rename("tuned.*.setting", "imbalance"),
    settings_of_clusters,
    rename("experiment.draw", "replay_batch"),
    rename("experiment.columns", "eval_classes"),
    rename("experiment.capture", "cuda_graph"),
    where("experiment.method", "er-ace", default("experiment.options", unseen=False)),
)
"""What has other names since format 3, in the order of the renames, and settings that came since: by `rename`,
`replace`, `drop` and `default` alone, which do nothing where they were done before."""


def converted(plain: Json, number: int) -> Json:
    """A result, or a document with an `experiment`, of the format with this number as one of today's."""
    plain = json.loads(json.dumps(plain))
    once = [step for origin, steps in ONCE.items() if number <= origin for step in steps]
    for step in (*once, *RENAMES):
        step(plain)
    if "schema" in plain:
        plain["schema"] = SCHEMA
    return plain


def format_of(result: Json) -> int:
    """The number in a result's schema."""
    name, _, number = str(result.get("schema")).partition("/")
    if name != "odedm.result" or not number.isdecimal():
        raise SystemExit(f"No result: its schema is {result.get('schema')!r}.")
    return int(number)


def converted_result(plain: Json) -> Json:
    """A result as one of today's, after a check that its numbers and origin are the same."""
    new = converted(plain, format_of(plain))
    result = Result.from_dict(new)
    for name in ("class_il", "task_il", "acc", "acc_last", "seconds", "anytime", "sample_gradients"):
        if getattr(result, name) != plain.get(name):
            raise SystemExit(f"The conversion changes {name} of a result.")
    for part, name in (("experiment", "seed"), ("provenance", "commit"), ("provenance", "data_checksum")):
        if getattr(result, part).get(name) != plain[part].get(name):
            raise SystemExit(f"The conversion changes the {name} of a result.")
    return new


def convert_packed(path: Path) -> bool:
    """Convert a file of packed results; whether anything was to be done."""
    lines = [json.loads(line)["result"] for line in gzip.decompress(path.read_bytes()).splitlines()]
    results = [Result.from_dict(converted_result(line)) for line in lines]
    keys = {key_of_result(result) for result in results}
    if len(keys) != len(lines):
        raise SystemExit(f"'{path}' had {len(lines)} runs, and after the conversion {len(keys)} different ones.")
    before = path.read_bytes()
    write_packed(path, results)
    if len(read_packed(path)) != len(lines):
        write_bytes(path, before)
        raise SystemExit(f"'{path}' cannot be read after the conversion; it was put back.")
    return path.read_bytes() != before


def experiments(plain: Any) -> Iterator[Json]:
    """Every object below that holds an experiment."""
    if isinstance(plain, dict) and isinstance(plain.get("experiment"), dict):
        yield plain
    else:
        for value in plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ():
            yield from experiments(value)


def convert_json(path: Path) -> bool:
    """Convert a result.json and the checksums beside it, or JSON with experiments; whether anything was to be done."""
    text = path.read_text(encoding="utf-8")
    try:
        new = _converted_text(text)
    except json.JSONDecodeError:
        new = "".join(map(_converted_text, text.splitlines(keepends=True)))
    if new == text:
        return False
    write_text(path, new)
    if (path.parent / CHECKSUMS).is_file():
        write_checksums(path.parent)
    return True


def _converted_text(text: str) -> str:
    document, plain = json.loads(text), json.loads(text)
    if "schema" in plain:
        plain = converted(plain, format_of(plain))
    for step in RENAMES:
        step(plain)
    for entry in experiments(plain):
        entry.update(converted(entry, max(ONCE) + 1))
    if plain == document:
        return text
    return json.dumps(plain, ensure_ascii=False, indent=1 if "\n" in text.strip() else None) + "\n" * text.endswith(
        "\n"
    )


def convert(paths: Iterable[Path]) -> None:
    """Convert files, and name those that changed."""
    for path in paths:
        try:
            changed = convert_packed(path) if path.name.endswith(".jsonl.gz") else convert_json(path)
        except (OSError, EOFError, json.JSONDecodeError) as error:
            raise SystemExit(
                f"'{path}' cannot be read as a ledger ({type(error).__name__}: {error}), and is left as it is. Give "
                "*.jsonl.gz, a result.json, or JSON that holds experiments."
            ) from None
        print(f"{'converted' if changed else 'unchanged'}  {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    convert(parser.parse_args().files or [path for pattern in EVERYTHING for path in sorted(ROOT.glob(pattern))])
