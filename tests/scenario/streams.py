"""A client that leaves frees its worker; a worker cut off never ends cleanly; one that fails before the first
byte is answered for by another; SIGTERM lets streams finish.  streams.py BACKEND"""
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
    house.supervisor.wait(30)
    assert house.supervisor.returncode == 0
