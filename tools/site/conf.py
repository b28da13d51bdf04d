"""Settings of Sphinx for the site. `tools/site/stage.py` lays out the pages, `make docs` calls both."""

import inspect
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import odedm

project = "odedm"
author = "The odedm authors"
copyright = "The odedm authors, MIT licence. The embedded images are a subset of Fashion-MNIST, MIT as well"
version = release = odedm.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_design", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["README.md"]
nitpicky = False  # types of the signatures name modules that have no page
show_warning_types = True
suppress_warnings = ["myst.xref_ambiguous"]

# Markdown
myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 4
highlight_language = "none"
pygments_style = "friendly"

# docstrings: Google's sections, with words between single backticks as code, as Markdown has it
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autoclass_content = "class"
autodoc_mock_imports = ["avalanche", "utils"]  # libraries of odedm.integrations, which need not be there
maximum_signature_line_length = 90
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
add_module_names = False
toc_object_entries_show_parents = "hide"

# the look
html_theme = "pydata_sphinx_theme"
html_title = "odedm"
html_static_path = ["../../docs/assets"]
html_css_files = ["site.css"]
html_favicon = "../../docs/assets/favicon.svg"
html_copy_source = False
html_show_sphinx = False
html_sidebars = {"index": [], "glossary": []}
WIDE = ("tutorials/compare", "tutorials/service", "tutorials/own_loop", "api/index")
"""Pages without a list of their sections at the right side: what they show needs the room."""
html_theme_options = {
    "logo": {"text": "odedm", "image_light": "_static/favicon.svg", "image_dark": "_static/favicon.svg"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 7,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": [], **dict.fromkeys(WIDE, ())},
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


PAGE = r":doc:`/\1`"
COLON = "\ue000"
"""Stands for a colon where napoleon would take what is before it for a type."""


def keep_colons(*given: Any) -> None:
    """Words on an attribute are words, whatever colon is among them."""
    what, lines = given[1], given[-1]
    if what in ("attribute", "data"):
        lines[:] = [line.replace(":", COLON) for line in lines]


def put_colons_back(*given: Any) -> None:
    """After napoleon."""
    given[-1][:] = [line.replace(COLON, ":") for line in given[-1]]


def as_restructured_text(*given: Any) -> None:
    """Make our docstrings safe for Sphinx: `code` is code, and no star or underscore outside of it means anything."""
    lines, in_example = given[-1], False
    for at, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if not in_example:
            parts = re.split(r"(`+)(.+?)\1", line)
            parts[::3] = [re.sub(r"\bdocs/([\w/-]+)\.md\b", PAGE, part) for part in parts[::3]]
            plain = [re.sub(r"([*|])|(?<=\w)(_)(?!\w)", lambda match: f"\\{match[0]}", part) for part in parts[::3]]
            code = [f"``{part}``" for part in parts[2::3]]
            lines[at] = "".join(text for pair in zip(plain, [*code, ""], strict=True) for text in pair)


def readable_signature(*given: Any) -> tuple[str, str] | None:
    """Return signatures that Sphinx can read; classes of many settings have theirs in a table of the reference."""
    documented, _, signature, returns = given[3:]
    if inspect.isclass(documented) and len(signature or "") > 1200:
        return "(…)", returns
    return (signature.replace("<factory>", "..."), returns) if signature else None


def setup(app: Any) -> None:
    """Called by Sphinx."""
    odedm.Memory.__name__ = "Memory"  # shown under its public name, which is not that of the class
    app.connect("autodoc-process-docstring", as_restructured_text, priority=100)  # before napoleon reads the sections
    app.connect("autodoc-process-docstring", keep_colons, priority=200)
    app.connect("autodoc-process-docstring", put_colons_back, priority=900)
    app.connect("autodoc-process-signature", readable_signature)
