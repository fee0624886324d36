"""Clients of every manner, in one event loop.

Each request is a Record: what was sent, when, and what came of it, judged only by the bytes on the client's own
connection.  Nothing is ever sent twice.  The bytes are read strictly: what does not parse, a byte too many, or
an end that does not fit is `garbage`, and no reason makes that right.
"""
import asyncio, json, random, re, socket, struct, time

SILENCE_S = 60          # no exchange takes longer: all timeouts of the soak's configuration are far below
CLIENTS = 40
PREFIXES = 24
WORD = re.compile(rb'"(?:text|content)":"([^"]*)"')
RAISED = re.compile(rb'data: \{"error":')

WHOLE, CUT, LEFT, SILENT, GARBAGE, UNSERVED = "whole", "cut", "left", "silent", "garbage", "unserved"


class Ended(Exception):
    """The connection ended: "eof" or "reset"."""


class Garbage(Exception):
    pass


class Record:
    """One request.  outcome: whole (an answer to its last byte), cut (the connection ended first), left (we went
    away), unserved (pipelined behind an answer that said close), silent, garbage."""

    __slots__ = ("user", "kind", "expect", "begun", "sent", "ended", "outcome", "why", "status", "request_id",
                 "worker", "attempts", "close", "sse", "chunked", "done", "raised", "words", "tokens", "code",
                 "max_tokens", "minor", "inference")

    def __init__(self, user, kind, expect=(200,), max_tokens=0, minor=1, inference=True):
        self.user, self.kind, self.expect, self.max_tokens, self.minor = user, kind, expect, max_tokens, minor
        self.inference = inference      # a worker logs it
        self.begun = self.ended = time.monotonic()
        self.sent = False               # to its last byte
        self.outcome = self.why = self.status = self.request_id = self.worker = self.attempts = None
        self.close = self.sse = self.chunked = self.done = False
        self.raised = self.words = 0    # error events; words of the answer
        self.tokens = self.code = None  # completion_tokens as the engine counted; code of an error

    def say(self):
        return " ".join(f"{k}={getattr(self, k)!r}" for k in self.__slots__)


class Wire:
    """A connection that reads at its own pace."""

    def __init__(self, port, narrow=False):
        self.loop = asyncio.get_running_loop()
        self.s = socket.socket()
        self.s.setblocking(False)
        if narrow:
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.buf, self.port, self.pace, self.used = b"", port, None, 0
        self.last = None                # the Record answered last

    async def open(self):
        await self.loop.sock_connect(self.s, ("127.0.0.1", self.port))
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self

    def idle(self):
        """Between two requests: None while nothing came, b"" when the connection ended, or what nobody asked for."""
        try:
            return self.buf or self.s.recv(200, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    async def send(self, data):
        try:
            await self.loop.sock_sendall(self.s, data)
        except (ConnectionError, OSError) as e:
            raise Ended("reset") from e

    async def more(self):
        if self.pace:
            await asyncio.sleep(self.pace)
        try:
            got = await self.loop.sock_recv(self.s, 2048 if self.pace else 65536)
        except (ConnectionError, OSError) as e:
            raise Ended("reset") from e
        if not got:
            raise Ended("eof")
        self.buf += got

    async def until(self, mark, limit=65536):
        while mark not in self.buf:
            if len(self.buf) > limit:
                raise Garbage(f"no {mark!r} within {limit} bytes: {self.buf[:200]!r}")
            await self.more()
        got, self.buf = self.buf.split(mark, 1)
        return got

    async def exactly(self, n):
        while len(self.buf) < n:
            await self.more()
        got, self.buf = self.buf[:n], self.buf[n:]
        return got

    def leave(self, reset=False):
        if reset:
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.s.close()


async def read_head(wire):
    """Status, headers; interim answers are skipped."""
    while True:
        head = (await wire.until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        found = re.fullmatch(r"HTTP/1\.1 (\d{3}) ?[^\r\n]*", head[0])
        if not found:
            raise Garbage(f"not a status line: {head[0][:200]!r}")
        headers = {}
        for line in head[1:]:
            name, colon, value = line.partition(":")
            if not colon or name.lower() in ("content-length", "transfer-encoding") and name.lower() in headers:
                raise Garbage(f"header {line[:200]!r}")
            headers[name.lower()] = value.strip()
        if int(found[1]) >= 200:
            return int(found[1]), headers


async def read_body(wire, headers, keep, enough):
    """Appends the body to `keep`, piece by piece, until enough(keep)."""
    if headers.get("transfer-encoding"):
        while True:
            line = await wire.until(b"\r\n", 64)
            if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", line):
                raise Garbage(f"chunk {line!r}")
            n = int(line, 16)
            keep.append(await wire.exactly(n) if n else b"")
            if await wire.exactly(2) != b"\r\n":
                raise Garbage("no end of chunk")
            if n == 0:
                return True
            if enough(keep):
                return False
    if "content-length" in headers:
        left = int(headers["content-length"])
        while left:
            if not wire.buf:
                await wire.more()
            keep.append(wire.buf[:left])
            wire.buf = wire.buf[left:]
            left -= len(keep[-1])
            if left and enough(keep):
                return False
        return True
    while True:                         # until the connection ends
        try:
            if not wire.buf:
                await wire.more()
        except Ended as e:
            if str(e) == "eof":
                return True
            raise
        keep.append(wire.buf)
        wire.buf = b""
        if enough(keep):
            return False


def read_answer(r, body):
    """What the body says of itself."""
    if r.sse:
        r.done = b"data: [DONE]" in body
        r.raised = len(RAISED.findall(body))
        r.words = sum(len(w.split()) for w in WORD.findall(body))
        usage = re.search(rb'"completion_tokens":(\d+)', body)
        r.tokens = int(usage[1]) if usage else None
        return
    if r.outcome != WHOLE or not body:
        return
    try:
        said = json.loads(body)
    except ValueError as e:
        raise Garbage(f"body is not JSON: {body[:200]!r}") from e
    if r.status == 200 and "usage" in said:
        r.tokens = said["usage"]["completion_tokens"]
        r.words = sum(len(w.split()) for w in WORD.findall(body))
    elif r.status != 200:
        error = said["error"] if isinstance(said.get("error"), dict) else said  # vLLM's own have it flat
        r.code = str(error.get("code") or error.get("type"))


async def take(wire, r, leave_after=None):
    """One answer.  leave_after: pieces of body after which we go away."""
    keep, head = [], False
    try:
        r.status, headers = await read_head(wire)
        head = True
        r.request_id = headers.get("x-pointsman-request-id")
        r.worker = headers.get("x-pointsman-worker")
        r.attempts = int(headers.get("x-pointsman-attempts", 0))
        r.sse = headers.get("content-type", "").startswith("text/event-stream")
        r.chunked = "transfer-encoding" in headers
        bound = r.chunked or "content-length" in headers
        r.close = not bound or headers.get("connection", "").lower() == "close"
        if leave_after == 0 or not await read_body(wire, headers, keep,
                                                   lambda k: leave_after and len(k) >= leave_after):
            r.outcome, r.why = LEFT, "in the middle of the answer"
            return
        r.outcome = WHOLE
        read_answer(r, b"".join(keep))
    except Ended as e:
        r.outcome, r.why = CUT, f"{e} {'after' if head else 'before'} the head"
        read_answer(r, b"".join(keep))
    finally:
        r.ended = time.monotonic()


class Load:
    """The clients and what they have seen."""

    def __init__(self, port, model, seed, limit_body):
        self.port, self.model, self.seed, self.limit_body = port, model, seed, limit_body
        self.records, self.stopping, self.n = [], False, 0
        self.idle_ends = []             # (last use, seen): connections that ended between requests
        rng = random.Random(f"{seed} prefixes")
        self.ids = [",".join(str(rng.randrange(1, 30000)) for _ in range(rng.randrange(64, 800)))
                    for _ in range(PREFIXES)]
        self.texts = [" ".join("".join(rng.choices("abcdefgh", k=3)) for _ in range(rng.randrange(60, 800)))
                      for _ in range(PREFIXES)]

    # --- what is asked ---

    def record(self, kind, **more):
        r = Record(f"s{self.seed}-{self.n}", kind, **more)
        self.n += 1
        self.records.append(r)
        return r

    def body(self, rng, r, stream, pad=0):
        said = {"model": rng.choice([self.model, self.model, "small"]), "user": r.user, "max_tokens": r.max_tokens,
                "ignore_eos": True}
        if stream:
            said.update(stream=True, stream_options={"include_usage": True})
        if pad:
            said["metadata"] = {"pad": "x" * pad}
        text = json.dumps(said)[:-1]
        tail = rng.randrange(1 << 30)
        if rng.random() < 0.5:
            own = ",".join(str((tail + i * 7) % 30000) for i in range(rng.randrange(1, 60)))
            return "/v1/completions", (text + f',"prompt":[{rng.choice(self.ids)},{own}]}}').encode()
        content = f"{rng.choice(self.texts)} and then {tail}"
        return "/v1/chat/completions", (text + f',"messages":[{{"role":"user","content":"{content}"}}]}}').encode()

    @staticmethod
    def head(path, length, more="", minor=1, method="POST"):
        framing = f"Content-Length: {length}\r\n" if length is not None else ""
        return (f"{method} {path} HTTP/1.{minor}\r\nHost: soak\r\nContent-Type: application/json\r\n"
                f"{framing}{more}\r\n").encode()

    def ask(self, rng, kind, stream, tokens, pad=0, **more):
        r = self.record(kind, max_tokens=tokens, **more)
        path, body = self.body(rng, r, stream, pad)
        return r, path, body

    # --- manners; each leaves the connection usable, or raises Ended after closing it ---

    async def plain(self, rng, wire, stream=False, tokens=None, pad=0, kind=None):
        r, path, body = self.ask(rng, kind or ("stream" if stream else "plain"), stream,
                                 tokens or rng.randrange(1, 40), pad)
        await self.exchange(wire, r, [self.head(path, len(body)) + body])

    async def stream(self, rng, wire):
        await self.plain(rng, wire, stream=True)

    async def large(self, rng, wire):
        await self.plain(rng, wire, stream=rng.random() < 0.5, pad=rng.randrange(100_000, 3_000_000), kind="large")

    async def pieces(self, rng, wire):
        """A body in pieces, chunked or not."""
        r, path, body = self.ask(rng, "pieces", rng.random() < 0.5, rng.randrange(1, 20), rng.choice([0, 50_000]))
        step = max(len(body) // rng.randrange(2, 9), 1)
        parts = [body[i:i + step] for i in range(0, len(body), step)]
        if rng.random() < 0.5:
            parts = [b"%x\r\n%s\r\n" % (len(p), p) for p in parts] + [b"0\r\n\r\n"]
            head = self.head(path, None, "Transfer-Encoding: chunked\r\n")
        else:
            head = self.head(path, len(body), rng.choice(["", "Expect: 100-continue\r\n"]))
        await self.exchange(wire, r, [head, *parts], gap=rng.random() * 0.01)

    async def slow_reader(self, rng, wire):
        wire.leave()
        wire = await Wire(self.port, narrow=True).open()
        r, path, body = self.ask(rng, "slow reader", True, rng.randrange(100, 400))
        wire.pace = rng.random() * 0.01
        await self.exchange(wire, r, [self.head(path, len(body)) + body])
        wire.leave()
        raise Ended("done")

    async def pipelined(self, rng, wire):
        asked = [self.ask(rng, "pipelined", rng.random() < 0.3, rng.randrange(1, 10))
                 for _ in range(rng.randrange(2, 6))]
        bytes_out = b"".join(self.head(path, len(body)) + body for _, path, body in asked)
        await self.exchange(wire, asked[0][0], [bytes_out], behind=[r for r, _, _ in asked[1:]])

    async def old_client(self, rng, wire):
        """HTTP/1.0: an answer without a length ends with the connection."""
        r, path, body = self.ask(rng, "HTTP/1.0", rng.random() < 0.7, rng.randrange(1, 20), minor=0)
        await self.exchange(wire, r, [self.head(path, len(body), minor=0) + body])

    async def models(self, rng, wire):
        r = self.record("models", inference=False)
        await self.exchange(wire, r, [self.head("/v1/models", None, method="GET")])

    async def wrong(self, rng, wire):
        """What is refused, by us or by policy, and never reaches a worker."""
        kind, expect, path, body, more, method = rng.choice([
            ("not JSON", (400,), "/v1/completions", b'{"model":', "", "POST"),
            ("no model", (400,), "/v1/completions", b'{"prompt":[1,2]}', "", "POST"),
            ("unknown model", (404,), "/v1/chat/completions",
             b'{"model":"nobody","messages":[{"role":"user","content":"x"}]}', "", "POST"),
            ("unknown path", (404,), "/v1/nothing", b"{}", "", "POST"),
            ("wrong method", (405,), "/v1/completions", b"", "", "GET"),
            ("encoded", (415,), "/v1/completions", b"\x1f\x8b", "Content-Encoding: gzip\r\n", "POST"),
            ("two lengths", (400,), "/v1/completions", b"{}", "Content-Length: 3\r\n", "POST"),
            ("bad header", (400,), "/v1/completions", b"{}", "no colon\r\n", "POST"),
        ])
        r = self.record(kind, expect=expect, inference=False)
        await self.exchange(wire, r, [self.head(path, len(body), more, method=method) + body])

    async def too_large(self, rng, wire):
        r = self.record("too large", expect=(413,), inference=False)
        if rng.random() < 0.5:
            parts = [self.head("/v1/completions", self.limit_body + 1), b"x" * 1000]
        else:
            piece = b"%x\r\n%s\r\n" % (1 << 20, b"x" * (1 << 20))
            parts = [self.head("/v1/completions", None, "Transfer-Encoding: chunked\r\n"),
                     *[piece] * (self.limit_body // (1 << 20) + 1)]
        await self.exchange(wire, r, parts)

    async def gone_early(self, rng, wire):
        """Leaves before the head is whole, or while it sends the body."""
        r, path, body = self.ask(rng, rng.choice(["gone in the head", "gone in the body"]), False, 5,
                                 rng.choice([0, 200_000]))
        whole = self.head(path, len(body)) + body
        cut = rng.randrange(1, 60) if r.kind == "gone in the head" else len(whole) - rng.randrange(1, len(body))
        await self.go_away(rng, wire, r, whole[:cut])

    async def gone_waiting(self, rng, wire):
        """Leaves after the whole request, before an answer."""
        r, path, body = self.ask(rng, "gone waiting", rng.random() < 0.5, rng.randrange(5, 60),
                                 rng.choice([0, 0, 500_000]))
        r.sent = True
        await self.go_away(rng, wire, r, self.head(path, len(body)) + body, rng.choice([0, 0, 0.002, 0.02, 0.1]))

    async def go_away(self, rng, wire, r, data, after=0.0):
        r.outcome, r.why = LEFT, "before the answer"
        try:
            await wire.send(data)
            await asyncio.sleep(after)
        except Ended:
            pass
        if rng.random() < 0.3:          # says that it will send no more: this gateway takes it for gone
            try:
                wire.s.shutdown(socket.SHUT_WR)
                async with asyncio.timeout(SILENCE_S):
                    while True:
                        await wire.more()
            except (Ended, OSError):
                pass
            except TimeoutError:
                r.outcome, r.why = SILENT, f"not closed within {SILENCE_S} s of our end"
        wire.leave(rng.random() < 0.5)
        r.ended = time.monotonic()
        raise Ended("done")

    async def gone_streaming(self, rng, wire):
        """Leaves after some events of an answer."""
        r, path, body = self.ask(rng, "gone streaming", True, rng.randrange(30, 200))
        await self.exchange(wire, r, [self.head(path, len(body)) + body], leave_after=rng.randrange(0, 20))
        wire.leave(rng.random() < 0.5)
        raise Ended("done")

    MANNERS = [(plain, 20), (stream, 20), (large, 5), (pieces, 6), (slow_reader, 4), (pipelined, 6), (old_client, 3),
               (models, 2), (wrong, 8), (too_large, 1), (gone_early, 6), (gone_waiting, 8), (gone_streaming, 8)]

    # --- one exchange ---

    async def exchange(self, wire, r, parts, gap=0.0, leave_after=None, behind=()):
        """Sends, and reads as many answers as requests.  Raises Ended when the connection is of no more use."""
        asked, k = [r, *behind], 0
        try:
            async with asyncio.timeout(SILENCE_S):
                try:
                    for part in parts:
                        await wire.send(part)
                        if gap:
                            await asyncio.sleep(gap)
                    for one in asked:
                        one.sent = True
                except Ended:
                    pass                # an answer may have come before; else its absence is the end
                for k, one in enumerate(asked):
                    await take(wire, one, leave_after)
                    if one.outcome != WHOLE or one.close:
                        break
        except TimeoutError:
            asked[k].outcome, asked[k].why = SILENT, f"{SILENCE_S} s"
        except Garbage as e:
            asked[k].outcome, asked[k].why = GARBAGE, str(e)
        for one in asked[k + 1:]:       # nothing was promised to those behind the end
            one.outcome = UNSERVED
            one.ended = asked[k].ended
        last = wire.last = asked[k]
        last.ended = time.monotonic()
        if last.outcome == WHOLE and not last.close and not wire.buf:
            return
        if last.outcome == WHOLE and not last.close:
            last.outcome, last.why = GARBAGE, f"bytes behind the answer: {wire.buf[:200]!r}"
        elif last.outcome == WHOLE:
            await self.nothing_more(wire, last)
        if leave_after is None:
            wire.leave()
        raise Ended("done")

    @staticmethod
    async def nothing_more(wire, last):
        """An answer that says close is the last one."""
        try:
            async with asyncio.timeout(SILENCE_S):
                if not wire.buf:
                    await wire.more()
            last.outcome, last.why = GARBAGE, f"bytes behind the last answer: {wire.buf[:200]!r}"
        except Ended:
            pass
        except TimeoutError:
            last.outcome, last.why = GARBAGE, f"said close, and did not within {SILENCE_S} s"

    async def client(self, number, requests):
        rng = random.Random(f"{self.seed} client {number}")
        manners, weights = zip(*self.MANNERS)
        wire = None
        while not self.stopping and (requests is None or requests > 0):
            if requests is not None:
                requests -= 1
            came = wire.idle() if wire else None
            if came is not None:
                if came:
                    wire.last.outcome, wire.last.why = GARBAGE, f"bytes nobody asked for: {came!r}"
                else:
                    self.idle_ends.append((wire.last.ended, time.monotonic()))
                wire.leave()
                wire = None
            try:
                wire = wire or await Wire(self.port).open()
                await rng.choices(manners, weights)[0](self, rng, wire)
                wire.used += 1
                if wire.used > 30:
                    raise Ended("done")
            except Ended:
                wire.leave()
                wire = None
        if wire:
            wire.leave()

    async def run(self, clients=CLIENTS, requests=None):
        """Until `stopping`, or `requests` each."""
        self.stopping = False
        await asyncio.gather(*(self.client(i, requests) for i in range(clients)))
