"""Who a client is decides what it gets: unix sockets outlive every process that serves them, only trusted peers may
name another client, one address never takes all slots, arena bytes or connections, and what is short is said to
clients, operators and orchestrators.  edge.py BACKEND"""
import http.client, json, os, pathlib, signal, socket, stat, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

BACKEND = sys.argv[1]
TRUSTED, OTHERS = "127.0.0.1", [f"127.0.0.{i}" for i in range(2, 20)]


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(self.path)


def tcp(source):
    return http.client.HTTPConnection("127.0.0.1", house.port, timeout=30, source_address=(source, 0))


def ask(c, body=None, close=True, **headers):
    """Status, body, headers of one request on this connection."""
    body = {"model": house.model, "prompt": [1, 2, 3], "max_tokens": 2} if body is None else body
    try:
        c.request("POST", "/v1/completions", json.dumps(body),
                  {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}})
        r = c.getresponse()
        return r.status, r.read(), {k.lower(): v for k, v in r.getheaders()}
    finally:
        if close:
            c.close()


def stream(source, **headers):
    """A request that goes on until it is closed: its connection, or the refusal."""
    c = tcp(source)
    c.request("POST", "/v1/completions", json.dumps(
        {"model": house.model, "prompt": [1, 2, 3], "max_tokens": 30000, "ignore_eos": True, "stream": True}),
        {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}})
    r = c.getresponse()
    if r.status == 200:
        assert r.readline().startswith(b"data: ")
        return c, r
    try:
        return r.status, json.loads(r.read())["error"]["code"], r.getheader("retry-after")
    finally:
        c.close()


def outcome(headers):
    id = headers["x-pointsman-request-id"]
    return h.until("the outcome", lambda: json.loads(
        house.ctl("explain", id, "--output", "json", check=False).stdout or "{}").get("outcome"))


def counter(name):
    return house.counter(name)


def ready():
    """None, or why not."""
    status, said, _ = h.request(house.admin, "GET", "/readyz")
    assert said["ready"] == (status == 200) == (not said["why_not"]), (status, said)
    assert h.request(house.admin, "GET", "/healthz")[0] == 200
    return said["why_not"] or None


def at_rest():
    h.until("nothing to be held", lambda: counter("slots_used") == 0 and counter("arena_used") == 0)


# --- unix sockets, trusted peers, request ids

with h.House(io=BACKEND, ingresses=2, gateway=f"  client: {{trustedPeers: [{TRUSTED}, unix]}}\n"
             "  unixSockets: {mode: '0600'}") as house:
    house.add("--profile", "zero", "--tokenizer", "ids")
    path = str(house.folder / "front.sock")
    house.listen.append(f"unix:{path}")
    house.start()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600

    status, _, headers = ask(Unix(path))
    assert status == 200 and outcome(headers)["peer"] == "unix", outcome(headers)
    status, _, headers = ask(Unix(path), X_Forwarded_For="198.51.100.7, 127.0.0.1")
    assert status == 200 and outcome(headers)["peer"] == "198.51.100.7" and outcome(headers)["peer_forwarded"]
    status, _, headers = ask(tcp(TRUSTED), X_Forwarded_For="198.51.100.7, 2001:db8::1")
    assert status == 200 and outcome(headers)["peer"] == "2001:db8::1", outcome(headers)
    status, _, headers = ask(tcp(OTHERS[0]), X_Forwarded_For="198.51.100.7")
    assert status == 200 and outcome(headers)["peer"].startswith(OTHERS[0] + ":"), outcome(headers)
    # By request, not by connection.
    c = Unix(path)
    for client in "203.0.113.1", "203.0.113.2":
        _, _, headers = ask(c, close=False, X_Forwarded_For=client)
        assert outcome(headers)["peer"] == client
    c.close()

    # The client's id comes back in every answer and is what explain knows; the worker gets ours, by attempt.
    status, _, headers = ask(tcp(TRUSTED), X_Request_Id="mine/42 of today")
    assert headers["x-request-id"] == "mine/42 of today", headers
    assert outcome(headers)["client_request_id"] == "mine/42 of today"
    assert "mine/42 of today" in house.ctl("explain", headers["x-pointsman-request-id"]).stdout
    seen = h.until("the worker's log", lambda: house.workers[0].requests())[-1]
    assert "mine" not in json.dumps(seen) and headers["x-pointsman-request-id"] + "-1" in json.dumps(seen), seen
    for wrong in {"model": "nobody"}, {"prompt": [1]}, []:
        status, _, headers = ask(tcp(TRUSTED), wrong, X_Request_Id="mine")
        assert status in (400, 404) and headers["x-request-id"] == "mine", (status, headers)
    for method, target in ("GET", "/v1/models"), ("GET", "/nowhere"), ("GET", "/v1/completions"):
        _, _, headers = h.request(house.port, method, target, headers={"X-Request-Id": "mine"})
        assert headers["x-request-id"] == "mine", (target, headers)
    status, _, headers = ask(tcp(TRUSTED), X_Request_Id="x" * 129)
    assert headers["x-request-id"] == headers["x-pointsman-request-id"], headers

    # The socket's file stays whoever dies, and whoever is replaced.
    killed = house.kill("ingress")
    h.until("it to be dead: what it still accepts dies with it", lambda: not os.path.exists(f"/proc/{killed}"))
    assert all(ask(Unix(path))[0] == 200 for _ in range(10))
    h.until("the ingress to be reborn", lambda: len(set(house.pids("ingress", "ready")) - {killed}) == 2)
    first = set(house.pids("ingress"))
    held = Unix(path)
    held.connect()
    house.supervisor.send_signal(signal.SIGUSR2)
    h.until("both to be replaced", lambda: len(set(house.pids("ingress", "ready")) - first) == 2)
    assert ask(held)[0] == 200
    assert all(ask(Unix(path))[0] == 200 for _ in range(10))
    house.supervisor.kill()             # its file stays; its successor's takes its place
    house.supervisor.wait()
    assert ask(Unix(path))[0] == 200
    house.start()
    assert all(ask(Unix(path))[0] == 200 for _ in range(10))
    house.stop()
    assert not os.path.exists(path)

# --- slots and arena

with h.House(io=BACKEND, gateway=f"  client: {{trustedPeers: [{TRUSTED}]}}\n  limits: {{slots: 16, arenaBytes: 32MiB}}\n"
             "  timeouts: {arena: 1s}") as house:
    house.add("--time-scale", 20)
    house.start()
    held = [stream(OTHERS[0]) for _ in range(8)]
    assert all(not isinstance(s[0], int) for s in held), held
    assert stream(OTHERS[0]) == (429, "client_share", "1")
    # Who comes next has a share of what is free, by whomever it is forwarded.
    held += [stream(OTHERS[1]) for _ in range(4)]
    assert stream(OTHERS[1])[0] == 429
    assert ready() is None, "12 of 16"
    for client in "198.51.100.7", "2001:db8::1":
        held.append(stream(TRUSTED, X_Forwarded_For=client))
        assert not isinstance(held[-1][0], int), held[-1]
    assert stream(TRUSTED, X_Forwarded_For="2001:db8::2") == (429, "client_share", "1"), "one /64 is one address"
    assert counter("share_slots_total") == 3
    # New addresses come until nothing is left: then it is everybody's trouble.
    while len(held) < 16:
        held.append(stream(OTHERS[len(held)]))
    assert stream(OTHERS[17]) == (503, "overloaded", "1")
    assert counter("slots_full_total") == 1
    h.until("not to be ready", lambda: ready() == ["ingress 0: request slots nearly all in use"])
    while len(held) > 12:
        c, r = held.pop()
        r.close()
        c.close()
    h.until("four to be free", lambda: counter("slots_used") == 12)
    assert ready(), "not at once: 75 %"
    for c, r in held:
        r.close()
        c.close()
    at_rest()
    h.until("to be ready", lambda: ready() is None)
    for address in OTHERS[0], OTHERS[1]:
        assert ask(tcp(address))[0] == 200

    # Arena: half of it for one that is alone, and then no more; a new one has room.
    def body(source, size):
        s = socket.create_connection(("127.0.0.1", house.port), timeout=30, source_address=(source, 0))
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n" % (size + len(QUESTION)) + b" " * (size - 1))
        return s

    QUESTION = json.dumps({"model": house.model, "prompt": [1, 2, 3], "max_tokens": 2}).encode()

    held = []
    for n in 1, 2:
        held.append(body(OTHERS[0], 7 << 20))
        h.until("its bytes to be there", lambda: counter("arena_used") >= n * 8 << 20)
    held.append(body(OTHERS[0], 1 << 20))
    text = held[-1].recv(65536)
    assert text.startswith(b"HTTP/1.1 429 ") and b"client_share" in text and b"retry-after: 1" in text, text
    assert counter("share_arena_total") == 1
    held.append(body(OTHERS[1], 1 << 20))
    h.until("another's to be there", lambda: counter("arena_used") >= 17 << 20)
    for s in held:
        s.close()
    at_rest()

    # No room at all: a body is not read until there is some.  The first that waits goes on, whole; another in vain.
    held = [body(OTHERS[0], 7 << 20), body(OTHERS[1], 7 << 20)]
    h.until("their bytes to be there", lambda: counter("arena_used") == 16 << 20)
    waits = body(OTHERS[2], 7 << 20)
    h.until("it to wait", lambda: counter("arena_full_total") > 0)
    held.pop().close()
    h.until("it to have room", lambda: counter("arena_used") == 16 << 20)
    waits.sendall(b" " + QUESTION)
    text = waits.recv(65536)
    assert text.startswith(b"HTTP/1.1 200 "), text
    waits.close()
    held.append(body(OTHERS[1], 7 << 20))
    h.until("their bytes to be there", lambda: counter("arena_used") == 16 << 20)
    began = time.monotonic()
    waits = body(OTHERS[2], 7 << 20)
    text = waits.recv(65536)
    assert text.startswith(b"HTTP/1.1 503 ") and b"arena_full" in text and b"retry-after: 1" in text, text
    assert time.monotonic() - began > 0.9
    for s in held + [waits]:
        s.close()
    at_rest()

# --- connections to workers

with h.House(io=BACKEND, minimize="LeastRequests", model="org/emu-8b", gateway="  limits: {upstreamConnections: 2}") as house:
    house.add("--time-scale", 20, "--max-model-len", 31000)
    house.add("--time-scale", 20, "--max-model-len", 32768)
    house.start()

    # What clients may ask for, with what is known of it, by a name written either way.
    def models():
        return h.request(house.port, "GET", "/v1/models")[1]["data"]

    h.until("the workers' lengths", lambda: all(m.get("max_model_len") == 31000 for m in models()))
    assert [(m["id"], m["root"], m["object"]) for m in models()] == \
        [("org/emu-8b", "org/emu-8b", "model"), ("small", "org/emu-8b", "model")], models()
    for name in "org/emu-8b", "org%2Femu-8b", "org%2femu%2D8b":
        status, one, headers = h.request(house.port, "GET", f"/v1/models/{name}")
        assert status == 200 and one == models()[0], (name, one)
        c = tcp(TRUSTED)
        c.request("HEAD", f"/v1/models/{name}")
        r = c.getresponse()
        assert r.status == 200 and not r.read() and r.getheader("content-length") == headers["content-length"]
        c.close()
    for name in "org", "org%2", "org%2Femu-8b%00", "%6Frg/emu-8b/", "x" * 3000:
        assert h.request(house.port, "GET", f"/v1/models/{name}")[0] == 404, name
    held = [stream(TRUSTED) for _ in range(4)]
    assert sorted(r.getheader("x-pointsman-worker") for _, r in held) == ["w0", "w0", "w1", "w1"]
    assert stream(TRUSTED) == (503, "worker_connections", "1")
    assert counter("worker_connections_full_total") == 2        # the one, then the other
    c, r = held.pop()
    r.close()
    c.close()
    h.until("its connection to be free", lambda: ask(tcp(TRUSTED))[0] == 200)
    assert ask(tcp(TRUSTED))[0] == 200, "on the one that was kept"
    for c, r in held:
        r.close()
        c.close()

# --- clients' connections

with h.House(io=BACKEND, open_files=256, gateway=f"  client: {{trustedPeers: [{TRUSTED}]}}") as house:
    house.add("--profile", "zero", "--tokenizer", "ids")
    house.start()

    def connect(source):
        return socket.create_connection(("127.0.0.1", house.port), timeout=30, source_address=(source, 0))

    assert ready() is None
    idle = [connect(OTHERS[0]) for _ in range(60)]
    h.until("some to be closed", lambda: counter("share_connections_total") >= 20)
    open_now = counter("connections_open")
    assert 20 <= open_now <= 30, open_now
    assert ask(tcp(OTHERS[1]))[0] == 200, "nobody else notices"
    # When they have been idle for a second, they give way to their own address's new ones.

    def served(source):
        try:
            return ask(tcp(source))[0] == 200
        except (ConnectionError, http.client.HTTPException):
            return False

    h.until("its new one to be served", lambda: served(OTHERS[0]))
    assert counter("connections_refused_total") == 0
    many = [connect(TRUSTED) for _ in range(20)]
    h.until("not to be ready", lambda: ready() == ["ingress 0: client connections nearly all in use"])
    many += [connect(TRUSTED) for _ in range(20)]
    assert ask(tcp(TRUSTED))[0] == 200, "a trusted peer's are many clients'"
    for s in idle + many:
        s.close()
    h.until("to be ready", lambda: ready() is None)

# --- what is refused before it is a request

with h.House(io=BACKEND, gateway="  hosts: [x, '*.example.com']\n  limits: {bodyBytes: 64KiB}\n"
             "  timeouts: {head: 100ms}") as house:
    house.add("--profile", "zero")
    house.start()

    def refused(sent):
        with socket.create_connection(("127.0.0.1", house.port), timeout=30) as s:
            s.sendall(sent)
            return int(s.recv(4096)[9:12])

    for n, (status, head) in enumerate((
            (404, b"GET /none HTTP/1.1"), (404, b"GET /v1/models/none HTTP/1.1"), (405, b"GET /v1/completions HTTP/1.1"),
            (413, b"POST /v1/completions HTTP/1.1\r\nContent-Length: 65537"),
            (415, b"POST /v1/completions HTTP/1.1\r\nContent-Length: 9\r\nContent-Encoding: gzip")), 1):
        assert refused(head + b"\r\nHost: x\r\n\r\n") == status
        assert counter("requests_refused_total") == n, status
    assert refused(b"GET /v1/models HTTP/1.1\r\nHost: example.com\r\n\r\n") == 421
    assert refused(b"GET /v1/models HTTP/1.1\r\nHost: A.Example.com:80\r\n\r\n") == 200
    assert refused(b"GET /none HTTP/1.1\r\nHost: x\r\n") == 408
    assert counter("requests_refused_total") == 7
    assert counter("requests_total") == 0

# --- questions, and the end

with h.House(io=BACKEND, gateway="  limits: {questions: 2}") as house:
    house.add("--time-scale", 20)
    house.start()
    stopped = house.pids("policy", "active") + house.pids("policy", "standby")
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    waiting = [tcp(TRUSTED) for _ in range(8)]
    for i, c in enumerate(waiting):
        c.request("POST", "/v1/completions", json.dumps({"model": house.model, "prompt": [i], "max_tokens": 2}))
        h.until("it to wait", lambda: counter("slots_used") == i + 1)
    status, text, headers = ask(tcp(TRUSTED))
    assert status == 503 and b"questions_full" in text and headers["retry-after"] == "1", (status, text)
    assert counter("questions_full_total") == 1
    h.until("not to be ready", lambda: ready() == ["ingress 0: questions to the policy process nearly all in use"])
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    for c in waiting:
        assert c.getresponse().status == 200
        c.close()
    h.until("to be ready", lambda: ready() is None)

    # SIGTERM: not ready from then on, alive while what streams is served.
    c, r = stream(TRUSTED)
    house.supervisor.send_signal(signal.SIGTERM)
    h.until("not to be ready", lambda: "draining" in (ready() or []))
    r.close()
    c.close()
    house.supervisor.wait(30)
