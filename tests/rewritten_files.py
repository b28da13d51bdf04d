"""A saved file with another content, as someone with ill intent would write it."""

import json

from safetensors import safe_open
from safetensors.torch import save_file

from odedm.core.tensor_archive import archive_checksum


def rewrite(path, change, seal=True):
    """The file with another head or other tensors, with a right checksum unless `seal` is False."""
    with safe_open(path, "pt") as file:
        head, checksum = json.loads(file.metadata()["odedm"]), file.metadata()["checksum"]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(head, tensors)
    plain = json.dumps(head)
    tensors = {name: each.contiguous() for name, each in tensors.items()}
    checksum = archive_checksum(plain, tensors) if seal else checksum
    save_file(tensors, path, {"odedm": plain, "checksum": checksum})
