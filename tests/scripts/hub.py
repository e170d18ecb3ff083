"""A small Hugging Face hub on the loopback interface: the requests that huggingface_hub makes to list and download a repository."""
import contextlib
import dataclasses
import hashlib
import http.server
import json
import re
import threading

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclasses.dataclass
class Request:
    method: str
    path: str
    range: str | None
    authorization: str | None


class Hub:
    """What is served and how it fails. Set up before a request needs it; `requests` grows as they come."""

    def __init__(self):
        self.repositories = {}       # ORG/NAME -> {path: bytes}
        self.absent = set()          # paths that are listed but not there
        self.token = None            # what every request must bring
        self.status = None           # answer everything with this
        self.cuts = {}               # path -> bytes after which its first body ends with the connection
        self.stalls = {}             # path -> bytes after which its first body stands still
        self.stalled = threading.Event()
        self.released = threading.Event()
        self.requests = []
        self.url = None

    def sent(self, method, path_end):
        return [r for r in self.requests if r.method == method and r.path.endswith(path_end)]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self):
        return self.server.hub

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.hub.requests.append(Request(self.command, self.path, self.headers["Range"], self.headers["Authorization"]))
        if self.hub.status:
            return self.refuse(self.hub.status)
        if self.hub.token and self.headers["Authorization"] != f"Bearer {self.hub.token}":
            return self.refuse(401, "GatedRepo")
        if listing := re.fullmatch(r"/api/models/([^/]+/[^/]+)", self.path):
            return self.list(listing[1])
        if file := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", self.path):
            return self.serve(file[1], file[2])
        return self.refuse(404)

    do_HEAD = do_GET

    def refuse(self, status, code=None):
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def list(self, repository):
        if repository not in self.hub.repositories:
            return self.refuse(404, "RepoNotFound")
        names = [{"rfilename": path} for path in self.hub.repositories[repository]]
        body = json.dumps({"id": repository, "modelId": repository, "sha": COMMIT, "private": False, "tags": [], "siblings": names}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def serve(self, repository, path):
        body = self.hub.repositories.get(repository, {}).get(path)
        if body is None or path in self.hub.absent:
            return self.refuse(404, "EntryNotFound")
        start = int(re.fullmatch(r"bytes=(\d+)-", self.headers["Range"])[1]) if self.headers["Range"] else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        if self.command == "GET":
            self.send_body(path, body[start:])

    def send_body(self, path, body):
        if path in self.hub.cuts:
            self.wfile.write(body[:self.hub.cuts.pop(path)])
            self.close_connection = True
            return
        if path in self.hub.stalls:
            self.wfile.write(body[:self.hub.stalls.pop(path)])
            self.wfile.flush()
            self.hub.stalled.set()
            self.hub.released.wait()
            self.close_connection = True
            return
        self.wfile.write(body)


@contextlib.contextmanager
def serving():
    """A Hub that answers at its `url` until the block ends."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.hub = Hub()
    server.hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.hub
    finally:
        server.hub.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
