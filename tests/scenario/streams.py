"""A client that leaves frees its worker; a worker cut off, or an ingress killed, never ends an answer cleanly; a worker
that fails before the first byte is answered for by another; SIGTERM lets streams finish, and ends no connection that
was not told; who waits past the drain's limit is told, and not blamed.  streams.py BACKEND"""
import http.client, json, pathlib, signal, socket, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

BACKEND = sys.argv[1]


def stream(tokens):
    """A connection whose first event is here, its response and its worker."""
    c = http.client.HTTPConnection("127.0.0.1", house.port, timeout=30)
    c.request("POST", "/v1/chat/completions", json.dumps({
        "model": house.model, "stream": True, "max_tokens": tokens, "ignore_eos": True,
        "messages": [{"role": "user", "content": "go on"}]}), {"Content-Type": "application/json"})
    r = c.getresponse()
    assert r.status == 200, (r.status, r.read())
    assert r.readline().startswith(b"data: ")
    return c, r, next(w for w in house.workers if w.name == r.getheader("x-pointsman-worker"))


def busy():
    return sum(s["running"] + s["waiting"] for s in (w.state() for w in house.workers))


def everywhere(**config):
    for w in house.workers:
        w.get("/emu/config", {k.replace("_", "-"): v for k, v in config.items()})


with h.House(io=BACKEND) as house:
    house.add("--time-scale", 20, count=2)
    house.start()

    # Gone in the middle of an answer.
    c, r, worker = stream(20000)
    assert worker.state()["running"] == 1
    r.close()
    c.close()
    h.until("the worker to be free", lambda: busy() == 0)

    # Gone before the first byte.
    everywhere(slow_factor=100)
    s = socket.create_connection(("127.0.0.1", house.port))
    body = json.dumps({"model": house.model, "messages": [{"role": "user", "content": "x" * 4000}],
                       "max_tokens": 5}).encode()
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
              b"Content-Length: %d\r\n\r\n" % len(body) + body)
    h.until("it to arrive", lambda: busy() == 1)
    s.close()
    h.until("the worker to be free", lambda: busy() == 0)
    everywhere(slow_factor=1)

    # A worker that cuts its answer: an error event, and no clean end.
    for tokens in (0, 10):
        everywhere(fail_rate=1, fail_kind="truncate", fail_at=tokens)
        s = socket.create_connection(("127.0.0.1", house.port))
        body = json.dumps({"model": house.model, "stream": True, "max_tokens": 50, "ignore_eos": True,
                           "messages": [{"role": "user", "content": "go on"}]}).encode()
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(body) + body)
        text = b"".join(iter(lambda: s.recv(65536), b""))
        assert b'data: {"error":' in text and b"[DONE]" not in text, text[-300:]
        assert not text.endswith(b"0\r\n\r\n"), text[-50:]
        assert (text.count(b"data: ") > 5) == (tokens > 0), text
        s.close()
    everywhere(fail_rate=0, fail_at=0)

    # A worker that fails before the first byte is answered for by the other one.
    house.workers[0].get("/emu/config", {"fail-rate": 1, "fail-kind": "503"})
    for i in range(6):
        status, _, headers = house.chat(f"again {i}")
        assert status == 200 and headers["x-pointsman-worker"] == "w1", headers
    house.workers[0].get("/emu/config", {"fail-rate": 0})

    # An ingress killed in an answer that ends with the connection: what is not whole does not look whole.
    s = socket.create_connection(("127.0.0.1", house.port))
    body = json.dumps({"model": house.model, "stream": True, "max_tokens": 20000, "ignore_eos": True,
                       "messages": [{"role": "user", "content": "go on"}]}).encode()
    s.sendall(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
              b"Content-Length: %d\r\n\r\n" % len(body) + body)
    text = b""
    while b"data: " not in text:
        text += s.recv(65536)
    killed = house.kill("ingress", "ready")
    try:
        while s.recv(65536):
            pass
        raise AssertionError("a clean end of what was cut")
    except ConnectionResetError:
        s.close()
    h.until("a new ingress", lambda: house.pids("ingress", "ready") not in ([], [killed]))

    # SIGTERM: what streams is served to its end; who comes now is refused, not left waiting.
    def refused():
        try:
            socket.create_connection(("127.0.0.1", house.port), timeout=5).close()
        except ConnectionRefusedError:
            return True

    c, r, worker = stream(4000)
    house.supervisor.send_signal(signal.SIGTERM)
    h.until("new connections to be refused", refused)
    assert worker.state()["running"] == 1, "while it streams"
    text = r.read()
    assert text.rstrip().endswith(b"data: [DONE]"), text[-200:]
    # Its head, written before, did not say close: one more request may come, and is told.
    assert r.getheader("connection", "") != "close"
    c.request("POST", "/v1/completions", json.dumps({"model": house.model, "prompt": [1, 2], "max_tokens": 2}))
    r = c.getresponse()
    assert r.status == 200 and r.getheader("connection") == "close", (r.status, r.getheaders())
    r.read()
    house.supervisor.wait(30)
    assert house.supervisor.returncode == 0

# Past the limit of a drain: clients are told, their streams do not end cleanly, and the books say that it was us.
with h.House(io=BACKEND, gateway="  timeouts: {drain: 300ms}") as house:
    house.add("--time-scale", 20)
    house.start()

    def send(minor, stream):
        s = socket.create_connection(("127.0.0.1", house.port), timeout=30)
        body = json.dumps({"model": house.model, "stream": stream, "max_tokens": 30000, "ignore_eos": True,
                           "prompt": "go on"}).encode()
        s.sendall(b"POST /v1/completions HTTP/1.%d\r\nHost: x\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n" % (minor, len(body)) + body)
        return s

    def outcome(text):
        id = text.split(b"x-pointsman-request-id: ")[1].split(b"\r\n")[0].decode()
        o = h.until("the outcome", lambda: json.loads(
            house.ctl("explain", id, "--output", "json", check=False).stdout or "{}").get("outcome"))
        return o["status"], o["error"], o["cancelled"]

    chunked, closing, waiting = send(1, True), send(0, True), send(1, False)
    idle = socket.create_connection(("127.0.0.1", house.port), timeout=30)
    texts = []
    for s in chunked, closing:
        texts.append(b"")
        while b"data: " not in texts[-1]:
            texts[-1] += s.recv(65536)
    h.until("all to be there", lambda: house.workers[0].state()["running"] == 3)
    old = set(house.pids("ingress", "ready"))
    house.supervisor.send_signal(signal.SIGUSR2)

    texts[0] += b"".join(iter(lambda: chunked.recv(65536), b""))
    assert b'"code":"drain_deadline"' in texts[0].rsplit(b"data: ", 1)[1], texts[0][-300:]
    assert not texts[0].endswith(b"0\r\n\r\n"), texts[0][-50:]
    try:
        while closing.recv(65536):
            pass
        raise AssertionError("a clean end of what was cut")
    except ConnectionResetError:
        pass
    answer = b"".join(iter(lambda: waiting.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 503 ") and b'"code":"drain_deadline"' in answer, answer
    assert not idle.recv(1)
    h.until("the old one to end", lambda: not old & set(house.pids("ingress")))
    assert "did not end by its drain deadline" not in house.tail(200)
    assert [outcome(t) for t in (*texts, answer)] == [
        (200, "drain_deadline", False), (200, "drain_deadline", False), (503, "drain_deadline", False)]
    h.until("the worker to be free", lambda: busy() == 0)
