"""Clients and workers speak TLS through the real processes, well and badly, and keys stay where they belong."""
import contextlib, json, os, pathlib, shutil, signal, socket, ssl, struct, subprocess, sys, tempfile, threading, warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h
import pki

IO = sys.argv[1]
warnings.simplefilter("ignore", DeprecationWarning)       # of asking for TLS 1.1
KEY = "sk-worker-1234567890"
SANITIZED = b"__asan_init" in (h.BIN / "pointsman-ingress").read_bytes()   # looks for leaks by ptrace
EVENTS = b"".join(b'data: {"n":%d,"pad":"%s"}\n\n' % (i, b"x" * (i * 37 % 900)) for i in range(3000)) + b"data: [DONE]\n\n"


class Worker:
    """An https (context) or plain (None) worker of a few fixed answers; keeps the heads it was sent."""

    def __init__(self, context):
        self.context, self.heads, self.probes = context, [], set()
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            s, _ = self.socket.accept()
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        with contextlib.suppress(OSError, ssl.SSLError, ValueError):
            s.settimeout(30)
            if self.context:
                s = self.context.wrap_socket(s, server_side=True, suppress_ragged_eofs=True)
            data = b""
            while True:
                while b"\r\n\r\n" not in data:
                    piece = s.recv(65536)
                    if not data and piece[:1] == b"\x16":  # TLS, to one who speaks none
                        s.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                        return
                    if not piece:
                        s.close()
                        return
                    data += piece
                head, data = data.split(b"\r\n\r\n", 1)
                lower = head.lower()
                length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in lower else 0
                while len(data) < length:
                    data += s.recv(65536)
                body, data = data[:length], data[length:]
                if not self.answer(s, head, body):
                    return

    def answer(self, s, head, body):
        if not head.startswith(b"POST /v1/"):
            self.probes.add(head.decode().lower())
            text = b"vllm:num_requests_running 0\n" if b"/metrics" in head else b"{}"
            s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
            return True
        self.heads.append(head.decode())
        how = json.loads(body)["messages"][0]["content"]
        if how == "stream":
            s.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            at, n = 0, 1
            while at < len(EVENTS):
                piece = EVENTS[at:at + n]
                s.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
                at, n = at + n, n * 5 % 40009 + 1
            s.sendall(b"0\r\n\r\n")
            return True
        if how == "echo":
            s.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            return True
        s.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{"half": "of it"')
        if how == "whole":
            s.sendall(b"}")
            if self.context:
                s.unwrap()
        s.shutdown(socket.SHUT_RDWR) if how == "cut" else None
        s.close()
        return False


def server_context(pair):
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    c.load_cert_chain(*map(str, pair))
    return c


folder = pathlib.Path(tempfile.mkdtemp(prefix="pointsman-tls-"))
ca, stranger = pki.Authority(folder), pki.Authority(folder, "stranger")
front = ca.issue("front", "DNS:front.test", rsa=True)
wild = ca.issue("wild", "DNS:*.wild.test")
workers = {
    "good": Worker(server_context(ca.issue("worker", "IP:127.0.0.1"))),
    "named": Worker(server_context(ca.issue("named", "DNS:engine.test"))),
    "wrongca": Worker(server_context(stranger.issue("strange", "IP:127.0.0.1"))),
    "wrongname": Worker(server_context(ca.issue("other", "IP:127.0.0.9,DNS:other.test"))),
    "expired": Worker(server_context(ca.issue("expired", "IP:127.0.0.1", days=-1))),
    "plain": Worker(None),
}
(folder / "api.key").write_text(KEY + "\n")
os.chmod(folder / "api.key", 0o600)
served = folder / "served.pem", folder / "served.key"


def serve_pair(pair):
    for to, what in zip(served, pair):
        to.write_bytes(what.read_bytes())


def document(port, tls_port, admin):
    models = ", ".join(f"{{name: {n}, policy: p}}" for n in workers)
    sets = "".join(f"""\
---
apiVersion: pointsman.io/v1alpha1
kind: InferenceWorkerSet
metadata: {{name: {n}}}
spec:
  engine: vllm
  model: {n}
  tokenize: false
  scrapeInterval: 50ms
  members: [{{name: {n}, url: 'https://127.0.0.1:{w.port}'}}]
  tls: {{ca: {ca.ca}{", serverName: engine.test" if n == "named" else ""}}}
""" + (f"  apiKeyFrom: {{file: {folder / 'api.key'}}}\n" if n == "good" else
       "  apiKeyFrom: {env: PM_TEST_WORKER_KEY}\n" if n == "named" else "") for n, w in workers.items())
    return f"""\
apiVersion: pointsman.io/v1alpha1
kind: GatewayBackend
metadata: {{name: front}}
spec:
  listen: ["127.0.0.1:{port}"]
  listenTls: ["127.0.0.1:{tls_port}"]
  tls:
    certificates: [{{certificate: {served[0]}, key: {served[1]}}}, {{certificate: {wild[0]}, key: {wild[1]}}}]
  timeouts: {{head: 1s}}
  admin: {{listen: "127.0.0.1:{admin}"}}
  io: {{backend: {IO}}}
  models: [{models}]
{sets}---
apiVersion: pointsman.io/v1alpha1
kind: InferencePool
metadata: {{name: all}}
spec: {{workerSets: [{", ".join(workers)}]}}
---
apiVersion: pointsman.io/v1alpha1
kind: InferencePolicy
metadata: {{name: p}}
spec: {{candidates: [{{pool: all}}]}}
"""


def client_context(version=None, alpn=None):
    c = ssl.create_default_context(cafile=str(ca.ca))
    if version:
        c.minimum_version = c.maximum_version = version
    if alpn:
        c.set_alpn_protocols(alpn)
    return c


def connect(context, name="front.test", check=True):
    context.check_hostname = check
    s = socket.create_connection(("127.0.0.1", TLS), timeout=20)
    return context.wrap_socket(s, server_hostname=name)


def post(model, content, **headers):
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": content}]}).encode()
    more = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
    return (f"POST /v1/chat/completions HTTP/1.1\r\nHost: front\r\nContent-Type: application/json\r\n{more}"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def answer(s):
    """Status, body, whether it ended as an answer does."""
    f = s.makefile("rb")
    status, length, chunked = int(f.readline().split()[1]), None, False
    while (line := f.readline()) not in (b"\r\n", b""):
        name, value = line.decode().lower().split(":", 1)
        length = int(value) if name == "content-length" else length
        chunked = chunked or (name == "transfer-encoding" and "chunked" in value)
    if length is not None:
        body = f.read(length)
        return status, body, len(body) == length
    body = b""
    while chunked:
        line = f.readline()
        if not line.endswith(b"\r\n"):
            return status, body, False
        n = int(line, 16)
        piece = f.read(n + 2)
        if n == 0:
            return status, body, piece == b"\r\n"
        body += piece[:-2]
    return status, body, False


def ask(model, content, context=None, **headers):
    with connect(context or client_context()) as s:
        s.sendall(post(model, content, **headers))
        return answer(s)


def subject(s):
    return dict(x[0] for x in s.getpeercert()["subject"])["commonName"]


def counter(name):
    text = h.request(house.admin, "GET", "/metrics")[1]
    return sum(int(float(l.split()[-1])) for l in text.splitlines() if l.startswith(f"pointsman_{name}{{"))


def refused(f):
    try:
        f()
    except (ssl.SSLError, OSError) as e:
        return str(e)
    raise AssertionError("was not refused")


# ---- clients ----

def clients():
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = client_context(version)
        with connect(context) as s:
            for _ in range(3):                      # kept alive
                s.sendall(post("good", "echo"))
                assert answer(s)[0] == 200
        # what one connection was given, the next resumes with, whoever accepts it
        with connect(context) as s:
            s.sendall(post("good", "echo"))
            answer(s)
            session = s.session
        with socket.create_connection(("127.0.0.1", TLS)) as raw, \
                context.wrap_socket(raw, server_hostname="front.test", session=session) as s:
            s.sendall(post("good", "echo"))
            assert answer(s)[0] == 200 and s.session_reused, version
    with connect(client_context(), "a.wild.test") as s:
        assert subject(s) == "wild"
    with connect(client_context(), "unknown.test", check=False) as s:
        assert subject(s) == "front"
    with connect(client_context(), None, check=False) as s:
        assert subject(s) == "front"
    with connect(client_context(alpn=["h2", "http/1.1"])) as s:
        assert s.selected_alpn_protocol() == "http/1.1"
    assert "no application protocol" in refused(lambda: connect(client_context(alpn=["h2"]))).lower()
    old = client_context()
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    refused(lambda: connect(old))
    before = counter("tls_failed_total")
    with socket.create_connection(("127.0.0.1", TLS), timeout=20) as s:
        s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        status, body, _ = answer(s)
        assert status == 400 and b"tls_required" in body
    with socket.create_connection(("127.0.0.1", TLS), timeout=20) as s:
        s.sendall(os.urandom(700))
        with contextlib.suppress(ConnectionError):
            while s.recv(4096):
                pass
    # one that never ends its handshake holds nobody else up, and is closed by the head's time
    hello = ssl.MemoryBIO(), ssl.MemoryBIO()
    half = client_context().wrap_bio(*hello, server_hostname="front.test")
    with contextlib.suppress(ssl.SSLWantReadError):
        half.do_handshake()
    hello = hello[1].read()
    slow = socket.create_connection(("127.0.0.1", TLS), timeout=20)
    slow.sendall(hello[:50])
    gone = socket.create_connection(("127.0.0.1", TLS))
    gone.sendall(hello[:100])
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.close()
    for i in range(50, 60):
        slow.sendall(hello[i:i + 1])
        assert ask("good", "echo")[0] == 200
    assert slow.recv(4096) == b""
    slow.close()
    h.until("failures to be counted", lambda: counter("tls_failed_total") >= before + 4)
    r = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{TLS}", "-tls1_2", "-CAfile", str(ca.ca),
                        "-servername", "front.test"], input=b"R\n", capture_output=True, timeout=30)
    assert b"no renegotiation" in r.stderr + r.stdout, r.stderr
    r = subprocess.run(["curl", "-sS", "--cacert", str(ca.ca), "--resolve", f"front.test:{TLS}:127.0.0.1",
                        f"https://front.test:{TLS}/v1/models"], capture_output=True, text=True, timeout=30)
    assert '"good"' in r.stdout, r.stderr
    # a byte at a time is slow and right
    raw = socket.create_connection(("127.0.0.1", TLS), timeout=20)
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context().wrap_bio(inward, outward, server_hostname="front.test")
    sent = False
    got = b""
    while b'"stream"' not in got and b"}]}" not in got:
        with contextlib.suppress(ssl.SSLWantReadError):
            if not sent:
                tls.do_handshake()
                tls.write(post("good", "echo"))
                sent = True
            else:
                got += tls.read(65536)
                continue
        for i, byte in enumerate(data := outward.read()):
            raw.sendall(bytes([byte]))
        if not data or sent or not outward.pending:
            inward.write(raw.recv(65536))
    assert got.startswith(b"HTTP/1.1 200"), got[:200]
    raw.close()


# ---- workers ----

def workers_too():
    status, body, whole = ask("good", "stream", Authorization="Bearer sk-client", Cookie="a=b")
    assert status == 200 and whole and body == EVENTS, (status, whole, len(body), len(EVENTS))
    head = workers["good"].heads[-1].lower()
    assert f"authorization: bearer {KEY}" in head and "sk-client" not in head and "cookie" not in head, head
    def models_asked():
        return [p for p in list(workers["good"].probes) if "/v1/models" in p]
    h.until("the worker's models to be asked for", models_asked)
    assert all(f"authorization: bearer {KEY}" in p for p in models_asked())
    status, body, whole = ask("named", "echo")
    assert status == 200 and whole and "bearer sk-from-env" in workers["named"].heads[-1].lower()
    big = "e" * 3_000_000
    with connect(client_context()) as s:
        body = json.dumps({"model": "good", "messages": [{"role": "user", "content": "echo"}], "pad": big}).encode()
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(body))
        s.sendall(body)
        status, got, whole = answer(s)
        assert status == 200 and whole and got == body
    # An answer without a length is whole only with close_notify.
    assert ask("good", "whole") == (200, b'{"half": "of it"}', True)
    status, body, whole = ask("good", "cut")
    assert (status, whole) == (200, False) or status == 502, (status, body, whole)
    reasons = {"wrongca": "local issuer", "wrongname": "mismatch", "expired": "expired", "plain": "wrong version"}
    for name, reason in reasons.items():
        status, body, _ = ask(name, "echo")
        assert status in (502, 503), (name, status, body)
        if status == 502:
            assert b"upstream_tls" in body, (name, body)
        assert not workers[name].heads, name
    rows = lambda: {r["worker"]: r["reading"]["health"] for r in json.loads(house.ctl("workers", "--output", "json").stdout)["workers"]}
    h.until("bad workers to be down", lambda: all(rows()[n] == "down" for n in reasons))
    assert rows()["good"] == "up" and rows()["named"] == "up"
    log = (house.folder / "pointsman.log").read_text(errors="replace")
    for name, reason in reasons.items():
        line = [l for l in log.splitlines() if f"127.0.0.1:{workers[name].port}: " in l and "-> down" in l]
        assert line and ":" in line[0].split("slow=")[1], (name, line)
    for secret in (KEY, "sk-from-env", "PRIVATE KEY"):
        assert secret not in log


# ---- keys ----

def written(path):
    """The pages of a segment that anybody has written to."""
    data, at = b"", 0
    with open(path, "rb", 0) as f, contextlib.suppress(OSError):    # ENXIO: no more of them
        while True:
            at = os.lseek(f.fileno(), at, os.SEEK_DATA)
            end = os.lseek(f.fileno(), at, os.SEEK_HOLE)
            data += os.pread(f.fileno(), end - at, at)
            at = end
    return data


def keys():
    assert ask("good", "echo", Authorization="Bearer sk-client")[0] == 200
    for p in house.stat()["processes"]:
        if not p["pid"] or p["state"] == "gone":
            continue
        status = pathlib.Path(f"/proc/{p['pid']}/status").read_text()
        uid = int(status.split("Uid:")[1].split()[0])
        closed = os.stat(f"/proc/{p['pid']}/maps").st_uid != uid    # no core dump; root's own cannot be told
        assert closed or uid == 0 or SANITIZED or p["role"] not in ("supervisor", "ingress", "metrics"), p
        if p["role"] == "supervisor" or (closed and os.geteuid() != 0):
            continue
        fds = [os.readlink(f) for f in pathlib.Path(f"/proc/{p['pid']}/fd").iterdir() if f.is_symlink()]
        maps = pathlib.Path(f"/proc/{p['pid']}/maps").read_text()
        holds = any("pointsman-secrets" in x for x in [*fds, maps])
        assert holds == (p["role"] == "ingress"), p
        assert any("pointsman-probes" in x for x in [*fds, maps]) == (p["role"] == "metrics"), p
        assert b"sk-from-env" not in pathlib.Path(f"/proc/{p['pid']}/environ").read_bytes(), p
        for fd in pathlib.Path(f"/proc/{p['pid']}/fd").iterdir():
            with contextlib.suppress(PermissionError):      # not root: memory that cannot be opened again
                if fd.is_symlink() and "pointsman-arena" in os.readlink(fd):
                    assert b"sk-client" not in written(fd), p
    tool = house.ctl("stat", "--segments", "--output", "json").stdout
    assert KEY not in tool and "PRIVATE" not in tool


# ---- changes under load ----

class Load(threading.Thread):
    """A new connection for each request, until told to stop."""

    def __init__(self):
        super().__init__(daemon=True)
        self.asked, self.failed, self.over = 0, [], False

    def run(self):
        context = client_context()
        while not self.over:
            try:
                status = ask("good", "echo", context)[0]
                if status != 200:
                    self.failed.append(status)
            except Exception as e:
                self.failed.append(repr(e))
            self.asked += 1


def serial():
    with connect(client_context()) as s:
        return s.getpeercert()["serialNumber"]


def changes():
    load = Load()
    load.start()
    first = serial()
    kept = connect(client_context())
    serve_pair(ca.issue("front2", "DNS:front.test"))
    house.hup()                                     # the documents are the same
    h.until("the new certificate", lambda: serial() != first)
    second = serial()
    kept.sendall(post("good", "echo"))
    assert answer(kept)[0] == 200 and kept.getpeercert()["serialNumber"] == first
    kept.close()
    served[1].write_bytes(front[1].read_bytes())    # not this certificate's
    r = house.ctl("reload", check=False)
    assert r.returncode != 0 and "served.key" in r.stdout + r.stderr and "does not belong" in r.stdout + r.stderr, r
    r = subprocess.run([str(h.BIN / "pointsctl"), "check", str(house.config)], capture_output=True, text=True,
                       env={**os.environ, "PM_TEST_WORKER_KEY": "k"})
    assert r.returncode != 0 and f"{served[1]}: the key does not belong" in r.stderr, r
    assert serial() == second
    serve_pair(front)
    house.ctl("reload")
    h.until("the first certificate", lambda: serial() == first)
    old = house.pids("ingress")
    house.supervisor.send_signal(signal.SIGUSR2)
    h.until("a successor to serve alone", lambda: not set(house.pids("ingress")) & set(old))
    assert serial() == first
    load.over = True
    load.join(30)
    assert load.asked > 20 and not load.failed, (load.asked, load.failed[:5])
    died = house.kill("ingress")
    h.until("another ingress", lambda: [p for p in house.pids("ingress", "ready") if p != died])
    assert serial() == first and ask("good", "echo")[0] == 200
    keys()
    print(f"{load.asked} requests during a reload, a refused one, another and SIGUSR2: 0 failed")


TLS = h.free_port()
serve_pair(front)
os.environ["PM_TEST_WORKER_KEY"] = "sk-from-env"
with h.House(folder=folder, io=IO) as house:
    house.write(document(house.port, TLS, house.admin))
    house.start()
    h.until("workers to be up", lambda: ask("good", "echo")[0] == 200 and ask("named", "echo")[0] == 200)
    clients()
    workers_too()
    keys()
    changes()
shutil.rmtree(folder, ignore_errors=True)
