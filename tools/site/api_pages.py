"""The pages of the Python reference: every public name, on a page that says what it is for."""

import inspect

import odedm

GROUPS: dict[str, tuple[str, str, str]] = {
    "training": (
        "Training",
        "From settings to a trained network and its numbers.",
        "train Experiment Outcome Outcomes Run Observation UsageError",
    ),
    "data": (
        "Data and streams",
        "Rows, and the order in which they arrive.",
        "from_arrays from_torch load_dataset blobs shapes Dataset split from_batches Stream Task",
    ),
    "memory": (
        "Memory",
        "What is kept of the rows that went by: settings, the live memory, and the choice of prototypes alone.",
        "ODEDM Reservoir Native NoMemory DualMemory ReplayStream memory select prototypes_per_class",
    ),
    "learner": (
        "Learner and kept models",
        "A stream without borders, and models that outlive their run.",
        "Learner LearnerEvent prequential Prequential load TrainedModel",
    ),
    "results": ("Results", "Numbers of runs, read, compared and shown.", "Result Results"),
    "plug-ins": (
        "Plug-ins",
        "What code from outside is made of, and how it gets a name.",
        "register Method Replay Memory Store Rows ColumnSpec MemoryPart ModelView Distance Net Retrieval MIR",
    ),
}
"""By page: title, first sentence, names. A public name that is in none of them goes to the last page."""
NO_ENTRY = {"__version__", "testing"}
ROWS = "Columns of equal length by name: a dictionary of tensors, each with a row's entry at the same place"
"""What is said of `odedm.Rows`, whose own docstring is that of Python's dictionaries."""
INTEGRATIONS = {
    "odedm.integrations.avalanche": ["ODEDMStorage", "AuxiliaryPlugin", "dataset_of"],
    "odedm.integrations.mammoth": ["attach", "ODEDMBuffer"],
}
INDEX = """# Python

Every public name, from its own docstring. What is not listed here may change without notice.

| name | what it is | page |
|---|---|---|
{rows}

[`odedm.testing`](testing.md) checks code from outside; [`odedm.integrations`](integrations.md) has the memory inside
other libraries; `odedm.__version__` is the version.

```{{toctree}}
:hidden:

{pages}
```
"""


def grouped() -> dict[str, tuple[str, str, list[str]]]:
    """Return the groups with every public name of the package in exactly one of them."""
    public = set(odedm.__all__) - NO_ENTRY
    groups = {
        page: (title, about, [name for name in names.split() if name in public])
        for page, (title, about, names) in GROUPS.items()
    }
    known = {name for _, _, names in groups.values() for name in names}
    groups["plug-ins"][2].extend(sorted(public - known))
    return groups


def pages() -> dict[str, str]:
    """Return markdown by path."""
    made, rows = {}, []
    for page, (title, about, names) in grouped().items():
        entries = "\n".join(_entry(f"odedm.{name}") for name in names)
        made[f"api/{page}.md"] = f"# {title}\n\n{about}\n\n{entries}"
        for name in names:
            meaning = ROWS if name == "Rows" else _words(getattr(odedm, name).__doc__, cell=True)
            rows.append(f"| [`odedm.{name}`]({page}.md#{name.lower()}) | {meaning} | [{title}]({page}.md) |")
    tests = "\n".join(_entry(f"odedm.testing.{name}") for name in odedm.testing.__all__)
    made["api/testing.md"] = f"# odedm.testing\n\n{_words(odedm.testing.__doc__)}\n\n{tests}"
    text = "# odedm.integrations\n\nThe memory inside other libraries; [how to use it](../how-to/integrations.md).\n"
    for module, names in INTEGRATIONS.items():
        text += f"\n## {module}\n\n" + "\n".join(_entry(f"{module}.{name}", level=3) for name in names)
    made["api/integrations.md"] = text
    listed = "\n".join([*GROUPS, "testing", "integrations"])
    made["api/index.md"] = INDEX.format(rows="\n".join(sorted(rows, key=str.lower)), pages=listed)
    return made


def _entry(path: str, level: int = 2) -> str:
    """Return a heading, so that the name can be found and linked to, and the directive that shows its docstring."""
    name = path.rpartition(".")[2]
    head = f"{'#' * level} {name}\n\n"
    if path == "odedm.Rows":
        return head + _directive(f"py:data:: {path}", f"{odedm.Rows}\n\n{ROWS}.")
    if path == "odedm.memory":  # a folder that can be called
        from sphinx.ext.napoleon import Config, GoogleDocstring

        text = str(GoogleDocstring(odedm.memory.__doc__ or "", Config(napoleon_use_rtype=False))).replace("`", "``")
        signature = str(inspect.signature(odedm.memory)).replace("'", "").replace("Any", "object")
        return head + _directive(f"py:function:: {path}{signature}", text)
    documented = getattr(odedm, name, None) if path.count(".") == 1 else None
    if not name[0].isupper():
        return head + _directive(f"autofunction:: {path}")
    error = inspect.isclass(documented) and issubclass(documented, Exception)
    return head + _directive(f"autoclass:: {path}", "" if error else _members(documented))


def _members(documented: object) -> str:
    """Options that show a class's own members and those of our own bases, but nothing of torch's or Python's."""
    if not inspect.isclass(documented):
        return ":members:"
    outside = [base.__name__ for base in documented.__mro__ if not base.__module__.startswith("odedm.")]
    return f":members:\n:inherited-members: {', '.join(outside)}"


def _directive(what: str, body: str = "") -> str:
    """Return a directive of Sphinx inside Markdown."""
    lines = body.splitlines()
    gap = [] if lines[:1] == [":members:"] else [""]
    return "\n".join(["```{eval-rst}", f".. {what}", *gap, *(f"   {line}" for line in lines), "```", ""])


def _words(text: str | None, *, cell: bool = False) -> str:
    """Return a docstring's first paragraph, or its first sentence for a cell of a table."""
    paragraph = " ".join((text or "").split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".").replace("|", "\\|") if cell else paragraph
