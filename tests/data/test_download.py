"""Downloads against a server on this machine: whole, truncated, wrong, missing, unreachable."""

import errno
import hashlib
import http.client
import http.server
import ssl
import threading
from contextlib import suppress

import pytest

from odedm import UsageError
from odedm.data import download as module
from odedm.data.download import download
from odedm.data.published import Archive

CONTENT = bytes(range(256)) * 4000
KNOWN = [Archive("http://x/a.bin", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())]
MANUAL = "By hand: do this."


class Server:
    """A server whose ways can be changed between requests."""

    def __init__(self):
        self.content, self.stop_after, self.status = CONTENT, [], None
        self.announce, self.length, self.location = True, None, None
        self.asked = 0
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
        self.asked += 1
        if self.location:
            request.send_response(302)
            request.send_header("Location", self.location)
            request.end_headers()
            return
        if self.status:
            request.send_error(self.status)
            return
        request.send_response(200)
        if self.announce:
            request.send_header("Content-Length", self.length or str(len(self.content)))
        request.end_headers()
        with suppress(ConnectionError):  # who has seen enough hangs up
            request.wfile.write(self.content[: self.stop_after.pop(0) if self.stop_after else None])


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "RETRY_PAUSE", 0.0)
    made = Server()
    yield made
    made.server.shutdown()
    made.server.server_close()


def get(server, tmp_path, known=KNOWN, on_progress=lambda *_: None):
    return download(server.url, tmp_path / "a.bin", known, on_progress, manual=MANUAL)


def left(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir())


def test_a_file_arrives_whole_and_progress_is_told(server, tmp_path):
    calls = []
    path = get(server, tmp_path, on_progress=lambda *words: calls.append(words))
    assert path.read_bytes() == CONTENT
    assert left(tmp_path) == ["a.bin"]
    assert calls[-1] == ("downloading", len(CONTENT), len(CONTENT))


def test_a_download_that_broke_off_is_tried_again(server, tmp_path):
    server.stop_after = [300_000, 200_000]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.asked == 3
    assert left(tmp_path) == ["a.bin"]


def test_one_that_breaks_off_each_time_leaves_nothing(server, tmp_path):
    server.stop_after = [100_000] * module.TRIES
    with pytest.raises(UsageError, match=r"cannot be had: .* By hand"):
        get(server, tmp_path)
    assert left(tmp_path) == []


@pytest.mark.parametrize("error", [ssl.SSLError(1, "record layer failure"), TimeoutError("timed out")])
def test_an_error_in_mid_body_is_tried_again_and_then_a_sentence(error, server, tmp_path, monkeypatch):
    failures = [error] * module.TRIES

    def read(answer, *size, real=http.client.HTTPResponse.read):
        content = real(answer, *size)
        if content and failures:
            raise failures.pop()
        return content

    monkeypatch.setattr(http.client.HTTPResponse, "read", read)
    with pytest.raises(UsageError, match=f"cannot be had: .*{type(error).__name__}.* By hand"):
        get(server, tmp_path)
    failures.append(error)
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_a_disk_that_is_full_is_no_fault_of_the_server(server, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UsageError, match="Cannot write .*No space left on device. Make room"):
        get(server, tmp_path, on_progress=full)
    assert server.asked == 1
    assert left(tmp_path) == []


def test_a_file_that_is_here_already_is_not_asked_for(server, tmp_path):
    (tmp_path / "a.bin").write_bytes(CONTENT)
    get(server, tmp_path)
    assert server.asked == 0


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
def test_a_refusal_is_reported_at_once(status, server, tmp_path):
    server.status = status
    with pytest.raises(UsageError, match=f"HTTP Error {status}: .* By hand"):
        get(server, tmp_path)
    assert server.asked == 1


def test_a_tired_server_is_asked_again(server, tmp_path):
    server.status = 503
    with pytest.raises(UsageError, match="Service Unavailable"):
        get(server, tmp_path)
    assert server.asked == module.TRIES


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
    with pytest.raises(UsageError, match="cannot be had: ValueError: Invalid IPv6 URL. By hand"):
        get(server, tmp_path)


def test_too_little_space_is_seen_first(server, tmp_path, monkeypatch):
    usage = module.shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UsageError, match="10 are free"):
        get(server, tmp_path)
