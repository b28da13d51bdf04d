"""Downloads against a server on this machine: whole, resumed, truncated, wrong, missing, unreachable."""

import hashlib
import http.server
import os
import threading
from contextlib import suppress

import pytest

from odedm import UsageError
from odedm.data import download as module
from odedm.data.download import download
from odedm.data.published import Archive

CONTENT = bytes(range(256)) * 4000
KNOWN = [Archive("http://x/a.bin", len(CONTENT), None, hashlib.sha256(CONTENT).hexdigest())]
MANUAL = "By hand: do this."


class Server:
    """A server whose ways can be changed between requests."""

    def __init__(self):
        self.content, self.etag, self.ranges, self.stop_after, self.status = CONTENT, '"1"', True, [], None
        self.announce, self.length, self.location = True, None, None
        self.asked = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.answer(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/a.bin"

    def answer(self, request):
        self.asked.append(request.headers.get("Range"))
        if self.location:
            request.send_response(302)
            request.send_header("Location", self.location)
            request.end_headers()
            return
        if self.status:
            request.send_error(self.status)
            return
        start = 0
        if self.ranges and request.headers.get("Range") and request.headers.get("If-Range") == self.etag:
            start = int(request.headers["Range"].removeprefix("bytes=").rstrip("-"))
        body = self.content[start:]
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        if self.announce:
            request.send_header("Content-Length", self.length or str(len(body)))
        request.send_header("ETag", self.etag)
        request.end_headers()
        with suppress(ConnectionError):  # who has seen enough hangs up
            request.wfile.write(body[: self.stop_after.pop(0)] if self.stop_after else body)


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "RETRY_PAUSE", 0.0)
    made = Server()
    yield made
    made.server.shutdown()
    made.server.server_close()


def get(server, tmp_path, known=KNOWN, watch=lambda *_: None):
    return download(server.url, tmp_path / "a.bin", known, watch, manual=MANUAL)


def left(tmp_path):
    return sorted(each.name for each in tmp_path.iterdir())


def test_a_file_arrives_whole_and_progress_is_told(server, tmp_path):
    told = []
    path = get(server, tmp_path, watch=lambda *words: told.append(words))
    assert path.read_bytes() == CONTENT
    assert left(tmp_path) == ["a.bin"]
    assert told[-1] == ("downloading", len(CONTENT), len(CONTENT))


def test_a_broken_download_goes_on_where_it_stopped(server, tmp_path):
    server.stop_after = [300_000, 200_000]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-", "bytes=500000-"]


def test_a_later_call_goes_on_too(server, tmp_path):
    server.stop_after = [100_000, 0, 0, 0]
    with pytest.raises(UsageError, match=r"100000 bytes are kept; .* By hand"):
        get(server, tmp_path)
    assert left(tmp_path) == ["a.bin.part", "a.bin.part.of"]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == "bytes=100000-"


def test_a_file_that_changed_on_the_server_starts_anew(server, tmp_path):
    server.stop_after = [100_000, 0, 0, 0]
    server.content = bytes(len(CONTENT))
    with pytest.raises(UsageError):
        get(server, tmp_path)
    server.content, server.etag = CONTENT, '"2"'
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_a_server_without_ranges_starts_anew(server, tmp_path):
    server.stop_after, server.ranges = [300_000], False
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_a_part_of_another_address_is_not_continued(server, tmp_path):
    (tmp_path / "a.bin.part").write_bytes(b"other")
    (tmp_path / "a.bin.part.of").write_text('http://elsewhere/a.bin\n"1"\n')
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.asked == [None]


def test_a_file_that_is_here_already_is_not_asked_for(server, tmp_path):
    (tmp_path / "a.bin").write_bytes(CONTENT)
    get(server, tmp_path)
    assert server.asked == []


def test_a_wrong_file_is_removed_and_its_checksums_are_said(server, tmp_path):
    server.content = bytes(len(CONTENT))
    with pytest.raises(UsageError, match=f"not the known file .*{hashlib.md5(server.content).hexdigest()}.*By hand"):
        get(server, tmp_path)
    assert left(tmp_path) == []


def test_md5_serves_where_it_is_all_that_is_known(server, tmp_path):
    right = [Archive("http://x/a.bin", None, hashlib.md5(CONTENT).hexdigest())]
    wrong = [Archive("http://x/a.bin", None, "0" * 32)]
    with pytest.raises(UsageError, match="not the known file"):
        get(server, tmp_path, wrong)
    assert get(server, tmp_path, right).read_bytes() == CONTENT


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_refusal_is_said_at_once(status, server, tmp_path):
    server.status = status
    with pytest.raises(UsageError, match=f"the server says {status} .* By hand"):
        get(server, tmp_path)
    assert len(server.asked) == 1


def test_a_tired_server_is_asked_again(server, tmp_path):
    server.status = 503
    with pytest.raises(UsageError, match="Service Unavailable"):
        get(server, tmp_path)
    assert len(server.asked) == module.TRIES


def test_a_stream_without_end_is_stopped(server, tmp_path):
    server.content, server.announce = CONTENT * 3, False
    with pytest.raises(UsageError, match=f"sends more than {len(CONTENT)} bytes"):
        get(server, tmp_path)


def test_no_network_ends_in_the_manual_way(server, tmp_path):
    server.server.shutdown()
    server.server.server_close()
    with pytest.raises(UsageError, match=r"cannot be had: .*refused.* By hand: do this."):
        get(server, tmp_path)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x/a", "a.tar.gz", "javascript:1"])
def test_other_schemes_are_refused(url, tmp_path):
    with pytest.raises(UsageError, match="no web address"):
        download(url, tmp_path / "a", KNOWN, lambda *_: None, manual=MANUAL)


@pytest.mark.parametrize("length", ["²", "9" * 5000, "-1", "1e3"])
def test_a_length_that_is_no_number_counts_as_unknown(length, server, tmp_path):
    server.length = length
    assert get(server, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://a b/", "http://\udc80/", "http://[x]/", f"http://{'a' * 80}.b/"]
)
def test_an_address_that_cannot_be_asked_is_a_sentence(url, server, tmp_path):
    with pytest.raises(UsageError, match="By hand: do this"):
        download(url, tmp_path / "a.bin", KNOWN, lambda *_: None, manual=MANUAL)


def test_a_server_that_leads_nowhere_is_a_sentence(server, tmp_path):
    server.location = "http://[::1"
    with pytest.raises(UsageError, match="cannot be had: Invalid IPv6 URL. By hand"):
        get(server, tmp_path)


def test_a_mark_that_cannot_be_sent_back_is_forgotten(server, tmp_path):
    server.etag, server.stop_after = '"\x80\xff"', [100_000]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, None]


def test_too_little_space_is_seen_first(server, tmp_path, monkeypatch):
    usage = module.shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UsageError, match="10 are free"):
        get(server, tmp_path)


@pytest.mark.parametrize("name", ["a.bin.part", "a.bin.part.of", "a.bin"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_lies_in_the_way_in_a_shared_folder_is_neither_written_through_nor_waited_for(
    name, kind, server, tmp_path
):
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    (place := tmp_path / "shared").mkdir()
    if kind == "link":
        (place / name).symlink_to(precious)
    else:
        os.mkfifo(place / name) if kind == "pipe" else (place / name).mkdir()
    with pytest.raises(UsageError, match=f"{name}' is a link or no regular file"):
        download(server.url, place / "a.bin", KNOWN, lambda *_: None, manual=MANUAL)
    assert precious.read_text() == "years of work"
    assert not server.asked
