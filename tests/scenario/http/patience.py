"""A client has the time it needs and no more: a head, a body and a reader that are too slow end, by themselves, and free
what they held; a client that closes only its sending side is served at every stage where the gateway says so.
patience.py BACKEND"""
import os, pathlib, queue, signal, socket, sys, threading, time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import group as g
import raw

BACKEND = sys.argv[1]
MODEL = "patient"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
heard, script = queue.Queue(), queue.Queue()
stopped = threading.Event()                     # body_that_stops is there, which others do not count


class Worker(raw.Played):
    def play(self, front, seen):
        while True:
            _, body = raw.whole_request(front, seen)
            if not body:
                return
            heard.put(body)
            script.get(timeout=20)(front)
            seen = b""


def answer(s):
    s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")


def live():
    return house.stat()["requests"]["live"] - stopped.is_set()


def slow_body(ends):
    """256 bytes a second are too few, after the first ten seconds."""
    with raw.Client(house.port) as c:
        c.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n{")
        began = time.monotonic()
        while not c.got and time.monotonic() - began < 20:
            c.s.settimeout(.25)
            try:
                c.got += c.s.recv(65536)
            except socket.timeout:
                c.send(b" " * 64)
        c.s.settimeout(20)
        ends.put((c.answer(), time.monotonic() - began))


def body_that_stops(ends):
    """What came fast is no right to be silent for long: 50,000 bytes at once, and then none, are too slow after 30 s."""
    with raw.Client(house.port, limit_s=70) as c:
        began = time.monotonic()
        c.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n" + b" " * 50000)
        ends.put((c.answer(), time.monotonic() - began))


def slow_head():
    """One byte now and then does not keep a head alive: timeouts.head is for all of it."""
    with raw.Client(house.port) as c:
        began = time.monotonic()
        c.send(b"POST /v1/completions HTTP/1.1\r\nX-Slow: ")
        while not c.got and time.monotonic() - began < 20:
            c.s.settimeout(.2)
            try:
                c.got += c.s.recv(65536)
            except socket.timeout:
                c.send(b"x")
        c.s.settimeout(20)
        status, _, body, _ = c.answer()
        assert status == 408 and b"request_timeout" in body and .9 < time.monotonic() - began < 10, (status, body)
        assert c.ended() in ("eof", "reset")


def slow_reader():
    """Who reads nothing for timeouts.writeStall is closed, and its worker is free."""
    gone = threading.Event()

    def pour(s):
        try:
            s.sendall(SSE)
            while True:
                s.sendall(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
        except OSError:
            gone.set()

    script.put(pour)
    c = raw.Client(house.port).send(raw.post(MODEL))
    heard.get(timeout=20)
    assert gone.wait(20), "the worker is held by a client that does not read"
    g.h.until("nothing to be in flight", lambda: live() == 0)
    c.s.close()


def half_closed_body():
    """The end of a client's stream within its request is no request, whatever the gateway believes of half-closes."""
    with raw.Client(house.port) as c:
        c.send(raw.post(MODEL)[:-1])
        g.h.until("it to be there", lambda: live() == 1)
        c.s.shutdown(socket.SHUT_WR)
        assert c.ended() == "eof"
    g.h.until("nothing to be in flight", lambda: live() == 0)
    assert heard.empty()


def half_close_is_served():
    # before the decision
    script.put(answer)
    policies = house.pids("policy")
    for pid in policies:
        os.kill(pid, signal.SIGSTOP)
    with raw.Client(house.port) as c:
        try:
            c.send(raw.post(MODEL)).s.shutdown(socket.SHUT_WR)
            g.h.until("it to be asked about", lambda: live() == 1)
        finally:
            for pid in policies:
                os.kill(pid, signal.SIGCONT)
        assert c.answer()[::3] == (200, "clean") and c.ended() == "eof"
        heard.get(timeout=20)

    # while it waits, and in the middle of a stream
    for begins, ends in (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone"), (SSE, b"6\r\ndata: \r\n0\r\n\r\n"):
        shut = threading.Event()

        def play(s):
            s.sendall(begins)
            assert shut.wait(20)
            s.sendall(ends)

        script.put(play)
        with raw.Client(house.port) as c:
            c.send(raw.post(MODEL))
            heard.get(timeout=20)
            while begins and b"\r\n\r\n" not in c.got:
                c.more()
            c.s.shutdown(socket.SHUT_WR)
            shut.set()
            assert c.answer()[::3] == (200, "clean") and c.ended() == "eof"

    # pipelined: all that was asked is answered
    for _ in range(3):
        script.put(answer)
    with raw.Client(house.port) as c:
        c.send(raw.post(MODEL) * 3).s.shutdown(socket.SHUT_WR)
        for _ in range(3):
            assert c.answer()[::3] == (200, "clean")
            heard.get(timeout=20)
        assert c.ended() == "eof"

    # and a reset is the end all the same
    gone = threading.Event()

    def play(s):
        try:
            while s.recv(65536):
                pass
        except OSError:
            pass
        gone.set()

    script.put(play)
    c = raw.Client(house.port).send(raw.post(MODEL))
    heard.get(timeout=20)
    g.reset(c.s)
    assert gone.wait(20)


for believes, timeouts in ("gone", ", head: 1s, writeStall: 1s"), ("serve", ""):
    with g.Group([g.Scenario(MODEL, workers="a", door=Worker)], BACKEND,
                 f"  client: {{halfClose: {believes}}}\n  timeouts: {{keepAlive: 60s{timeouts}}}") as house:
        house.start()
        if believes == "gone":
            ends, stops = queue.Queue(), queue.Queue()
            threading.Thread(target=slow_body, args=(ends,), daemon=True).start()
            g.h.until("it to be there", lambda: live() == 1)
            threading.Thread(target=body_that_stops, args=(stops,), daemon=True).start()
            g.h.until("both to be there", lambda: live() == 2)
            stopped.set()
            slow_head()
            (status, _, body, _), took = ends.get(timeout=30)
            assert status == 408 and b"request_timeout" in body and took > 9.5, (status, body, took)
            slow_reader()
        else:
            half_close_is_served()
        half_closed_body()
        if believes == "gone":
            (status, _, body, _), took = stops.get(timeout=70)
            assert status == 408 and b"request_timeout" in body and 29 < took < 50, (status, body, took)
            stopped.clear()
        house.settle()
print(f"ok ({BACKEND})")
