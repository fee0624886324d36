"""Hostile clients and an evil worker, at random but seeded, beside a good client and a good worker: the good ones
never notice, and at the end nothing is charged, nobody died, no descriptor and no memory is lost.
hostile.py BACKEND [ROUNDS [SEED]]"""
import os, pathlib, random, select, socket, sys, threading, time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import group as g
import raw

BACKEND = sys.argv[1]
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 400
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 20260930
BODY_MAX = 64 * 1024
os.environ.setdefault("ASAN_OPTIONS", "abort_on_error=1")
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"


# --- workers ------------------------------------------------------------------------------------

def echo(s, seen):
    """The good worker: says what it heard."""
    while seen:
        head, body = raw.whole_request(s, seen)
        s.sendall(JSON % (len(body), body))
        seen = s.recv(65536)


class Good(raw.Played):
    play = staticmethod(echo)


def forever(s, piece, limit=64 << 20):
    """Until the other side has had enough; it has to, long before the limit."""
    for _ in range(limit // len(piece)):
        s.sendall(piece)
    print(f"UNBOUNDED: took {limit} bytes of {piece[:40]!r}", flush=True)
    unbounded.append(piece[:40])


unbounded = []
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKS = HEAD + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
GARBAGE = (                                     # in place of an answer, all of it, then silence or an end
    b"", b"\0", b"\r\n" * 50, b"HTTP/1.1", b"HTTP/1.1 200", b"HTTP/0.9 200 OK\r\n\r\n", b"HTTP/2 200\r\n\r\n",
    b"HTTP/1.1 99 x\r\n\r\n", b"HTTP/1.1 1000 x\r\n\r\n", b"HTTP/1.1 2x0 x\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    HEAD + b"Content-Length: -1\r\n\r\n", HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    HEAD + b"Content-Length: 99999999999999999999999999\r\n\r\n", HEAD + b"Content-Length: 1, 1\r\n\r\na",
    HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", HEAD + b"A: b\0c\r\n\r\n", HEAD + b"A b\r\n\r\n",
    HEAD + b": b\r\n\r\n", HEAD + b"A: b\r\n c\r\n\r\n", HEAD + b"X: " + b"y" * 70000 + b"\r\n\r\n", HEAD + b"A: b\r\n" * 1000 + b"\r\n",
    CHUNKS + b"x\r\n", CHUNKS + b"-1\r\n", CHUNKS + b"fffffffffffffffff\r\n", CHUNKS + b"5\r\nabcdefgh", CHUNKS + b"1;" + b"e" * 5000,
    CHUNKS + b"0\r\n" + b"T: t\r\n" * 5000, CHUNKS + b"5\nabcde\r\n0\r\n\r\n", HEAD.replace(b"\r\n", b"\n") + b"\n",
    HEAD + b"Transfer-Encoding: gzip\r\n\r\nabc", HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 20, HEAD + b"Content-Length: 2\r\n\r\n{}" * 2, b"SSH-2.0-OpenSSH_9.2\r\n",
    *(b"HTTP/1.1 %d Busy\r\nContent-Length: 0\r\n\r\n" % status for status in (503, 429, 503, 500)),
)


def evil(s, seen):
    rng = random.Random(int.from_bytes(seen[-24:], "big") ^ SEED)
    how = rng.randrange(10)
    if how == 0:                                # before the request is read
        pass
    elif how == 1:
        seen = b""
        s.sendall(rng.choice(GARBAGE))
    else:
        raw.whole_request(s, seen)
    if how == 2:
        s.sendall(HEAD)
        forever(s, b"X-%d: y\r\n" % rng.randrange(10))
    elif how == 3:
        forever(s, b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n" * 20 if rng.randrange(2) else b"H" * 1000)
    elif how == 4:
        s.sendall(CHUNKS)
        forever(s, b"ff\r\n" + b"z" * 255 + b"\r\n")
    elif how == 5:
        s.sendall(HEAD + b"\r\n")
        forever(s, rng.randbytes(4096))
    elif how == 6:
        s.sendall(CHUNKS)
        forever(s, rng.choice((b"1\r\na\r\n" * 100, b"000000000000001\r\na\r\n" * 50, b"1;x=y\r\na\r\n" * 10)))
    elif how == 7:
        answer = bytearray(CHUNKS + b"5\r\nhello\r\n0\r\n\r\n")
        for _ in range(rng.randrange(1, 4)):
            answer[rng.randrange(len(answer))] = rng.randrange(256)
        s.sendall(answer[:rng.randrange(len(answer) + 1)])
    elif how == 8:
        s.sendall(rng.randbytes(rng.randrange(1, 3000)))
    elif how == 9:
        s.sendall(rng.choice(GARBAGE))
    end = rng.randrange(3)
    if end == 0:
        g.reset(s)
    elif end == 1:
        s.shutdown(socket.SHUT_WR)
        s.settimeout(30)
        while s.recv(65536):
            pass


class Evil(raw.Played):
    play = staticmethod(evil)


# --- clients ------------------------------------------------------------------------------------

VALID = raw.post("good")


def mutate(rng, data):
    data = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        i = rng.randrange(len(data) + 1)
        how = rng.randrange(5)
        if how == 0 and i < len(data):
            data[i] = rng.randrange(256)
        elif how == 1:
            data[i:i] = rng.choice((b"\r\n", b"\n", b"\0", b" ", b":", b"\r\n\r\n", b"Content-Length: 3\r\n", b"9" * 30,
                                    b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"HTTP/1.0"))
        elif how == 2:
            del data[i:i + rng.randrange(1, 20)]
        elif how == 3:
            data[i:i] = data[rng.randrange(len(data) + 1):][:100]
        else:
            del data[i:]
    return bytes(data)


def flood(c, first, piece, most=8 << 20):
    """Send until refused, by words or by force; it has to be."""
    c.send(first)
    for _ in range(most // len(piece)):
        c.send(piece)
        if select.select([c.s], [], [], 0)[0]:
            status, _, _, end = c.answer()
            if status not in (400, 408, 413, 414, 431, 501) or end == "timeout":
                raise AssertionError(f"a flood was answered {status} {end}: {piece[:40]}")
            return
    unbounded.append(piece[:40])


def attack(rng):
    with raw.Client(house.port, 30) as c:
        how = rng.randrange(14)
        try:
            if how == 0:
                c.send(rng.randbytes(rng.randrange(1, 5000)))
            elif how <= 4:
                c.send(b"".join(mutate(rng, VALID) for _ in range(rng.randrange(1, 4))))
            elif how == 5:
                flood(c, b"GET /v1/models HTTP/1.1\r\nHost: x\r\n", b"X-%d: y\r\n" % rng.randrange(10) * 100)
            elif how == 6:
                flood(c, b"", rng.choice((b"A" * 1000, b"\r\n" * 500, b"GET " * 250)))
            elif how == 7:
                flood(c, b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
                      rng.choice((b"400\r\n" + b" " * 1024 + b"\r\n", b"1\r\n{\r\n" * 100, b"1;" + b"e" * 900 + b"\r\n{\r\n")))
            elif how == 8:
                c.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n" + b"[" * 60000)
            elif how == 9:
                c.send(VALID * rng.randrange(1, 2000))  # pipelined, and nothing read
            elif how == 10:
                c.send(VALID[:rng.randrange(len(VALID) + 1)])
            else:                                       # well-formed, to the evil worker
                c.send(raw.post("evil", stream=rng.randrange(2) == 0, salt=rng.getrandbits(64)))
                if rng.randrange(3):
                    # Some part of the answer, at most: an endless one is left, and its worker must be told.
                    end = time.monotonic() + .3
                    while time.monotonic() < end and len(c.got) < 1 << 20:
                        c.s.settimeout(.1)
                        c.more()
            if rng.randrange(2):
                c.s.settimeout(.02)
                c.more()
        except (raw.Ended, ConnectionError, socket.timeout):
            pass
        if rng.randrange(2):
            g.reset(c.s)


def good_client(state):
    """One after another on one connection; any surprise is a failure."""
    n = 0
    try:
        with raw.Client(house.port, 30) as c:
            while not state["stop"]:
                n += 1
                request = raw.post("good", stream=False, n_th=n)
                began = time.monotonic()
                status, _, body, end = c.send(request).answer()
                took = time.monotonic() - began
                if (status, end) != (200, "clean") or body != request.split(b"\r\n\r\n", 1)[1]:
                    raise AssertionError(f"the good client's {n}th answer: {status} {end} {body[:300]}")
                state["slowest"] = max(state["slowest"], took)
                time.sleep(.002)
    except Exception as e:
        state["error"] = e
    state["good"] = n


def fds(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def storm(rng, rounds):
    """Several attackers at once, each with its own seed."""
    def one(seed):
        mine = random.Random(seed)
        for _ in range(rounds // 4):
            try:
                attack(mine)
            except Exception as e:
                errors.append(e)
                return

    errors = []
    threads = [threading.Thread(target=one, args=(rng.getrandbits(64),)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


with g.Group([g.Scenario("good", workers="a", door=Good), g.Scenario("evil", workers="ab", door=Evil)], BACKEND,
             "  timeouts: {head: 1s, keepAlive: 2s, upstreamKeepAlive: 200ms, firstByte: 2s, interChunk: 1s, "
             "writeStall: 1s}") as house:
    house.start()
    rng = random.Random(SEED)
    print(f"seed {SEED}, {2 * ROUNDS} attacks ({BACKEND})", flush=True)
    everybody = {p["pid"]: p["role"] for p in house.stat()["processes"]}
    ingress = house.pids("ingress", "ready")[0]
    state = {"stop": False, "slowest": 0, "good": 0, "error": None}
    with raw.Client(house.port) as c:
        assert c.send(raw.post("good")).answer()[0] == 200
    idle = fds(ingress)
    good = threading.Thread(target=good_client, args=(state,))
    good.start()
    storm(rng, ROUNDS)
    half = g.rss_kib(ingress)
    storm(rng, ROUNDS)
    full = g.rss_kib(ingress)
    state["stop"] = True
    good.join()
    if state["error"]:
        raise state["error"]
    assert state["good"] > 100, state
    assert not unbounded, unbounded
    print(house.settle())
    g.h.until(f"the ingress's descriptors to be {idle} again", lambda: fds(ingress) <= idle)
    assert {p["pid"]: p["role"] for p in house.stat()["processes"]} == everybody
    # The second half needs no more memory than the first.
    print(f"good answers {state['good']}, slowest {state['slowest'] * 1000:.0f} ms; {half} then {full} KiB")
    assert full - half < (262144 if g.sanitized(ingress) else 8192), (half, full)
    with raw.Client(house.port) as c:
        assert c.send(raw.post("good")).answer()[0] == 200
