"""What broke other gateways does not break here: each reported case of HTTP and request JSON, its sentence and its outcome.
reported.py BACKEND"""
import json, os, pathlib, queue, signal, socket, sys, threading, time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import group as g
import raw

BACKEND = sys.argv[1]
CASES = g.h.ROOT / "tests/data/cases"
os.environ.setdefault("ASAN_OPTIONS", "abort_on_error=1")
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
script = queue.SimpleQueue()            # functions of (connection), one a request; they return False to end it
heard = queue.SimpleQueue()             # (connection's number, head, body)
proven = []


class Worker(raw.Played):
    connections = 0

    @staticmethod
    def play(s, seen):
        Worker.connections += 1
        me = Worker.connections
        while True:
            head, body = raw.whole_request(s, seen)
            if not head:
                return
            heard.put((me, head, body))
            if script.get(timeout=30)(s) is False:
                return
            seen = b""


def says(data, end="keep"):
    """A worker's answer, and what it does then."""
    def play(s):
        for piece in [data] if isinstance(data, bytes) else data:
            s.sendall(piece)
        if end == "reset":
            g.reset(s)
        return end == "keep"
    return play


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def case(name):
    return (CASES / name).read_bytes()


def post(body, path="/v1/chat/completions", more=b""):
    return (b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n"
            % (path.encode(), more, len(body))) + body


def ask(body, play=None, **how):
    """The answer to it, and what the worker heard: None when nothing."""
    script.put(play or says(JSON)) if play is not False else None
    with raw.Client(house.port) as c:
        answer = c.send(post(body, **how)).answer()
    if play is False:
        assert heard.empty(), heard.get()
        return answer, None
    return answer, heard.get(timeout=20)[2]


def prove(f):
    f()
    proven.append(f.__name__)
    print("ok ", f.__name__.split("_")[0].upper(), "", " ".join(f.__doc__.split()), flush=True)


def outcome(headers):
    told = g.json.loads(house.ctl("explain", headers["x-pointsman-request-id"], "--output", "json").stdout)
    return told["outcome"]


# --- HTTP ---------------------------------------------------------------------------------------

def ht02_usage_is_seen_whatever_the_line_ends():
    """The engine's usage is read from every form of event stream, and every byte passes."""
    split = json.loads(case("ht/ht02_crlf_split.json"))
    streams = [(name, [case(f"ht/{name}")]) for name in ("ht02_crlf.sse", "ht02_cr_only.sse", "ht02_nospace.sse",
                                                         "ht17_include_usage.sse")]
    streams.append(("split", [bytes.fromhex(c) for c in split["chunks_hex"]]))
    for name, pieces in streams:
        answer, _ = ask(case("rq/rq07_pair.json"), says([SSE, *(chunk(p) for p in pieces), b"0\r\n\r\n"]))
        status, headers, body, end = answer
        assert (status, end, body) == (200, "clean", b"".join(pieces)), (name, answer)
        if b"usage" in body:
            assert outcome(headers)["prompt_tokens"] == 9 and outcome(headers)["completion_tokens"] == 2, (name, outcome(headers))


def ht06_a_stale_connection_is_never_visible():
    """A pooled connection that the worker ended, or reset under the request, costs one new connection and no error; once
    an answer has begun nothing is sent again."""
    body = case("rq/rq07_pair.json")
    for how in ("eof", "reset"):
        # Ended while idle: seen before the next request.
        closed = threading.Event()

        def ends(s):
            s.sendall(JSON)
            if how == "reset":
                g.reset(s)
            else:
                s.shutdown(socket.SHUT_WR)
                s.recv(1)               # and so is our side
            closed.set()
            return False

        before = Worker.connections
        assert ask(body, ends)[0][::3] == (200, "clean")
        assert closed.wait(20)
        answer, _ = ask(body)
        assert answer[::3] == (200, "clean") and Worker.connections - before <= 2, (how, answer)
        # Ended under the request, no byte of an answer: sent once more, on a new connection.
        script.put(says(b"", how))
        answer, _ = ask(body)
        assert answer[0] == 200 and answer[1]["x-pointsman-attempts"] == "2", (how, answer)
        heard.get(timeout=20)
        # With a byte of it: never again.
        answer, _ = ask(body, says(b"HTTP/1.1 200 OK\r\n", how))
        assert answer[0] == 502 and heard.empty(), (how, answer)
        ask(body)                       # leaves one in the pool for the next round


def ht07_a_client_that_leaves_frees_its_worker():
    """A client that goes, in order or by reset, before a decision, before the answer's head, before its first event, in the
    middle of it, or with no stream (while its worker is connected to: ht07_ht16): the worker's connection is closed at once,
    nothing stays in flight, and the worker is not blamed."""
    body, slowest = case("rq/rq07_pair.json"), 0

    def leave(c, how):
        g.reset(c.s) if how == "reset" else c.s.close()

    def window(begins):
        gone = threading.Event()

        def play(s):
            s.sendall(begins)
            try:
                while s.recv(65536):
                    pass
            except OSError:
                pass
            gone.set()
            return False
        return play, gone

    for begins in (b"", SSE, SSE + chunk(b"data: {}\n\n"), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"):
        for how in ("eof", "reset"):
            play, gone = window(begins)
            script.put(play)
            c = raw.Client(house.port).send(post(body))
            heard.get(timeout=20)
            while begins and b"\r\n\r\n" not in c.got:
                c.more()
            left = time.monotonic()
            leave(c, how)
            assert gone.wait(20), (begins, how)
            slowest = max(slowest, time.monotonic() - left)

    def live():
        return house.stat()["requests"]["live"]

    g.h.until("nothing to be in flight", lambda: live() == 0)
    for how in ("eof", "reset"):        # before a decision: whoever decides stands still
        policies = house.pids("policy")
        for pid in policies:
            os.kill(pid, signal.SIGSTOP)
        try:
            c = raw.Client(house.port).send(post(body))
            g.h.until("it to be asked about", lambda: live() == 1)
            leave(c, how)
            g.h.until("its outcome", lambda: house.stat()["requests"]["cancelled"] > 8)
        finally:
            for pid in policies:
                os.kill(pid, signal.SIGCONT)
        g.h.until("nothing to be in flight", lambda: live() == 0)
    assert heard.empty()
    up = g.json.loads(house.ctl("workers", "--output", "json").stdout)["workers"]
    assert all(w["prefilling"] == w["pending_tokens"] == 0 for w in up), up
    assert ask(body)[0][0] == 200       # and is asked again as if nothing had been
    print(f"    the slowest worker heard of it after {slowest * 1000:.1f} ms")


def ht16_each_silence_has_its_own_limit():
    """Silence before the answer is 504, silence within it a cut that is told, and neither is a limit of the whole: an answer
    may last longer than both."""
    body = case("rq/rq07_pair.json")
    ended = threading.Event()

    def silent(s):
        try:
            s.recv(1)
        except OSError:
            pass
        ended.set()
        return False

    answer, _ = ask(body, silent)
    assert answer[0] == 504 and answer[3] == "clean" and json.loads(answer[2])["error"]["code"] == "upstream_timeout", answer
    assert ended.wait(20)               # and its worker is free

    def stops(s):
        s.sendall(SSE + chunk(b"data: {}\n\n"))
        return silent(s)

    status, _, got, end = ask(body, stops)[0]
    assert status == 200 and end == "eof" and got.startswith(b"data: {}\n\n") and b"upstream_timeout" in got, (status, got, end)

    def lasts(s):
        s.sendall(SSE)
        for i in range(10):             # 2.5 s in all: each silence a quarter of what is allowed
            threading.Event().wait(.25)
            s.sendall(chunk(b"data: %d\n\n" % i))
        s.sendall(b"0\r\n\r\n")

    status, _, got, end = ask(body, lasts)[0]
    assert (status, end) == (200, "clean") and got.count(b"data") == 10, (status, got, end)


def ht07_ht16_a_connection_has_a_limit_too():
    """A worker that lets nobody in is given up at the connection's own limit, and the next one answers; a client that leaves
    meanwhile leaves nothing."""
    cancelled = house.stat()["requests"]["cancelled"]
    c = raw.Client(house.port).send(post(json.dumps({"model": "deaf", "prompt": "hi"}).encode(), path="/v1/completions"))
    g.h.until("it to be on its way", lambda: house.stat()["requests"]["live"] == 1)
    c.s.close()
    g.h.until("its outcome", lambda: house.stat()["requests"]["cancelled"] == cancelled + 1 or not heard.empty())
    answer, body = ask(json.dumps({"model": "deaf", "prompt": "hi"}).encode(), path="/v1/completions")
    assert answer[0] == 200 and answer[1]["x-pointsman-worker"] == "b" and answer[1]["x-pointsman-attempts"] == "2", answer


def ht18_every_event_arrives_before_the_next_is_made():
    """No event waits for another: the worker makes the next one only when the client has the last."""
    arrived = threading.Semaphore(0)

    def lockstep(s):
        s.sendall(SSE)
        for i in range(50):
            s.sendall(chunk(b"data: %012d\n\n" % i))
            assert arrived.acquire(timeout=20), f"event {i} was kept back"
        s.sendall(b"0\r\n\r\n")

    for body in (case("rq/rq07_pair.json"), case("rq/rq03_extra_fields.json").replace(b'"std"', b'"demo-8b"')):
        script.put(lockstep)
        with raw.Client(house.port) as c:
            c.send(post(body))
            for i in range(50):
                while b"data: %012d\n\n" % i not in c.got:
                    c.more()
                arrived.release()
            answer = c.answer()
        assert answer[::3] == (200, "clean") and answer[2].count(b"data") == 50, answer
        heard.get(timeout=20)


# --- request JSON -------------------------------------------------------------------------------

def rq_passes_untouched():
    """rq02 rq03 rq05 rq06 rq07 rq08 rq10 rq12: roles, unknown fields, big numbers, order, half emoji, repeated inner keys,
    nulls: the worker gets the very bytes, twice the same."""
    for name in ("rq02_roles", "rq03_extra_fields", "rq05_bigint", "rq06_tools_order", "rq07_lone_high", "rq07_lone_low", "rq07_pair",
                 "rq07_escaped_key", "rq08_nested_dup_ok", "rq08_case_variant_ok", "rq10_both", "rq10_null", "rq12_nulls"):
        body = case(f"rq/{name}.json")
        for _ in range(2):
            answer, got = ask(body)
            assert answer[0] == 200 and got == body, (name, answer, got)


def rq03_an_alias_changes_its_own_bytes_only():
    """rq03 rq05 rq06: where the model is an alias, its value is replaced in place and no other byte."""
    for name in ("rq03_extra_fields", "rq05_bigint", "rq06_tools_order"):
        body = case(f"rq/{name}.json")
        said = body.replace(b'"std"', b'"std-by-another-n\\u0061me"')
        assert said != body
        answer, got = ask(said)
        assert answer[0] == 200 and answer[1]["x-pointsman-alias"] == "std-by-another-name" and got == body, (name, answer, got)


def rq07_an_engine_s_4xx_is_passed_on_once():
    """What the engine refuses it refuses: its 400 reaches the client as it is, and is sent to nobody else."""
    said = b'{"error":{"message":"surrogates not allowed"}}'
    answer, _ = ask(case("rq/rq07_lone_high.json"), says(b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n" % len(said) + said))
    assert answer[0] == 400 and answer[2] == said and answer[1]["x-pointsman-attempts"] == "1" and heard.empty(), answer


def rq07_raw_bytes_that_are_no_text():
    """Bytes that are no UTF-8 are no JSON: 400 that says so and where, never a 500, and no worker hears it."""
    status, _, got, _ = ask(case("rq/rq07_raw_invalid_utf8.json"), False)[0]
    assert status == 400 and b"UTF-8" in got and b"byte" in got, (status, got)


def rq08_what_is_said_twice_is_refused():
    """model or stream twice at the top, in whatever spelling, is 400 and no worker hears it."""
    for name in ("rq08_dup_model", "rq08_dup_escaped", "rq08_dup_stream"):
        status, _, got, _ = ask(case(f"rq/{name}.json"), False)[0]
        assert status == 400 and b"given twice" in got, (name, status, got)


def rq12_only_true_streams_and_a_model_is_a_text():
    """A model that is absent, null, empty or no text, a body that is no object or has something behind it: 400, and the
    connection goes on; a byte order mark in front is passed on."""
    with raw.Client(house.port) as c:
        for line in case("rq/rq12_model_types.jsonl").splitlines():
            said = json.loads(line)
            body = said["body"].encode()
            if said["expect"].startswith("accept"):         # a byte order mark: passed over, and on
                script.put(says(JSON))
                assert c.send(post(body)).answer()[0] == 200
                assert heard.get(timeout=20)[2] == body
                continue
            status, _, got, end = c.send(post(body)).answer()
            assert (status, end) == (400, "clean") and json.loads(got)["error"]["message"], (said, status, got)
        assert heard.empty()
        script.put(says(JSON))
        assert c.send(post(case("rq/rq12_nulls.json"))).answer()[0] == 200
        heard.get(timeout=20)


class Deaf(g.Door):
    """Answers probes until it is told to let nobody in: then connections to it hang."""

    def deafen(self):
        self.wait_probes(1)
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.full = socket.socket()
        self.full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.full.bind(("127.0.0.1", self.port))
        self.full.listen(0)
        self.fillers = []
        while True:                     # until the queue is full: then nobody is let in
            s = socket.socket()
            s.settimeout(.2)
            self.fillers.append(s)
            try:
                s.connect(("127.0.0.1", self.port))
            except TimeoutError:
                return


kinds = iter((Deaf, Worker))
deaf = g.Scenario("deaf", door=lambda: next(kinds)())
with g.Group([g.Scenario(m, workers="a", door=Worker) for m in ("demo-8b", "std", "allowed-model")] + [deaf], BACKEND,
             "  timeouts: {firstByte: 1s, interChunk: 1s, connect: 500ms}") as house:
    house.start()
    for f in (ht02_usage_is_seen_whatever_the_line_ends, ht06_a_stale_connection_is_never_visible,
              ht07_a_client_that_leaves_frees_its_worker,
              ht16_each_silence_has_its_own_limit, ht18_every_event_arrives_before_the_next_is_made,
              rq_passes_untouched, rq03_an_alias_changes_its_own_bytes_only, rq07_an_engine_s_4xx_is_passed_on_once,
              rq07_raw_bytes_that_are_no_text, rq08_what_is_said_twice_is_refused,
              rq12_only_true_streams_and_a_model_is_a_text):
        prove(f)
    deaf.doors["a"].deafen()
    prove(ht07_ht16_a_connection_has_a_limit_too)
    print(house.settle())
print(f"{len(proven)} sentences proven ({BACKEND})")
