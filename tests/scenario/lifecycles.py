"""However a worker ends, sleeps, begins anew, is replaced or comes back, the index says what the workers hold: after each step
every block's holders are compared with the emulators' own caches (oracle.py), and under load no request fails.
lifecycles.py [BACKEND] [CASE...]
"""
import collections, contextlib, json, pathlib, random, signal, socket, sys, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h
import oracle

BACKEND = sys.argv.pop(1) if sys.argv[1:2] in (["io_uring"], ["epoll"]) else "auto"
SETTINGS = "  scrapeInterval: 100ms\n  slowStart: 1s"
ENGINE = ("--time-scale", 20, "--block-size", 16, "--num-gpu-blocks", 1200, "--max-model-len", 8000)
numbers = random.Random(7)


def ids(n):
    """A prompt nobody has seen."""
    return [numbers.randrange(5, 100000) for _ in range(n)]


class Fleet(h.House):
    def __init__(self, n, *options, settings=SETTINGS, **named):
        super().__init__(io=BACKEND, workerset=settings, gateway="  policyProcess: {probation: 200ms}", **named)
        if n:
            self.add(*ENGINE, *options, count=n)
        self.oracle = oracle.of(self)

    def start(self, wait=True):
        super().start(wait)
        self.wait_up()
        return self

    def members(self, workers, reload=True):
        self.workers = workers
        self.write()
        if reload:
            self.ctl("reload")

    def rows(self):
        return {(w["worker"], w["rank"]): w for w in json.loads(self.ctl("workers", "--output", "json").stdout)["workers"]}

    def wait_up(self, names=None):
        names = names or [w.name for w in self.workers]
        h.until(f"{names} to be up", lambda: {k[0] for k, w in self.rows().items() if w["state"] == "up"} >= set(names))

    def wait_not_up(self, name):
        h.until(f"{name} not to be up", lambda: all(w["state"] != "up" for k, w in self.rows().items() if k[0] == name))

    def ask(self, prompt, to=None, tokens=4):
        """One completion; its worker."""
        status, body, headers = h.request(to.port if to else self.port, "POST", "/v1/completions",
                                          {"model": self.model, "prompt": prompt, "max_tokens": tokens})
        assert status == 200, (status, body)
        return headers.get("x-pointsman-worker")

    def restart(self, w, how=""):
        """In place: the same process, as if it were another one."""
        def restarted():
            with contextlib.suppress(OSError):
                return w.state()["restarts"] == before + 1
        before = w.state()["restarts"]
        w.get(f"/emu/restart{how}", {})
        h.until("the restart", restarted)

    def wait_idle(self, w):
        """Nothing runs there any more; one that drains lets nobody in then."""
        def idle():
            try:
                return w.state()["requests"]["open"] == 0
            except OSError:
                return True
        h.until(f"what runs at {w.name} to end", idle)

    def fill(self, n=12):
        """Some blocks everywhere, those of a few prompts on several workers."""
        shared = ids(320)
        for w in self.workers:
            self.ask(shared + ids(64), to=w)
        for _ in range(n):
            self.ask(ids(numbers.randrange(40, 600)))


class Load:
    """Clients that ask for ever, streamed or not, with and without a prefix in common.  What is no 200 that ends well is in
    `wrong`; `to` counts requests by worker; `last` is the newest one's id."""

    def __init__(self, house, clients=6):
        self.house, self.wrong, self.to, self.done, self.last = house, [], collections.Counter(), 0, None
        self.ending, self.lock = threading.Event(), threading.Lock()
        self.prefixes = [ids(320) for _ in range(6)]
        self.threads = [threading.Thread(target=self.run, args=(random.Random(i),)) for i in range(clients)]

    def run(self, r):
        while not self.ending.is_set():
            prompt = (r.choice(self.prefixes) if r.random() < .7 else []) + [r.randrange(5, 100000) for _ in range(r.randrange(8, 200))]
            body = {"model": self.house.model, "prompt": prompt, "max_tokens": r.randrange(1, 30), "stream": r.random() < .5}
            try:
                status, said, headers = h.request(self.house.port, "POST", "/v1/completions", body, timeout=20)
                good = status == 200 and (not body["stream"] or said.endswith("data: [DONE]\n\n") and "error" not in said)
            except OSError as e:
                status, said, headers, good = None, repr(e), {}, False
            with self.lock:
                self.done += 1
                self.to[headers.get("x-pointsman-worker")] += 1
                self.last = headers.get("x-pointsman-request-id", self.last)
                if not good:
                    self.wrong.append((status, said[-300:] if isinstance(said, str) else said, headers))

    def more(self, n=40):
        """n further requests have ended."""
        end = self.done + n
        h.until(f"{n} requests under load", lambda: self.done >= end, 30)

    def __enter__(self):
        for t in self.threads:
            t.start()
        self.more()
        return self

    def __exit__(self, kind, *_):
        self.ending.set()
        for t in self.threads:
            t.join(30)
        if kind is None:
            assert not self.wrong, (len(self.wrong), self.done, self.wrong[:3])


def restart_in_place():
    """An engine that began anew behind its address holds nothing of what it held, whatever it is that tells: sequence numbers
    that begin again, a start time that moved though the numbers go on, a publisher with another name."""
    with Fleet(2, "--hash-seed", "random") as house:
        named = house.add(*ENGINE, "--kv-publisher-id", 1, "--hash-seed", "random")
        house.start()
        for w, how in [(house.workers[0], ""), (house.workers[0], "?seq=keep"), (house.workers[1], "?reconnect=1"), (named, "?seq=keep"),
                       (named, "")]:
            house.fill()
            held = house.oracle.equal(f"caches and index before the restart of {w.name} {how}")["blocks"]
            assert held > 200, held
            house.restart(w, how)
            house.oracle.equal(f"nothing of {w.name} to be left {how}")
            house.wait_up()
            house.ask(ids(200), to=w)
            house.oracle.equal(f"the new life of {w.name} to be known {how}")


def real_restart():
    """The same for a process that is killed and started again on its ports."""
    with Fleet(2) as house:
        house.start()
        house.fill()
        house.oracle.equal("caches and index")
        w = house.workers[0]
        w.stop(signal.SIGKILL)
        house.wait_not_up(w.name)
        w.start()
        house.wait_up()
        house.oracle.equal("nothing to be left")
        h.until("its events to be heard again", lambda: connections_to(w.kv_port))
        house.fill()
        house.oracle.equal("the new life to be known")


def back_before_its_page():
    """One that was away and answers /health again is believed nothing until its page says its start: killed and started again it
    holds nothing; the same engine, and all that it held counts again."""
    def believed(prompt):
        """Of w by a decision now: tokens of the prompt."""
        request = h.request(house.port, "POST", "/v1/completions", {"model": house.model, "prompt": prompt, "max_tokens": 1})[2][
            "x-pointsman-request-id"]
        said = json.loads(house.ctl("explain", request, "--output", "json").stdout)["decisions"][-1]
        of = next(c for c in said["candidates"] if c["worker"] == w.name)
        return of["cached_tokens"] + of["speculative_tokens"]

    def life(of):
        return house.rows()[w.name, 0]["reading"]["engine_start"] == of

    with Fleet(2) as house:
        house.start()
        prompts = [ids(640) for _ in range(3)]
        w = house.workers[0]
        for prompt in prompts:
            house.ask(prompt, to=w)
        house.oracle.equal("caches and index")
        h.until("its start to be known", lambda: not life(None))
        start = house.rows()[w.name, 0]["reading"]["engine_start"]
        assert believed(prompts[0]) >= 600

        w.get("/emu/config", {"unhealthy": True, "metrics-fault": "500"})
        house.wait_not_up(w.name)
        w.get("/emu/config", {"unhealthy": False})
        house.wait_up()
        assert life(None) and believed(prompts[0]) == 0
        w.get("/emu/config", {"metrics-fault": "none"})
        h.until("its start to be known again", lambda: life(start))
        assert believed(prompts[1]) >= 600
        house.oracle.equal("nothing of it to be lost")

        options = w.options
        w.stop(signal.SIGKILL)
        house.wait_not_up(w.name)
        w.options = [*options, "--metrics-fault", "500"]
        w.start()
        house.wait_up()
        assert life(None) and believed(prompts[0]) == 0
        said = house.ctl("workers", "--why", "--worker", w.name).stdout
        assert "same engine" in said, said
        w.get("/emu/config", {"metrics-fault": "none"})
        h.until("its new start to be known", lambda: not life(None) and not life(start))
        assert believed(prompts[2]) == 0
        house.oracle.equal("the new life to be known")


def sleep_and_wake():
    """A sleeping engine gets nothing and is believed to hold nothing; awake it gets requests again, and the index is exact."""
    with Fleet(2) as house:
        house.start()
        house.fill()
        house.oracle.equal("caches and index")
        w = house.workers[0]
        assert h.request(w.port, "POST", "/sleep?level=1", {})[0] == 200
        house.wait_not_up(w.name)
        house.oracle.equal("nothing to be believed of a sleeping engine")
        for _ in range(8):
            assert house.ask(ids(40)) != w.name
        assert h.request(w.port, "POST", "/wake_up", {})[0] == 200
        house.wait_up()
        house.fill()
        house.oracle.equal("all of it to be known again")


def paused_and_resumed():
    """A paused engine gets nothing; resumed it holds what it held, and the index never said otherwise."""
    with Fleet(2) as house:
        house.start()
        house.fill()
        house.oracle.equal("caches and index")
        w = house.workers[0]
        assert h.request(w.port, "POST", "/pause", {})[0] == 200
        house.wait_not_up(w.name)
        for _ in range(8):
            assert house.ask(ids(40)) != w.name
        house.oracle.equal("the paused one's cache to be known")
        assert h.request(w.port, "POST", "/resume", {})[0] == 200
        house.wait_up()
        house.fill()
        house.oracle.equal("all of it to be known")


def new_weights():
    """New weights empty the cache; the engine says so with its next step, and from then on nothing false is claimed."""
    with Fleet(2) as house:
        house.start()
        house.fill()
        house.oracle.equal("caches and index")
        for w in house.workers:
            assert h.request(w.port, "POST", "/update_weights", {})[0] == 200
            house.ask(ids(40), to=w)
        house.oracle.equal("only what came after the new weights")


def drained_under_load():
    """A worker that says it ends (503 to probes and to requests, closed connections) loses no request and gets no more; back, it
    gets them again."""
    with Fleet(3) as house:
        house.start()
        w = house.workers[0]
        with Load(house) as load:
            w.get("/emu/drain", {})
            house.wait_idle(w)
            house.wait_not_up(w.name)
            load.more()
            before = load.to[w.name]
            load.more(60)
            assert load.to[w.name] == before, (before, load.to)
            w.restart()
            house.wait_up()
            h.until("it to get requests again", lambda: load.to[w.name] > before + 5)
        # What it published before it was subscribed to again is not heard, and its state says so.
        house.oracle.equal("index and caches", where="exact")


def replaced_in_place_under_load():
    """A whole fleet is replaced behind its addresses, one after another (drained, ended, started), and no request fails."""
    with Fleet(3) as house:
        house.start()
        with Load(house) as load:
            for w in house.workers:
                w.get("/emu/drain", {})
                house.wait_idle(w)
                w.stop(signal.SIGTERM)
                load.more()
                w.start()
                house.wait_up()
                load.more()
        # Who publishes before he is subscribed to again is not heard: that worker's cache is known in part, and says so.
        house.oracle.equal("index and caches", where="exact")


def connections_to(port):
    """Established at that port of this machine."""
    with open("/proc/net/tcp") as f:
        return sum(1 for line in f if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "01")


def replaced_by_reloads_under_load():
    """A whole fleet gives way to another one, one member a reload, and no request fails; of those that left nothing stays: no
    row that serves, no slot, no block, no charge, no connection.  One that comes back under its name starts anew."""
    with Fleet(3) as house:
        house.start()
        old = list(house.workers)
        with Load(house) as load:
            for i, w in enumerate(old):
                new = house.add(*ENGINE, name=f"n{i}")
                house.workers.remove(w)
                house.members(house.workers)
                house.wait_up([new.name])
                load.more()
                h.until(f"{w.name} to have left", lambda: (w.name, 0) not in house.rows() and w.state()["requests"]["open"] == 0)
                assert w.state()["requests"]["failed"] == 0, w.state()["requests"]
            load.more()
            with oracle.Admin(house.run) as admin:
                h.until("their slots to be free", lambda: not [s for s in admin.ask("index_slots")["slots"]
                                                               if s["worker"] in (None, *(w.name for w in old))])
            h.until("their connections to be closed", lambda: not sum(connections_to(p) for w in old for p in (w.port, w.kv_port)))
        house.oracle.equal("index and caches")
        assert {w for w, _ in house.rows()} == {"n0", "n1", "n2"}, house.rows()
        back = old[0]
        assert back.state()["cached_hashes"] > 0
        house.members(house.workers + [back])
        house.wait_up()
        claimed = house.oracle.compare()
        assert not [x for k in ("false", "maybe") for x in claimed[k]] and not claimed["uncounted"], oracle.show(claimed)
        assert all(x.worker == back.name for x in claimed["missing"]), oracle.show(claimed)
        assert h.request(back.port, "POST", "/reset_prefix_cache", {})[0] == 200
        house.ask(ids(100), to=back)
        house.fill()
        house.oracle.equal("the one that is back to be known")
        for w in old[1:]:
            w.stop()


def data_parallel_ranks():
    """Ranks behind one port are workers of their own: each with its blocks, its events, its requests; a restart empties them
    all."""
    with Fleet(0, settings=SETTINGS + "\n  dataParallelRanks: 2") as house:
        for _ in range(20):             # events of rank 1 come from the next port
            try:
                house.add(*ENGINE, "--data-parallel-size", 2, name="dp", kv_port=h.free_port(2))
                break
            except h.Late:
                house.workers.clear()
        house.start()
        w, = house.workers
        for _ in range(24):
            house.ask(ids(numbers.randrange(40, 400)))
        said = house.oracle.equal("each rank's blocks to be known")
        assert said["blocks"] > 100
        by = collections.Counter(b["rank"] for b in h.request(w.port, "GET", "/emu/state?hashes=1")[1]["cached"])
        assert min(by[0], by[1]) > 40, by
        house.restart(w)
        house.oracle.equal("nothing of either rank to be left")
        house.wait_up()
        for _ in range(8):
            house.ask(ids(100))
        house.oracle.equal("both ranks to be known again")


def slow_start():
    """A worker that comes up beside busy ones has work at once; what is in flight there counts more, less and less, until its
    time is over, and each decision says so."""
    def handicap(house, request):
        """Of the new one in that decision; who was chosen is the best by these very numbers, but where that one was suspect."""
        said = json.loads(house.ctl("explain", request, "--output", "json").stdout)["decisions"][-1]
        cost = {c["worker"]: (c["predicted_ttft_us"] + c["handicap"] * c["predicted_load_us"]) / 1e6 for c in said["candidates"]
                if not c["removed_by"]}
        best.append(cost[said["chosen_worker"]] <= min(cost.values()) + .001 + 1e-5)
        return next(c["handicap"] for c in said["candidates"] if c["worker"] == "new")

    best = []
    with Fleet(2, settings="  scrapeInterval: 100ms\n  slowStart: 4s") as house:
        house.start()
        with Load(house, 12) as load:
            load.more(100)              # a fleet that is all new is all equal: some time in service first
            house.add(*ENGINE, name="new")
            house.members(house.workers)
            house.wait_up()
            seen = []

            def ended():
                seen.append(handicap(house, load.last))
                return seen[-1] == 0 < max(seen)

            h.until("its handicap to end", ended)
            assert .1 < max(seen) <= 9, seen
            assert sum(best) > .9 * len(best), (sum(best), len(best))
            h.until("it to have work", lambda: load.to["new"] > 0)
        house.oracle.equal("index and caches")


cases = [restart_in_place, real_restart, back_before_its_page, sleep_and_wake, paused_and_resumed, new_weights, drained_under_load,
         replaced_in_place_under_load, replaced_by_reloads_under_load, data_parallel_ranks, slow_start]
wanted = sys.argv[1:]
began, failed = time.monotonic(), []
for f in cases:
    if wanted and f.__name__ not in wanted:
        continue
    t = time.monotonic()
    try:
        f()
        print(f"ok     {time.monotonic() - t:5.1f} s ", f.__name__, "", " ".join(f.__doc__.split()), flush=True)
    except (AssertionError, h.Late, RuntimeError) as e:
        print(f"FAILED {time.monotonic() - t:5.1f} s ", f.__name__, repr(e)[:1500], flush=True)
        failed.append(f.__name__)
print(f"in {time.monotonic() - began:.1f} s")
sys.exit(bool(failed))
