"""Metadata that depends on where the repository is: addresses of the project, and absolute links in the README.

`ODEDM_REPOSITORY` is the repository's address, https://github.com/OWNER/odedm say. Without it (a local build) only the
paper's address is given, and links of the README stay relative. The release workflow sets it.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAPER = "https://arxiv.org/abs/2505.18101"
LINK = re.compile(r"(!?)\]\((?!https?:|#|mailto:)([^)]+)\)")
IMAGE = re.compile(r"!\[([^\]]*)\]\((?!https?:)([^)]+)\)")


def absolute_links(text: str, repository: str, revision: str) -> str:
    """Return Markdown whose pictures and links lead to a revision of the repository."""
    raw = repository.replace("https://github.com/", "https://raw.githubusercontent.com/")
    text = IMAGE.sub(rf"![\1]({raw}/{revision}/\2)", text)
    return LINK.sub(rf"\1]({repository}/blob/{revision}/\2)", text)


class CustomMetadataHook(MetadataHookInterface):
    """Fill in `readme` and `urls`, which pyproject.toml declares dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set both fields."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        urls = {"Paper": PAPER}
        if repository := os.environ.get("ODEDM_REPOSITORY", "").rstrip("/"):
            text = absolute_links(text, repository, f"v{metadata['version']}")
            urls |= {
                "Repository": repository,
                "Issues": f"{repository}/issues",
                "Changelog": f"{repository}/blob/main/CHANGELOG.md",
                "Documentation": os.environ.get("ODEDM_DOCUMENTATION", f"{repository}/tree/main/docs"),
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls
