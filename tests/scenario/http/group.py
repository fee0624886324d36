"""One Pointsman for many HTTP scenarios, each with a model and workers of its own.

A scenario is a .vtc file.  Its workers are its own `server` blocks; before each stands a Door: it answers the
metrics process's probes (which come whenever they like) and passes everything else on, byte for byte, ends
and resets too.  Scenarios do not share workers, so what one does to them means nothing to the next.
Worker `a` is predicted to be the faster one and is always asked first; `b` is the other candidate.
Scenarios with the same `# gateway:` line share one Pointsman.  Standard library only.
"""
import json, pathlib, re, select, socket, struct, sys, threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import house as h

PAGE = b"""\
vllm:num_requests_running{model_name="m"} 0
vllm:num_requests_waiting{model_name="m"} 0
vllm:kv_cache_usage_perc{model_name="m"} 0
"""
PROBES = (b"GET /health ", b"GET /metrics ", b"GET /v1/models ")
NOT_HERE = (b"GET /is_sleeping ", b"GET /is_paused ")        # asked of an engine in development mode only
# What no process may say, whatever came over the wire.
ALARMS = re.compile(r"AddressSanitizer|LeakSanitizer|runtime error:|dangling|: died, |killing, because|not born")


def reset(s):
    """Close so that the other side sees a reset."""
    try:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    s.close()


def rss_kib(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("RssAnon:"))


def sanitized(pid):
    """ASan keeps what is freed for a while: memory has another bound there."""
    with open(f"/proc/{pid}/maps", "rb") as f:
        return b"libasan" in f.read()


class Door:
    def __init__(self):
        self.port, self.behind = h.free_port(), h.free_port()
        self.probes, self.probed = 0, threading.Condition()
        self.listener = None
        self.asking = set()             # connections that asked for nothing but probes yet
        self.open()

    def open(self):
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def accept(self, listener):
        while True:
            try:
                s, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def shut(self):
        """Refuse connections.  Right after a probe: the next is an interval away and cannot tell before."""
        self.wait_probes(1)
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for s in list(self.asking):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass                    # it has just ended by itself

    def wait_probes(self, n):
        with self.probed:
            want = self.probes + n
            if not self.probed.wait_for(lambda: self.probes >= want, 30):
                raise h.Late("waited 30 s for health probes")

    def serve(self, front):
        try:
            front.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.asking.add(front)
            seen = front.recv(65536)
            while seen.startswith(PROBES + NOT_HERE):
                if seen.startswith(NOT_HERE):
                    front.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                    seen = front.recv(65536)
                    continue
                page = PAGE if seen.startswith(PROBES[1]) else b""
                front.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(page) + page)
                if seen.startswith(PROBES[0]):
                    with self.probed:
                        self.probes += 1
                        self.probed.notify_all()
                seen = front.recv(65536)
            self.asking.discard(front)
            if seen:
                self.relay(front, seen)
            front.close()
        except OSError:
            self.asking.discard(front)
            reset(front)

    def relay(self, front, seen):
        back = socket.create_connection(("127.0.0.1", self.behind), timeout=10)
        back.settimeout(None)
        back.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            back.sendall(seen)
            open_ends = {front: back, back: front}
            while open_ends:
                for s in select.select(list(open_ends), [], [])[0]:
                    data = s.recv(65536)
                    if data:
                        open_ends.get(s).sendall(data)
                        continue
                    other = open_ends.pop(s)
                    try:
                        other.shutdown(socket.SHUT_WR)
                    except OSError:
                        pass
            back.close()
        except OSError:
            reset(back)
            raise


class Scenario:
    def __init__(self, name, text="", workers="ab", door=Door, scrape="1s"):
        self.name = name
        self.sentence = text.split("\n", 1)[0].removeprefix("vtest").strip(' "')
        said = dict(re.findall(r"^# (gateway|refused): (.*)$", text, re.M))
        self.gateway = said.get("gateway", "")
        self.refused = said.get("refused", "").split()      # workers whose port is closed
        self.workers = workers
        self.scrape = scrape            # interval of probes
        self.door = door                # what stands where the workers' URLs point
        self.doors = {}

    def documents(self):
        for w in self.workers:
            prior = "1ms" if w == "a" else "10s"
            yield f"""\
apiVersion: pointsman.io/v1alpha1
kind: InferenceWorkerSet
metadata: {{name: {self.name}-{w}}}
spec:
  engine: vllm
  model: {self.name}
  members: [{{name: {w}, url: "http://127.0.0.1:{self.doors[w].port}"}}]
  tokenize: false
  scrapeInterval: {self.scrape}
  blockSize: 16
  prior: {{base: {prior}}}
"""
        yield f"""\
apiVersion: pointsman.io/v1alpha1
kind: InferencePool
metadata: {{name: {self.name}}}
spec: {{workerSets: [{", ".join(f"{self.name}-{w}" for w in self.workers)}]}}
"""
        yield f"""\
apiVersion: pointsman.io/v1alpha1
kind: InferencePolicy
metadata: {{name: {self.name}}}
spec: {{candidates: [{{pool: {self.name}}}], minimize: PredictedTTFT}}
"""


class Group(h.House):
    """A Pointsman before all the scenarios' workers, ready: every worker is known to be up."""

    def __init__(self, scenarios, io, gateway="", body="64KiB"):
        super().__init__(io=io)
        self.scenarios = scenarios
        for s in scenarios:
            s.doors = {w: s.door() for w in s.workers}
        models = ", ".join(f"{{name: {s.name}, policy: {s.name}}}, "
                           f"{{name: {s.name}-by-another-name, aliasOf: {s.name}, policy: {s.name}}}"
                           for s in scenarios)
        self.write("---\n".join([f"""\
apiVersion: pointsman.io/v1alpha1
kind: GatewayBackend
metadata: {{name: front}}
spec:
  listen: ["127.0.0.1:{self.port}"]
  admin: {{listen: "127.0.0.1:{self.admin}"}}
  io: {{backend: {io}}}
  limits: {{bodyBytes: {body}}}
  models: [{models}]
{gateway}
""", *(d for s in scenarios for d in s.documents())]))

    def start(self, wait=True):
        super().start(wait)
        h.until("all workers to be up", lambda: (s := self.stat())["workers_up"] == s["workers_count"])
        return self

    def settle(self):
        """Nothing stays charged, every request has one outcome, and no process died or was replaced."""
        def balanced():
            r = self.stat()["requests"]
            return r["live"] == 0 and r["total"] == r["ok"] + r["client_error"] + r["failed"] + r["cancelled"]

        h.until("every request to have its outcome", balanced)
        h.until("the ledger to be empty", lambda: all(
            w["pending_tokens"] == w["prefilling"] == w["context_tokens"] == w["decoding"] == 0
            for w in json.loads(self.ctl("workers", "--output", "json").stdout)["workers"]))
        again = [p for p in self.stat()["processes"] if p["restarts"] or p["last_exit"]]
        if again:
            raise RuntimeError(f"not all of the first set: {again}")
        return self.stat()["requests"]

    def __exit__(self, kind, error, trace):
        super().__exit__(kind, error, trace)
        if not error:
            self.no_alarms()

    def stop(self, expect=0):
        super().stop(expect)
        self.no_alarms()

    def no_alarms(self):
        if not (self.folder / "pointsman.log").exists():
            return
        bad = [l for l in self.tail(1 << 30).splitlines() if ALARMS.search(l)]
        if bad:
            raise RuntimeError("said in the log:\n" + "\n".join(bad[:20]))
