"""Where requests go: ties, sessions, hot and short prefixes, no reuse, retries, workers that come, go and flap: each reported
case of routing, its sentence and its outcome.

The workers are played and hold their answers as long as the case wants, so that what is in flight is known; they say
nothing of their caches (what was sent there is what is known), and a prior says how fast they are.
routing.py [BACKEND] [CASE...]
"""
import collections, json, os, pathlib, random, signal, socket, sys, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "http"))
import group as g
import raw

h = g.h
CASES = h.ROOT / "tests/data/cases/rt"
os.environ.setdefault("ASAN_OPTIONS", "abort_on_error=1")
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Held(raw.Played):
    """A worker whose answers wait until their prompt is let go."""

    def __init__(self, name):
        self.name, self.model = name, "m"
        self.lock = threading.Condition()
        self.waiting, self.free, self.total, self.says = [], False, 0, OK
        self.begun = None               # bytes said at once, before it is held
        super().__init__()

    def play(self, s, seen):
        while True:
            head, body = raw.whole_request(s, seen)
            if not head:
                return
            prompt = json.loads(body)["prompt"]
            mine = threading.Event()
            with self.lock:
                self.total += 1
                self.waiting.append((prompt, mine))
                if self.free:
                    mine.set()
                self.lock.notify_all()
            if self.begun:
                s.sendall(self.begun)
            if not mine.wait(60):
                return
            with self.lock:
                self.waiting = [w for w in self.waiting if w[1] is not mine]
            if self.says is None:
                g.reset(s)
                return
            s.sendall(self.says)
            seen = s.recv(65536)
            if not seen:
                return

    def go(self, which=None):
        """Answer those whose prompt this is; None: all, also those to come."""
        with self.lock:
            self.free = self.free or which is None
            for prompt, event in self.waiting:
                if which is None or prompt == which:
                    event.set()

    def hold(self):
        self.free = False

    def member(self):
        return f"{{name: {self.name}, url: 'http://127.0.0.1:{self.port}'}}"

    def stop(self, how=None):
        self.go()


BACKEND = sys.argv.pop(1) if sys.argv[1:2] in (["io_uring"], ["epoll"]) else "auto"


class Fleet(h.House):
    def __init__(self, n, tokens_per_s=8000, gateway="", **named):
        super().__init__(model="m", io=BACKEND, gateway=gateway, workerset=f"""\
  tokenize: false
  blockSize: 16
  prior: {{base: 1ms, prefill: {1e6 / tokens_per_s:.0f}us, attention: 0s, decode: 0s}}
""", **named)
        self.workers = [Held(f"w{i}") for i in range(n)]
        self.clients = []

    def start(self, wait=True):
        super().start(wait)
        self.up()
        return self

    def up(self):
        h.until("all workers to be up", lambda: (s := self.stat())["workers_up"] == s["workers_count"] == len(self.workers))

    def members(self, workers):
        self.workers = workers
        self.write()
        self.ctl("reload")

    def send(self, prompt, wait=True, **more):
        """Asks and says which worker has it; its answer is read by take()."""
        before = [w.total for w in self.workers]
        body = json.dumps({"model": "m", "prompt": prompt, "max_tokens": 1, **more}).encode()
        c = raw.Client(self.port, 60).send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.clients.append(c)
        if wait:
            h.until("it to reach a worker", lambda: [w.total for w in self.workers] != before)
            return next(w for w, n in zip(self.workers, before) if w.total != n)

    def stop(self, expect=0):
        for w in self.workers:
            w.go()
        super().stop(expect)

    def take(self):
        """All answers that are owed."""
        clients, self.clients = self.clients, []
        answers = []
        for c in clients:
            with c:
                answers.append(c.answer())
        return answers

    def totals(self):
        return [w.total for w in self.workers]

    def ask(self, prompt):
        with raw.Client(self.port, 60) as c:
            body = json.dumps({"model": "m", "prompt": prompt, "max_tokens": 1}).encode()
            return c.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body).answer()

    def ledger(self):
        return json.loads(self.ctl("workers", "--output", "json").stdout)["workers"]

    def settle(self):
        h.until("the ledger to be empty", lambda: all(
            w["pending_tokens"] == w["prefilling"] == w["context_tokens"] == w["decoding"] == 0 for w in self.ledger()))
        page = h.request(self.admin, "GET", "/metrics")[1]
        for bug in ("ledger_underflows", "ledger_disagreements"):
            wrong = [line for line in page.splitlines() if line.startswith(f"pointsman_{bug}_total{{") and not line.endswith(" 0")]
            assert not wrong, wrong


def case(name):
    return [json.loads(line) for line in (CASES / f"{name}.jsonl").read_text().splitlines()]


numbers = random.Random(1)


def ids(n):
    """A prompt nobody has seen."""
    return [numbers.randrange(5, 100000) for _ in range(n)]


def spread(house, before):
    return sorted(now - then for now, then in zip(house.totals(), before))


def rt01_ties_are_spread():
    """Among equals the least recently picked is next: 12 one after another over 4 are 3 each, 64 at once 16 each, also where
    all of them hold the prompt, and when one comes and goes no other gets more than twice another's."""
    assert case("rt01_ties")[1]["expect"] == "3/3/3/3"
    with Fleet(4, ingresses=2) as house:
        house.start()
        everybody = list(house.workers)
        for w in everybody:
            w.go()
        before = house.totals()
        for _ in range(12):
            assert house.ask(ids(100))[0] == 200
        assert spread(house, before) == [3] * 4, spread(house, before)

        def burst(prompt):
            for w in everybody:
                w.hold()
            before = house.totals()
            for _ in range(64):
                house.send(prompt(), wait=False)
            h.until("64 to be held", lambda: sum(house.totals()) - sum(before) == 64)
            got = spread(house, before)
            for w in everybody:
                w.go()
            assert all(a[0] == 200 for a in house.take())
            return got

        got = burst(lambda: ids(100))
        assert got[-1] - got[0] <= 1, got

        # One prompt that all of them hold: each gets it while the others are busy.
        popular = ids(1600)
        for target in everybody:
            for w in everybody:
                w.hold()
            busy = {}
            while len(busy) < 4:
                prompt = ids(8000)
                busy[house.send(prompt)] = prompt
            target.go(busy[target])
            h.until("it to be idle", lambda: not target.waiting and
                    all((w["pending_tokens"] > 0) == (w["worker"] != target.name) for w in house.ledger()))
            assert house.send(popular) is target
            for w in everybody:
                w.go()
            house.take()
        got = burst(lambda: popular)
        assert got[-1] - got[0] <= 1, got

        before = house.totals()
        for i in range(12):
            house.members(everybody[:3] if i % 2 else everybody)
            if i % 2 == 0:
                house.up()
            assert house.ask(ids(100))[0] == 200
        house.workers = everybody
        got = [now - then for now, then in zip(house.totals(), before)][:3]
        assert max(got) <= 2 * min(got), got
        house.settle()


def rt02_sessions_are_spread_and_stay():
    """Sessions that come one after another are shared out evenly, though nothing is in flight when each begins, and each stays
    where its prefix is."""
    said = case("rt02_paced_sessions")
    workers, pattern = len(said[0]["workers"]), said[1]
    with Fleet(workers) as house:
        house.start()
        for w in house.workers:
            w.go()
        homes = collections.Counter()
        for _ in range(pattern["sessions"]):
            history, used = ids(400), set()
            for _ in range(pattern["turns"]):
                used.add(house.ask(history)[1]["x-pointsman-worker"])
                history = history + ids(60)
            assert len(used) == 1, used
            homes[used.pop()] += 1
        assert len(homes) == 2 and abs(homes["w0"] - homes["w1"]) <= 4, homes
        house.settle()


def rt07_a_hot_prefix_competes_with_its_queue():
    """A worker that holds the prefix is chosen while waiting there is shorter than computing it anew elsewhere, and only then."""
    for said in case("rt07_hot_prefix"):
        with Fleet(3, tokens_per_s=8000) as house:
            house.start()
            prefix = ids(16000)
            w0 = house.send(prefix)
            w0.go(prefix)
            house.take()
            queue = said["queue_tokens"]["w0"]
            others = [w for w in house.workers if w is not w0]
            # Work for everybody, and then only what waits at w0 is left.
            while queue and sum(len(p) for p, _ in w0.waiting) < queue:
                house.send(ids(queue), wait=True)
            for w in others:
                w.go()
                w.hold()
            h.until("only w0 to be at work", lambda: not any(w.waiting for w in others) and
                    [w["pending_tokens"] > 0 for w in sorted(house.ledger(), key=lambda w: w["worker"])] ==
                    [w is w0 and queue > 0 for w in house.workers])
            got = house.send(prefix + ids(256))
            assert (got is w0) == said["expect"].startswith("w0"), (said, got.name)
            for w in house.workers:
                w.go()
            house.take()
            house.settle()


def rt14_a_short_prompt_saves_little():
    """A short prompt is not drawn to a busy worker for the few milliseconds that its cached part saves there."""
    said, = case("rt14_short")
    with Fleet(2, tokens_per_s=said["prefill_tok_per_s"]) as house:
        house.start()
        short = ids(said["prompt"])
        w0 = house.send(short)
        w0.go(short)
        house.take()
        busy = {}
        for _ in range(2):
            prompt = ids(said["queue_tokens"]["w0"])
            busy[house.send(prompt)] = prompt
        w1, = [w for w in house.workers if w is not w0]
        w1.go(busy[w1])
        h.until("w1 to be idle", lambda: not w1.waiting and
                all((w["pending_tokens"] > 0) == (w["worker"] == w0.name) for w in house.ledger()))
        assert house.send(short) is w1
        for w in house.workers:
            w.go()
        house.take()
        house.settle()


def rt11_without_reuse_all_get_their_share():
    """Prompts that share nothing are shared out within a fifth of fair, and a new empty worker has work at once."""
    said = case("rt11_no_reuse")
    n, concurrency = said[0]["workers"], said[0]["concurrency"]
    with Fleet(n) as house:
        house.start()
        for _ in range(concurrency):
            house.send(ids(200), wait=False)
        h.until("all to be held", lambda: sum(house.totals()) == concurrency)
        shares = [w.total / concurrency for w in house.workers]
        assert all(.8 / n <= share <= 1.2 / n for share in shares), shares
        new = Held("w5")
        house.members(house.workers + [new])
        house.up()
        assert house.send(ids(200)) is new
        for w in house.workers:
            w.go()
        assert all(a[0] == 200 for a in house.take())
        house.settle()


def rt06_rt10_a_flapping_worker_keeps_no_debts():
    """A worker that leaves finishes what it has and gets nothing more; when it comes back under its name, the end of what was
    begun before is not charged to it."""
    with Fleet(2) as house:
        house.start()
        both = list(house.workers)
        a = ids(300)
        w1 = house.send(a)
        other, = [w for w in both if w is not w1]
        other.go()
        house.members([other])          # leaves, with A in flight
        before = w1.total
        for _ in range(4):
            assert house.ask(ids(100))[1]["x-pointsman-worker"] == other.name
        assert w1.total == before
        house.members(both)             # is back, another generation of the row
        house.up()
        b = ids(300)
        other.hold()
        while house.send(b) is not w1:
            b = ids(300)
        w1.go(a)
        h.until("A to end", lambda: all(p != a for p, _ in w1.waiting))
        h.until("only what was begun since to be charged", lambda:
                {w["worker"]: w["prefilling"] for w in house.ledger()}[w1.name] == len(w1.waiting))
        for w in both:
            w.go()
        assert all(answer[0] == 200 for answer in house.take())
        house.settle()
        assert {w["worker"] for w in house.ledger()} == {"w0", "w1"}


def rt10_an_ending_worker_loses_nothing():
    """A worker that ends closes the connection it kept, lets no new one in, and the request is answered by another; from then on
    it is left alone, though its probes have not failed yet."""
    with Fleet(2) as house:
        house.start()
        ends, other = house.workers
        for w in house.workers:
            w.go()
        while not (ends.total and other.total):
            assert house.ask(ids(40))[0] == 200
        ends.shut()                     # right after a probe
        ends.hold()
        while True:
            prompt = ids(40)
            if house.send(prompt) is ends:
                break
            house.take()
        ends.says = None
        ends.go(prompt)
        answer, = house.take()
        assert answer[0] == 200 and answer[1]["x-pointsman-worker"] == other.name, answer
        assert answer[1]["x-pointsman-attempts"] == "3", answer
        retries = house.stat()["requests"]["retries"]
        for _ in range(20):
            assert house.ask(ids(40))[1]["x-pointsman-worker"] == other.name
        assert house.stat()["requests"]["retries"] == retries == 1, retries
        house.settle()


def rt12_retries_have_a_budget():
    """A 503 is answered for by another worker, and until a probe says that it lives nobody is sent there; but second attempts
    stay below a tenth of what is asked, beyond the first hundred: then the 503 itself is the answer."""
    few, asked = 200, 1500
    busy_says = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\nRetry-After: 7\r\n\r\nbusy"
    with Fleet(2) as house:
        house.start()
        busy, good = house.workers

        def ask_many(n):
            got = collections.Counter()
            with raw.Client(house.port, 60) as c:
                for _ in range(n):
                    body = json.dumps({"model": "m", "prompt": ids(4), "max_tokens": 1}).encode()
                    status, headers, text, _ = c.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                                                      b"Content-Length: %d\r\n\r\n" % len(body) + body).answer()
                    got[status, headers["x-pointsman-attempts"]] += 1
                    if status == 503:
                        assert headers["retry-after"] == "7" and text == b"busy", (headers, text)
            return got

        busy.says = busy_says
        for w in house.workers:
            w.go()
        probes = busy.probes
        got = ask_many(few)
        assert got[200, "1"] + got[200, "2"] == few, got
        assert 1 <= got[200, "2"] == busy.total <= busy.probes - probes + 1, (got, busy.total, busy.probes - probes)
        good.says = busy_says
        before = got[200, "2"]
        got = ask_many(asked)
        assert before + got[503, "2"] == house.stat()["requests"]["retries"] <= 100 + (few + asked) // 10, got
        assert got[503, "1"] > 0 and got[503, "2"] >= 100 and got[503, "1"] + got[503, "2"] == asked, got
        assert busy.total + good.total == few + asked + before + got[503, "2"], (busy.total, good.total, got)
        house.settle()


def connections_to(port):
    """Of this machine's, established, towards that port."""
    with open("/proc/net/tcp") as f:
        return sum(1 for line in f if line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01")


def rt13_a_removed_worker_is_left_alone():
    """A worker taken out of the configuration is neither probed nor connected to any more, and no series speaks of it: requests'
    connections are closed at once; those of its prober, which serve nobody, by their library within 5 s."""
    with Fleet(2, gateway="  policyProcess: {probation: 500ms}\n  timeouts: {upstreamKeepAlive: 60s}") as house:
        house.start()
        stays, goes = house.workers
        for w in house.workers:
            w.hold()
        for _ in range(16):             # eight connections each
            house.send(ids(40), wait=False)
        h.until("all to be there", lambda: sum(house.totals()) == 16)
        for w in house.workers:
            w.go()
        house.take()
        probers = 2
        assert connections_to(goes.port) > 4 + probers, connections_to(goes.port)
        house.members([stays])
        h.until("requests' connections to be closed", lambda: connections_to(goes.port) <= probers)
        stays.wait_probes(1)
        probes = goes.probes
        stays.wait_probes(2)
        assert goes.probes == probes, (goes.probes, probes)
        h.until("its series to be gone", lambda: f'worker="{goes.name}"' not in h.request(house.admin, "GET", "/metrics")[1])
        assert f'worker="{stays.name}"' in h.request(house.admin, "GET", "/metrics")[1]
        goes.stop()


def rt04_every_exit_releases_what_was_charged():
    """However a request ends (well, gone before its answer or in it, worker reset or silent, policy or ingress killed, a reload,
    a body too large), nothing stays charged."""
    exits = [e["exit"] for e in case("rt04_chaos")]
    with Fleet(2, gateway="  timeouts: {firstByte: 1s}\n  limits: {bodyBytes: 64KiB}") as house:
        house.start()

        def held():
            return house.send(ids(300))

        def leave(how):
            c = house.clients.pop()
            g.reset(c.s) if how == "reset" else c.s.close()

        for how in exits:
            for w in house.workers:
                w.hold()
            w = None
            if how == "normal":
                w = held()
                w.go()
                assert house.take()[0][0] == 200
            elif how == "client RST before headers":
                held()
                leave("reset")
            elif how == "client close mid-stream":
                for w in house.workers:
                    w.begun = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\n\r\ndata: {}\n\n"
                held()
                while b"data: {}" not in house.clients[-1].got:
                    house.clients[-1].more()
                leave("close")
            elif how == "upstream RST":
                for w in house.workers:
                    w.begun = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"
                w = held()
                w.says = None
                w.go()
                assert house.take()[0][3] != "clean"
            elif how == "upstream timeout":
                held()
                assert house.take()[0][0] == 504
            elif how.startswith("policy process killed"):
                for w in house.workers:
                    w.go()
                # In the middle of it as often as not: many at once, and the blow among them.
                for i in range(40):
                    house.send(ids(300), wait=False)
                    if i == 20:
                        house.kill("policy", "active")
                assert all(a[0] == 200 for a in house.take())
                h.until("a standby again", lambda: house.pids("policy", "standby"))
            elif how.startswith("ingress process killed"):
                held()
                pid = house.kill("ingress", "ready")
                assert house.take()[0][0] == 0
                h.until("its successor", lambda: house.pids("ingress", "ready") not in ([], [pid]))
            elif how == "SIGHUP during request":
                w = held()
                generation = house.generation()
                house.hup()
                h.until("the reload", lambda: house.generation() > generation)
                w.go()
                assert house.take()[0][0] == 200
            elif how.startswith("413"):
                with raw.Client(house.port) as c:
                    c.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
                    c.send(b"10000\r\n" + b" " * 65536 + b"\r\n1\r\n ")
                    assert c.answer()[0] == 413
            else:
                raise AssertionError(f"an exit that nobody plays: {how}")
            for w in house.workers:
                w.go()
                w.begun, w.says = None, OK
            house.settle()
            h.until("no request to be live", lambda: house.stat()["requests"]["live"] == 0)


began = time.monotonic()
all_cases = [f for name, f in list(globals().items()) if name.startswith("rt") and callable(f)]
wanted = sys.argv[1:]
for f in all_cases:
    if wanted and not any(f.__name__.startswith(w) for w in wanted):
        continue
    t = time.monotonic()
    f()
    print(f"ok {time.monotonic() - t:5.1f} s ", f.__name__.split("_")[0].upper(), "", " ".join(f.__doc__.split()), flush=True)
print(f"in {time.monotonic() - began:.1f} s")
