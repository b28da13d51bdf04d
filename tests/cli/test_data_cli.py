"""`odedm data` as people use it: good words work, bad words end in one sentence."""

import http.server
import json
import re
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial

import pytest
from PIL import Image
from typer.testing import CliRunner

from odedm import UsageError
from odedm.cli.data_command import app, import_if_path
from odedm.data import download
from odedm.data.download import digest
from odedm.data.published import PUBLISHED, Archive


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def said(done):
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", done.stderr).split())


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def flowers(tmp_path):
    for part, rows in (("train", 5), ("test", 2)):
        for name in ("rose", "tulip"):
            for row in range(rows):
                path = tmp_path / "flowers" / part / name / f"{row}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (8, 8), (row * 20, len(name) * 9, 7)).save(path)
    (tmp_path / "flowers" / "README.md").write_text("flowers")
    return tmp_path / "flowers"


def test_what_is_built_in_can_be_shown():
    shown = " ".join(call("show", "shapes").stdout.split())
    assert "3×12×12" in shown
    assert "6: " in shown
    plain = json.loads(call("show", "shapes", "--json").stdout)
    assert (len(plain["class_names"]), plain["shape"]) == (6, [3, 12, 12])


def test_import_show_verify_list(flowers):
    done = call("import", flowers, "--as", "flowers")
    assert done.exit_code == 0, done.output
    assert "10 + 4 rows 3×8×8, 2 classes" in done.stdout
    assert "1 other files were skipped" in done.stdout
    shown = call("show", "flowers").stdout
    assert "rose, tulip" in shown
    assert json.loads(call("show", "flowers", "--json").stdout)["rows"] == [10, 4]
    assert "is sound" in call("verify", "flowers").stdout
    listed = {row["name"]: row["state"] for row in json.loads(call("list", "--json").stdout)}
    assert listed["flowers"] == "here"
    assert listed["blobs"] == "built in"
    assert listed["cifar10"] == "odedm data get cifar10"
    assert "flowers" in call("list").stdout


def test_options_reach_the_cache(flowers):
    words = ["--size", 4, "--tasks", 2, "--seed", 3, "--flip"]
    assert call("import", flowers, "--as", "small", *words).exit_code == 0
    plain = json.loads(call("show", "small", "--json").stdout)
    assert (plain["shape"], plain["tasks"], plain["seed"], plain["flip"]) == ([3, 4, 4], 2, 3, True)


def test_a_broken_cache_is_listed_as_broken(flowers, data_folder):
    call("import", flowers, "--as", "flowers")
    (data_folder / "flowers" / "manifest.json").write_text("{")
    assert {row["name"]: row["state"] for row in json.loads(call("list", "--json").stdout)}["flowers"] == "broken"
    done = call("verify", "flowers")
    assert done.exit_code == 2
    assert "The manifest of 'flowers' cannot be used" in said(done)


BAD = {
    "no name": (["import", "x"], "Missing option '--as'"),
    "no path": (["import", "/nowhere/at/all", "--as", "x"], "There is no file or folder"),
    "bad name": (["import", ".", "--as", "A/B"], "cannot be a data set's name"),
    "built-in name": (["import", ".", "--as", "blobs"], "built-in"),
    "size": (["import", ".", "--as", "x", "--size", "0"], "Invalid value for '--size'"),
    "get unknown": (["get", "cifar11"], "did you mean 'cifar10'"),
    "get from a file": (["get", "cifar10", "--url", "file:///etc/passwd"], "no web address"),
    "verify unknown": (["verify", "nothing"], "Unknown data set 'nothing'"),
    "show published": (["show", "cifar10"], "odedm data get cifar10"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_words_end_in_one_sentence(case):
    words, sentence = BAD[case]
    done = call(*words)
    assert done.exit_code == 2
    assert sentence in said(done)
    assert "Traceback" not in done.output


def test_get_without_a_network_says_how_to_do_it_by_hand(monkeypatch):
    monkeypatch.setattr(download, "RETRY_PAUSE", 0.0)
    done = call("get", "cifar10", "--url", "http://127.0.0.1:9/cifar-10-binary.tar.gz")
    assert done.exit_code == 2
    assert "odedm data import cifar-10-binary.tar.gz --as cifar10" in said(done)
    assert "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz" in said(done)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_get_downloads_imports_and_cleans_up(tmp_path, monkeypatch, data_folder):
    sys.path.insert(0, str(__import__("pathlib").Path(__file__).parents[1] / "data"))
    from forge import cifar10_binary, tar

    (tmp_path / "www").mkdir()
    archive = tar(tmp_path / "www" / "cifar-10-binary.tar.gz", cifar10_binary())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "www"))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/{archive.name}"
    file = Archive(url, archive.stat().st_size, digest(archive, "sha256"))
    known = replace(PUBLISHED["cifar10"], rows=(50, 10), archives=(file,), tolerance=None)
    monkeypatch.setitem(PUBLISHED, "cifar10", known)
    done = call("get", "cifar10")
    server.shutdown()
    server.server_close()
    assert done.exit_code == 0, done.output
    assert "50 + 10 rows 3×32×32, 10 classes" in done.stdout
    assert list((data_folder / ".downloads").iterdir()) == []
    assert "is here already" in call("get", "cifar10").stdout


def test_help_needs_no_torch():
    there = "print(*(name in sys.modules for name in ('torch', 'numpy', 'PIL')))"
    code = f"import sys, odedm.cli.data_command; {there}"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == (
        "False False False"
    )


def test_listing_and_importing_pictures_need_no_torch(flowers):
    code = (
        "import sys; from odedm.cli.data_command import app\n"
        f"app(['import', {str(flowers)!r}, '--as', 'f'], standalone_mode=False); app(['list'], standalone_mode=False)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("False"), done.stderr


def test_settling_gives_names_for_names_and_for_paths(flowers, monkeypatch):
    name = import_if_path(str(flowers))
    assert re.fullmatch("flowers-[0-9a-f]{8}", name)
    assert import_if_path(str(flowers)) == import_if_path(name) == name
    assert import_if_path("blobs") == "blobs"
    with pytest.raises(UsageError, match="did you mean 'fashion-mini'"):
        import_if_path("fashion-mimi")


def test_interrupting_says_so(flowers, monkeypatch):
    from odedm.data import importer as importing

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(importing, "import_as", interrupt)
    done = call("import", flowers, "--as", "flowers")
    assert done.exit_code == 130
    assert "Interrupted" in said(done)


def test_what_is_built_in_was_not_imported():
    done = call("verify", "blobs")
    assert done.exit_code == 2
    assert "is built in" in done.output
