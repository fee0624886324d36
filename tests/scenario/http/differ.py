"""Random answers of workers and random requests of clients, cut at random, become on the other side exactly what a plain
reference says: bytes, framing, kind of end, and which connections are used again.
differ.py BACKEND [CASES [SEED]] [tls]: with `tls` clients speak TLS, and a cut is one without close_notify.

Each lane is a model with one worker and one client, one thing after another, so that it is known on which connection
the next request must come.  On a difference it prints the case; the same seed makes the same cases.
"""
import json, os, pathlib, queue, random, re, socket, ssl, sys, tempfile, threading, time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import group as g
import pki
import raw
import reference as R

TLS = "tls" in sys.argv
BACKEND, *numbers = [a for a in sys.argv[1:] if a != "tls"]
CASES, SEED = [int(n) for n in numbers] + [2000, 20261130][len(numbers):]
LANES, BODY_MAX, LIMIT_S = 6, 64 * 1024, 30
os.environ.setdefault("ASAN_OPTIONS", "abort_on_error=1")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
OURS = re.compile(rb"x-pointsman-|x-request-id$|connection$|content-length$|transfer-encoding$|keep-alive$")


class Differs(Exception):
    pass


def same(what, got, want):
    if got != want:
        raise Differs(f"{what}: got {got!r}, the reference says {want!r}")


# --- generators ---------------------------------------------------------------------------------

def cased(rng, name):
    return rng.choice((name, name, name.lower(), name.upper()))


def field(rng, name, value):
    return cased(rng, name) + b":" + rng.choice((b" ", b" ", b"", b"\t ")) + value + rng.choice((b"", b"", b" ", b"\t"))


def some_fields(rng):
    out = []
    for _ in range(rng.choice((0, 1, 2, 5, 30))):
        out.append(rng.choice((
            (b"X-A", b"b"), (b"X-Empty", b""), (b"Server", b"uvicorn"), (b"Date", b"Mon, 30 Nov 2026 10:00:00 GMT"),
            (b"Set-Cookie", b"a=b; Path=/"), (b"X-Obs", b"\xe9\xff"), (b"X-Long", b"y" * rng.randrange(3000)),
            (b"Connection", b"X-Hop"), (b"X-Hop", b"1"), (b"Connection", b"keep-alive, x-other ,"), (b"X-Other", b"2"),
            (b"Keep-Alive", b"timeout=60, max=100"), (b"Proxy-Thing", b"3"), (b"TE", b"trailers"), (b"Trailer", b"X-Sum"),
            (b"Upgrade", b"h2c"), (b"X-Pointsman-Worker", b"liar"), (b"x-request-id", b"theirs"), (b"!#$%&'*+-.^_`|~", b"t"))))
    return out


def chunked(rng, body):
    out, at = [], 0
    while at < len(body):
        n = min(len(body) - at, rng.choice((1, 2, 15, 16, 100, 5000, 70000)))
        size = rng.choice((b"%x", b"%X", b"0%x", b"%016x")) % n
        out.append(size + rng.choice((b"", b"", b"", b";a", b";a=\"b c\"")) + b"\r\n" + body[at:at + n] + b"\r\n")
        at += n
    out.append(rng.choice((b"0", b"0", b"0", b"000", b"0;last")) + b"\r\n")
    out += [b"X-Sum: %d\r\n" % i for i in range(rng.choice((0, 0, 0, 1, 3)))]
    return b"".join(out) + b"\r\n"


def event_stream(rng):
    out = [rng.choice((b"", b"", b"", b"\xef\xbb\xbf"))]
    for _ in range(rng.choice((0, 1, 3, 20))):
        end = rng.choice((b"\n", b"\n", b"\r\n", b"\r"))
        out.append(rng.choice((
            b"data: {\"choices\":[{\"delta\":{\"content\":\"%x\"}}]}" % rng.getrandbits(32) + end + end, b": ping" + end + end,
            b":" + end, b"data:{}" + end + end, b"event: x" + end + b"id: 7" + end + b"data: a" + end + b"data: b" + end + end,
            b"data: {\"error\": {\"message\": \"no\"}}" + end + end, b"data" + end + end, end, b"data: " + b"z" * 6000 + end + end,
            b"data: {\"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 4}}" + end + end)))
    out.append(rng.choice((b"", b"data: [DONE]\n\n", b"data:[DONE]\r\n\r\n", b"data: [DONE]\r\r", b"data: [DONE]\n", b"data: half")))
    return b"".join(out)


def worker_says(rng):
    """Bytes of an answer, most of them right."""
    interim = b"".join(rng.choice((b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
                                   b"HTTP/1.0 102 \r\nContent-Length: 3\r\n\r\n"))
                       for _ in range(rng.choice((0, 0, 0, 0, 1, 3))))
    status = rng.choice((200,) * 12 + (201, 204, 204, 304, 400, 404, 422, 429, 500, 503, 599))
    streams = rng.random() < .5
    body = event_stream(rng) if streams else rng.randbytes(rng.choice((0, 1, 2, 50, 1500, 20000)))
    if rng.random() < .01:
        body += b"data: " + b"l" * 700000 + b"\n\n"
    fields = some_fields(rng)
    if streams or rng.random() < .5:
        fields.append((b"Content-Type", rng.choice((b"text/event-stream", b"Text/Event-Stream; charset=utf-8"))
                       if streams else b"application/json"))
    if rng.random() < .05:
        fields.append((b"Content-Encoding", rng.choice((b"gzip", b"identity"))))
    fields += rng.choice(((),) * 12 + (((b"Connection", b"close"),), ((b"Connection", b"Keep-Alive"),),
                                       ((b"Keep-Alive", b"timeout=0"),), ((b"Keep-Alive", b"timeout=1, max=9"),)))
    framing = rng.choice(("chunked",) * 5 + ("length",) * 4 + ("close",))
    if framing == "chunked":
        fields.append((b"Transfer-Encoding", rng.choice((b"chunked", b"chunked", b"Chunked"))))
        sent = chunked(rng, body)
    else:
        sent = body
        if framing == "length":
            fields += rng.choice(([(b"Content-Length", b"%d")],) * 5 + ([(b"Content-Length", b"%d, %d")],
                                 [(b"Content-Length", b"00%d")], [(b"Content-Length", b"%d")] * 2))
    fields = [(n, v.replace(b"%d", b"%d" % len(body))) for n, v in fields]
    rng.shuffle(fields)
    if status in (204, 304) and rng.random() < .8:
        sent = b""
    version = rng.choice((b"1",) * 9 + (b"0",))
    head = [b"HTTP/1.%s %d%s" % (version, status, rng.choice((b" OK", b" Whatever It Is \xe9", b" ", b"")))]
    head += [field(rng, n, v) for n, v in fields]
    if rng.random() < .12:              # one defect in the head
        head.insert(rng.randrange(1, len(head) + 1), rng.choice((
            b"Content-Length: 1", b"Content-Length: 999999999999999999999", b"Content-Length: -1", b"Content-Length:",
            b"Content-Length: +2", b"Content-Length: 2 2", b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked",
            b"Transfer-Encoding: gzip, chunked", b" folded", b"no colon", b"X Y: z", b"X: a\0b", b": nameless", b"X : y",
            b"X: a\rb", b"X: a\nY: b", b"Connection: close")))
    elif rng.random() < .04:
        head[0] = rng.choice((b"HTTP/1.1  200 OK", b"HTTP/2 200", b"http/1.1 200 OK", b"HTTP/1.1 99 x", b"HTTP/1.1 600 x",
                              b"HTTP/1.1 200OK", b"HTTP/1.1 101 Switching", b"HTTP/1.1 2000 OK", b"ICY 200 OK", b"", b"\0"))
    said = b"\r\n".join(head) + b"\r\n\r\n" + sent
    if rng.random() < .1:               # bytes lost, doubled or changed, anywhere
        i = rng.randrange(len(said))
        said = rng.choice((said[:i] + said[i + 1:], said[:i] + said[i:i + 1] + said[i:],
                           said[:i] + bytes((rng.randrange(256),)) + said[i + 1:]))
    if rng.random() < .05:
        said += rng.choice((b"\r\n", b"stray", OK, b"0\r\n\r\n"))
    return interim + said


def cut(rng, data):
    """The same bytes in pieces."""
    at = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 0, 1, 2, 5, 20)))) if data else []
    if data and len(data) < 300 and rng.random() < .1:
        at = range(1, len(data))
    return [p for b, e in zip([0, *at], [*at, len(data)]) if (p := data[b:e])]


def client_asks(rng, model):
    """One request, most of them right, and whether another may stand behind it."""
    minor = rng.choice((1,) * 9 + (0,))
    text = json.dumps({"model": model, "prompt": "x" * rng.choice((0, 10, 1000, 30000)), "n": 1},
                      indent=rng.choice((None, None, 3)))
    body = text.encode()
    how = rng.random()
    if how < .04:
        body = rng.choice((b"", b"{", b"[]", b"null", body + b"x", b"{\"model\": 5}", b"{\"model\": \"nobody\"}"))
    elif how < .06:
        body = b" " * (BODY_MAX - len(body) + rng.choice((0, 1, 9000))) + body
    method, path = rng.choice(((b"POST", b"/v1/completions"),) * 12 + (
        (b"GET", b"/v1/models"), (b"HEAD", b"/v1/models"), (b"GET", b"/v1/models/" + model.encode()), (b"GET", b"/v1/completions"),
        (b"DELETE", b"/v1/models"), (b"POST", b"/v1/nothing"), (b"POST", b"/v1/completions?a=/b?c"), (b"BREW", b"/")))
    if method in (b"GET", b"HEAD"):
        body = b""
    fields = some_fields(rng)
    fields += rng.choice(((),) * 6 + (((b"Authorization", b"Bearer x"),), ((b"Cookie", b"a=b"), (b"X-Api-Key", b"k")),
                                      ((b"Accept-Encoding", b"gzip"), (b"X-Forwarded-For", b"1.2.3.4"))))
    fields += rng.choice(((),) * 9 + (((b"Connection", b"close"),), ((b"Connection", b"keep-alive"),)))
    target = path
    if rng.random() < .05:
        target = b"http://absolute.test" + path
    if minor or rng.random() < .5:
        fields.append((b"Host", rng.choice((b"router.test", b"[::1]:8080", b""))))
    if method == b"POST" or rng.random() < .1:
        if minor and rng.random() < .4:
            fields.append((b"Transfer-Encoding", b"chunked"))
            sent = chunked(rng, body)
        else:
            fields.append((b"Content-Length", b"%d" % len(body)))
            sent = body
        if rng.random() < .1:
            fields.append((b"Expect", b"100-continue"))
    else:
        sent = b""
    rng.shuffle(fields)
    head = [b"%s %s HTTP/1.%d" % (method, target, minor)] + [field(rng, n, v) for n, v in fields]
    last = False
    if rng.random() < .12:
        last = True                     # what is wrong may be the end of the connection
        head.insert(rng.randrange(1, len(head) + 1), rng.choice((
            b"Content-Length: 7", b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Content-Length:",
            b"Content-Length: 1, 2", b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity",
            b" folded", b"no colon", b"X Y: z", b"X: a\0b", b": nameless", b"X : y", b"X: a\rb", b"X: a\nY: b", b"Host: other",
            b"Expect: 200-ok", b"Content-Encoding: gzip", b"X: " + b"y" * 33000, b"X: y\r\n" * 201 + b"Y: z")))
    elif rng.random() < .04:
        last = True
        head[0] = rng.choice((b"POST /v1/completions HTTP/1.2", b"POST /v1/completions HTTP/2.0", b"POST  /v1/completions HTTP/1.1",
                              b"POST /v1/completions", b"POST /v1/a b HTTP/1.1", b"POST /v1/\xe9 HTTP/1.1", b"POST * HTTP/1.1",
                              b"POST /v1/completions HTTP/1.1 ", b"PO(ST / HTTP/1.1", b"\0", b"GET /" + b"x" * 9000 + b" HTTP/1.1",
                              b"POST http:///x HTTP/1.1", b"POST /#x HTTP/1.1"))
    data = rng.choice((b"",) * 9 + (b"\r\n",)) + b"\r\n".join(head) + b"\r\n\r\n"
    if sent and rng.random() < .03 and any(n == b"Transfer-Encoding" for n, _ in fields):
        last, i = True, rng.randrange(len(sent))
        sent = sent[:i] + rng.choice((b"x", b"\n", b"\0", b"-")) + sent[i + 1:]
    return data + sent, last


# --- one lane -----------------------------------------------------------------------------------

class Job:
    """What the worker says to its next request; closed: the other side ended that connection."""

    def __init__(self, pieces, end="open"):
        self.pieces, self.end, self.closed = pieces, end, threading.Event()


class Plan:
    """Of one request and its answer; see Lane.plan."""


class LaneDoor(raw.Played):
    def __init__(self, lane):
        self.lane = lane
        super().__init__()

    def play(self, s, seen):
        me = object()
        while True:
            head, body = raw.whole_request(s, seen)
            job = self.lane.jobs.get(timeout=LIMIT_S)
            self.lane.heard.put((me, head, body))
            try:
                for piece in job.pieces:
                    s.sendall(piece)
                if job.end == "eof":
                    s.shutdown(socket.SHUT_WR)
                    while s.recv(65536):
                        pass            # a request that met the end
                    raise ConnectionError
                if job.end == "reset":
                    g.reset(s)
                    job.closed.set()
                    return
                seen = s.recv(65536)
            except OSError:
                seen = b""
            if not seen:
                job.closed.set()
                return


class TlsClient(raw.Client):
    def __init__(self, port, limit_s):
        super().__init__(port, limit_s)
        self.s = context.wrap_socket(self.s, server_hostname="localhost", suppress_ragged_eofs=False)

    def more(self):
        try:
            super().more()
        except ssl.SSLError as e:
            if not isinstance(e, ssl.SSLEOFError) and e.reason != "UNEXPECTED_EOF_WHILE_READING":
                raise
            raise raw.Ended("reset")    # its end, and nobody said so


def take_answer(c, to_head=False):
    """status, fields, body, framing, end: "whole", "eof", "reset"; interim answers counted last."""
    interim = 0
    try:
        while True:
            while b"\r\n\r\n" not in c.got:
                c.more()
            head, c.got = c.got.split(b"\r\n\r\n", 1)
            first, *rest = R.lines_of(head)
            m = R.STATUS_LINE.fullmatch(first)
            fields = R.fields_of(rest)
            if int(m[2]) >= 200:
                break
            interim += 1
        status = int(m[2])
    except raw.Ended as e:
        if c.got:
            raise Differs(f"half a head: {c.got[:200]!r} {e}")
        return 0, [], b"", "none", str(e), interim
    length, codings, body = R.length_of(fields), R.values(fields, b"transfer-encoding"), b""
    if to_head or status in (204, 304):
        return status, fields, b"", "none", "whole", interim
    if codings:
        same("transfer-encoding", (codings, length), ([b"chunked"], None))
        while True:
            try:
                body, used = R.unchunk(c.got)
                c.got = c.got[used:]
                return status, fields, body, "chunked", "whole", interim
            except R.Short as e:
                body = e.args[0]
            try:
                c.more()
            except raw.Ended as e:
                return status, fields, body, "chunked", str(e), interim
    framing = "close" if length is None else "length"
    try:
        while length is None or len(c.got) < length:
            c.more()
        body, c.got = c.got[:length], c.got[length:]
        return status, fields, body, framing, "whole", interim
    except raw.Ended as e:
        body, c.got = c.got, b""
        return status, fields, body, framing, "whole" if length is None and str(e) == "eof" else str(e), interim


def error_code(body):
    return json.loads(body)["error"]["code"]


class Lane(threading.Thread):
    def __init__(self, number):
        super().__init__(daemon=True)
        self.rng = random.Random(f"{SEED} {number}")
        self.scenario = g.Scenario(f"lane{number}", workers="a", door=lambda: LaneDoor(self))
        self.jobs, self.heard = queue.SimpleQueue(), queue.SimpleQueue()
        self.client, self.pooled, self.error, self.done, self.case = None, None, None, 0, None
        self.count = {}

    def run(self):
        try:
            for _ in range(CASES // LANES):
                self.case = []
                self.answers() if self.rng.random() < .6 else self.requests()
                self.done += 1
        except Exception as e:
            self.error = e

    def note(self, *what):
        self.case.append(what)

    def tally(self, what):
        self.count[what] = self.count.get(what, 0) + 1

    def connection(self):
        if not self.client:
            self.client = TlsClient(tls_port, LIMIT_S) if TLS else raw.Client(house.port, LIMIT_S)
        return self.client

    def hang_up(self):
        """Nothing may come any more, and the end must."""
        c, self.client = self.client, None
        try:
            c.more()
        except raw.Ended as e:
            c.s.close()
            if str(e) == "timeout":
                raise Differs("the connection was not closed")
            return
        raise Differs(f"bytes behind the last answer: {c.got[:300]!r}")

    def worker_heard(self, was_pooled=True):
        """A request reached the worker, on the connection that it must have come on."""
        me, head, body = self.heard.get(timeout=LIMIT_S)
        if was_pooled and self.pooled is not None and me is not self.pooled:
            raise Differs("a connection that could be used again was not")
        if (self.pooled is None or not was_pooled) and me in self.known:
            raise Differs("a connection was used again that must not be")
        self.known = {me}
        return me, head, body

    known = frozenset()

    # Workers' answers on their way to the client, of one request or of several that were sent at once.
    def answers(self):
        rng = self.rng
        plans, pooled = [], self.pooled is not None
        for _ in range(rng.choice((1,) * 8 + (2, 4))):
            plan = self.plan(pooled)
            plan.stale = bool(plans) and plans[-1].end == "eof"     # may meet its end, and go again
            plans.append(plan)
            pooled = plan.reuse
            # Behind stray bytes nothing can be told: the next request may have been sent to meet them.
            if not plan.stays or plan.end == "reset" or plan.want.stray:
                break
        data = b"".join(plan.request for plan in plans)
        if not plans[-1].stays and plans[-1].end != "reset" and rng.random() < .3:
            data += plans[-1].request   # behind the last one: nobody hears it
        for plan in plans:
            self.note("request", plan.request)
            self.note("answer", plan.said, plan.end, f"again {plan.again}, stale {plan.stale}")
            for job in plan.jobs:
                self.jobs.put(job)
        c = self.connection()
        for piece in cut(rng, data) if len(plans) > 1 else [data]:
            c.send(piece)
        for plan in plans:
            self.one_answer(plan, c)

    def plan(self, pooled):
        """What the worker will say to the next request, and what must come of it."""
        rng = self.rng
        plan = Plan()
        minor, keep = rng.choice(((1, True),) * 6 + ((1, False), (0, False), (0, True)))
        said = worker_says(rng)
        ended = rng.random() < .25
        if ended and rng.random() < .8:
            said = said[:rng.randrange(len(said) + 1)]
        want = R.read_answer(said, ended, minor)
        # Whoever has not said all must end, or we would wait; what is wrong is closed by the other side.
        if not ended and not (want.fields is not None and (want.reuse or want.whole)) and \
           want.code not in ("upstream_bad_head", "upstream_bad_body"):
            ended = True
        if not ended and want.fields is not None and want.whole and R.read_answer(said + b"x", False, minor).body != want.body:
            ended = True                # framed by the close
        want = R.read_answer(said, ended, minor)
        plan.end = "eof" if ended else "open"
        if ended and said and not pooled and rng.random() < .3:
            plan.end = "reset"
        plan.again = want.status == 0 and pooled
        plan.jobs = [Job(cut(rng, said), plan.end)]
        if plan.again:
            plan.jobs.append(Job([OK]))
            want = R.read_answer(OK, False, minor)
        elif want.status == 0:
            want.ours("upstream_failed")
        request = raw.post(self.scenario.name, stream=rng.random() < .5).replace(b"HTTP/1.1", b"HTTP/1.%d" % minor, 1)
        if not minor and keep:
            request = request.replace(b"\r\n", b"\r\nConnection: keep-alive\r\n", 1)
        elif minor and not keep:
            request = request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        plan.minor, plan.keep, plan.said, plan.want, plan.request = minor, keep, said, want, request
        plan.reuse = want.reuse or plan.again
        plan.stays = keep and want.whole and (want.fields is None or want.framing != "close")
        return plan

    def one_answer(self, plan, c):
        want, keep = plan.want, plan.keep
        got = take_answer(c)
        status, fields, body, framing, how, interim = got
        self.note("got", *got)
        me, _, heard = self.worker_heard()
        if plan.again:
            self.pooled = None
            me, _, heard = self.worker_heard(was_pooled=False)
        same("the worker's request body", heard, plan.request.split(b"\r\n\r\n", 1)[1])
        if interim:
            raise Differs("an interim answer crossed")
        stays = keep
        if plan.end == "reset":
            stays = self.after_reset(want, got, keep)
        elif want.fields is None:
            self.tally("our 502")
            same("status", (status, how), (502, "whole"))
            if error_code(body) not in ("upstream_failed", "upstream_bad_head"):
                raise Differs(f"code {error_code(body)}")
        else:
            self.head_matches(want, got, keep, (2,) if plan.again else (1, 2) if plan.stale else (1,))
            stays = self.body_matches(want, got, keep)
        if not plan.reuse and not plan.jobs[-1].closed.wait(LIMIT_S):
            raise Differs("the worker's connection was not closed")
        if plan.reuse and plan.jobs[-1].closed.is_set():
            raise Differs("the worker's connection was closed, and could have been kept")
        self.pooled = me if plan.reuse else None
        if not stays:
            self.hang_up() if how == "whole" and framing != "close" else self.forget()

    def forget(self):
        self.client.s.close()
        self.client = None

    def head_matches(self, want, got, keep, attempts):
        status, fields, _, framing, _, _ = got
        same("status", status, want.status)
        same("fields", [f for f in fields if not OURS.match(f[0].lower())], want.fields)
        same("framing", framing, want.framing)
        same("worker", R.values(fields, b"x-pointsman-worker"), [b"a"])
        same("x-request-id", R.values(fields, b"x-request-id"), R.values(fields, b"x-pointsman-request-id"))
        if R.values(fields, b"x-pointsman-attempts") not in [[b"%d" % n] for n in attempts]:
            raise Differs(f"attempts: {R.values(fields, b'x-pointsman-attempts')}, not one of {attempts}")
        if framing == "length":
            same("content-length", R.length_of(fields), want.length)
        same("connection: close", b"close" in R.listed(fields, b"connection"), not keep or framing == "close")

    def body_matches(self, want, got, keep):
        _, _, body, framing, how, _ = got
        if want.whole:
            self.tally(f"whole {framing}")
            same("end", how, "whole")
            same("body", body, want.body)
            return keep and framing != "close"
        self.tally(f"broken {framing}{' told' if want.told else ''}")
        if framing == "close":
            same("end", how, "reset")
            if not want.body.startswith(body):
                raise Differs(f"body {body[-300:]!r} does not begin {want.body[-300:]!r}")
            return False
        same("end", how, "reset" if TLS else "eof")
        if want.told:
            event = body.rfind(b"data: {\"error\"")
            said = json.loads(body[event + 6:])
            same("error event", (said["error"]["code"], body[-2:]), (want.code, b"\n\n"))
            body = body[:event]
        same("body", body, want.body + want.gap)
        return False

    def after_reset(self, want, got, keep):
        """A reset may overtake what was sent before: less may have arrived, never more, never a clean end of less."""
        status, _, body, framing, how, _ = got
        self.tally("reset")
        if status == 502 and how == "whole" and framing == "length":
            return keep
        same("status", status, want.status)
        if how == "whole":
            same("body of a whole answer", (body, want.whole), (want.body, True))
            return keep and framing != "close"
        if framing == "chunked" and want.events:
            body = body[:body.rfind(b"data: {\"error\"")]
            body = body if want.body.startswith(body) else body.removesuffix(b"\n\n")
        if not want.body.startswith(body):
            raise Differs(f"body {body[-300:]!r} does not begin {want.body[-300:]!r}")
        return False

    # Requests on their way to the worker.
    def requests(self):
        rng = self.rng
        data, wants = b"", []
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            more, last = client_asks(rng, self.scenario.name)
            data += more
            if last:
                break
        self.note("requests", data)
        rest = data
        while rest:
            want, used = R.read_request(rest, BODY_MAX)
            rest = rest[used:]
            if want.status is None:
                want.status = self.judged(want.body)
            if want.status is None:
                self.jobs.put(Job([OK]))
            wants.append(want)
            if not want.keep:
                break
        c = self.connection()

        def send():
            try:
                for piece in cut(rng2, data):
                    c.s.sendall(piece)
            except OSError:
                pass                    # it may have been ended, as it should

        rng2 = random.Random(rng.random())
        sender = threading.Thread(target=send)
        sender.start()
        if TLS:                         # its two directions are one object here: one after the other
            sender.join()
        for want in wants:
            got = take_answer(c, want.to_head)
            self.note("got", *got)
            status, fields, body, _, how, interim = got
            if interim > want.expects:
                raise Differs("100 Continue that nobody waited for")
            if want.expects and not interim and want.status != 413:
                raise Differs("100 Continue was waited for")
            same("end", how, "whole")
            if want.status is not None:
                self.tally(f"refused {want.status}")
                same("status", status, want.status)
                if status >= 400 and not want.to_head:
                    json.loads(body)["error"]["message"]
            else:
                self.tally(f"to the worker 1.{want.minor}")
                same("answer", (status, body), (200, b"{}"))
                same("x-request-id", R.values(fields, b"x-request-id"),
                     [want.id] if want.id else R.values(fields, b"x-pointsman-request-id"))
                me, head, heard = self.worker_heard()
                self.pooled = me
                self.request_matches(want, head, heard)
            same("connection: close", b"close" in R.listed(fields, b"connection"), not want.keep)
        sender.join()
        if not wants[-1].keep:
            self.hang_up()

    def judged(self, body):
        """By the policy process: None: a worker's to answer."""
        try:
            said = json.loads(body)
        except ValueError:
            return 400
        if not isinstance(said, dict) or not isinstance(said.get("model"), str):
            return 400
        return None if said["model"] == self.scenario.name else 404

    def request_matches(self, want, head, heard):
        first, *rest = R.lines_of(head)
        fields = R.fields_of(rest)
        same("request line", first, want.line)
        same("body", heard, want.body)
        same("host", R.values(fields, b"host"), [b"127.0.0.1:%d" % self.scenario.doors["a"].port])
        same("accept-encoding", R.values(fields, b"accept-encoding"), [b"identity"])
        same("content-length", R.values(fields, b"content-length"), [b"%d" % len(want.body)])
        if not re.fullmatch(rb"[0-9a-f]{16}-1", R.values(fields, b"x-request-id")[0]):
            raise Differs("x-request-id is not ours")
        same("fields", [f for f in fields if f[0].lower() not in (b"host", b"accept-encoding", b"content-length", b"x-request-id")],
             want.fields)


GATEWAY = "  timeouts: {keepAlive: 60s, upstreamKeepAlive: 60s, firstByte: 25s, interChunk: 25s}"
if TLS:
    folder = tempfile.TemporaryDirectory(prefix="pointsman-pki-")
    authority = pki.Authority(folder.name)
    certificate, key = authority.issue("front", "DNS:localhost")
    context = ssl.create_default_context(cafile=authority.ca)
    context.options &= ~(1 << 7)        # OP_IGNORE_UNEXPECTED_EOF: an end must be said
    tls_port = g.h.free_port()
    GATEWAY += f"""
  listenTls: ["127.0.0.1:{tls_port}"]
  tls: {{certificates: [{{certificate: "{certificate}", key: "{key}"}}]}}"""

lanes = [Lane(n) for n in range(LANES)]
with g.Group([lane.scenario for lane in lanes], BACKEND, GATEWAY) as house:
    house.start()
    print(f"seed {SEED}, {CASES} cases ({BACKEND}{', TLS' if TLS else ''})", flush=True)
    began = time.monotonic()
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    for lane in lanes:
        if lane.error:
            print(f"{lane.name}, case {lane.done}:")
            for line in lane.case:
                print("  ", *(re.sub(r"(.)\1{30,}", r"\1..\1", repr(w))[:4000] for w in line))
            raise lane.error
        if lane.client:
            lane.client.s.close()
    total = {}
    for lane in lanes:
        for what, n in lane.count.items():
            total[what] = total.get(what, 0) + n
    print(f"{sum(lane.done for lane in lanes)} cases in {time.monotonic() - began:.1f} s:",
          ", ".join(f"{what} {n}" for what, n in sorted(total.items())))
    # Every kind of end was met, or the generator is not what it was.
    if CASES >= 1000:
        assert {"whole chunked", "whole length", "whole close", "broken chunked told", "broken chunked", "broken length",
                "broken close", "our 502", "reset", "to the worker 1.0", "to the worker 1.1"} <= set(total), total
    print(house.settle())
