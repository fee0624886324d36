"""Whatever a worker's pages and its health are like, each row says why in one word, and nothing else suffers from it.

One process plays engines with odd pages, one port each; the sleeping engine is the emulator.
"""
import gzip, http.server, json, threading, time

import house as h

BUSY = b"vllm:num_requests_waiting 3\nvllm:num_requests_running 4\n"
LINE = b"vllm:num_preemptions_total 1\n"
PLAIN = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
COMPLETION = json.dumps({"id": "c", "object": "text_completion", "model": "emu-8b", "usage": {"prompt_tokens": 3},
                         "choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]}).encode()
bomb = gzip.compress(LINE * (64 * 1024 * 1024 // len(LINE)), 1)
stop = threading.Event()


class Odd(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {**PLAIN, **{k.replace("_", "-"): v for k, v in headers.items()}}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.answered += 1
        self.say(200, COMPLETION, Content_Type="application/json")

    def do_GET(self):
        mode = self.server.mode
        if self.path == "/health":
            self.server.healths += 1
            if mode == "ending":
                return self.say(503, b"")
            if mode == "closing":
                return self.say(200, b"", Connection="close")
            return self.say(200, b"")
        if self.path != self.server.page:
            return self.say(404)
        self.server.pages += 1
        try:
            self.metrics(mode)
        except (BrokenPipeError, ConnectionResetError):
            pass                                # it has had enough

    def metrics(self, mode):
        if mode == "gzip":
            self.say(200, gzip.compress(BUSY), Content_Encoding="gzip")
        elif mode == "bomb":
            self.say(200, bomb, Content_Encoding="gzip")
        elif mode == "huge":
            self.say(200, LINE * (20 * 1024 * 1024 // len(LINE)))
        elif mode == "broken gzip":
            self.say(200, BUSY, Content_Encoding="gzip")
        elif mode == "absent":
            self.say(404)
        elif mode == "empty":
            self.say(200, b"# HELP vllm:num_requests_waiting x\n")
        elif mode == "other":
            self.say(200, b"sglang:num_queue_reqs 3\n")
        elif mode == "half":
            self.say(200, BUSY + b"vllm:kv_cache_usage_pe")
        elif mode == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "10000")
            self.end_headers()
            self.wfile.write(BUSY)
            self.close_connection = True
        elif mode == "no http":
            self.wfile.write(b"\x93NUMPY" * 40)
            self.close_connection = True
        elif mode == "slow":
            stop.wait(60)
            self.close_connection = True
        else:
            self.say(200, BUSY)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        pass                                    # a connection that the other side has ended


class Engine:
    def __init__(self, name, mode, page="/metrics"):
        self.name, self.server = name, Server(("127.0.0.1", 0), Odd)
        self.server.mode, self.server.page = mode, page
        self.server.pages = self.server.healths = self.server.answered = 0
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def member(self):
        return f"{{name: {self.name}, url: 'http://127.0.0.1:{self.server.server_port}'}}"

    def stop(self):
        self.server.shutdown()


def workers(house):
    return {w["worker"]: w for w in json.loads(house.ctl("workers", "--output", "json").stdout)["workers"]}


def wait_why(house, what, want):
    """want: {worker: {field of its reading: value}}"""
    def there():
        now = workers(house)
        return all(now[n]["reading"].get(k) == v for n, fields in want.items() for k, v in fields.items()) and now
    try:
        return h.until(what, there, 8)
    except h.Late as late:
        readings = {n: workers(house)[n]["reading"] for n in want}
        raise h.Late(f"{late}: {json.dumps(readings, indent=1)}")


def ask(house, ids):
    return h.request(house.port, "POST", "/v1/completions", {"model": "emu-8b", "prompt": ids, "max_tokens": 1})[0]


def peak_mib(pid):
    return int(next(x for x in open(f"/proc/{pid}/status") if x.startswith("VmHWM")).split()[1]) / 1024


def counter(house, name):
    page = h.request(house.admin, "GET", "/metrics")[1]
    return sum(int(x.split()[-1]) for x in page.splitlines() if x.startswith(f"pointsman_{name}_total{{"))


def sleeping_engine():
    """A sleeping engine holds nothing and gets nothing; it is back within a scrape of waking."""
    with h.House(workerset="  scrapeInterval: 100ms") as house:
        worker = house.add("--time-scale", 1000, "--block-size", 16, "--num-gpu-blocks", 4096)
        house.start()
        ids = list(range(1000, 1000 + 1600))
        assert ask(house, ids) == 200

        def held():
            index = json.loads(house.ctl("index", "--output", "json").stdout)
            return sum(w["exact_gpu"] + w["speculative"] for w in index["workers"])
        h.until("its blocks to be known", lambda: held() >= 100)
        assert worker.get("/sleep?level=1", "")[0] == 200
        wait_why(house, "it to be seen asleep", {"w0": {"health": "down", "health_why": "asleep"}})
        h.until("what it held to be forgotten", lambda: held() == 0)
        assert ask(house, ids) == 503
        assert worker.get("/wake_up", "")[0] == 200
        wait_why(house, "it to be seen awake", {"w0": {"health": "up", "health_why": "ok"}})
        assert ask(house, ids) == 200
        assert worker.get("/pause", "")[0] == 200
        wait_why(house, "it to be seen paused", {"w0": {"health": "down", "health_why": "paused"}})
        assert worker.get("/resume", "")[0] == 200
        wait_why(house, "it to go on", {"w0": {"health": "up", "health_why": "ok"}})


OK = {"metrics_why": "ok", "waiting": 3, "running": 4, "health": "up"}
UNKNOWN = {"waiting": None, "running": None, "health": "up"}
WANT = {
    "plain": OK, "gzip": OK,
    "bomb": {**UNKNOWN, "metrics_why": "too-large"}, "huge": {**UNKNOWN, "metrics_why": "too-large"},
    "broken gzip": {**UNKNOWN, "metrics_why": "encoding"}, "absent": {**UNKNOWN, "metrics_why": "no-page"},
    "empty": {**UNKNOWN, "metrics_why": "no-samples"}, "other": {**UNKNOWN, "metrics_why": "no-series"},
    "half": {**OK, "metrics_why": "in-part", "kv_usage": None}, "cut": {**UNKNOWN, "metrics_why": "cut"},
    "slow": {**UNKNOWN, "metrics_why": "slow"}, "no http": {**UNKNOWN, "metrics_why": "no-http"},
}

with h.House(workerset="  scrapeInterval: 100ms\n  tokenize: false") as house:
    engines = {mode: Engine(mode.replace(" ", "-"), mode) for mode in WANT}
    house.workers = list(engines.values())
    house.start()
    pid = house.pids("metrics")[0]
    began = peak_mib(pid)
    wait_why(house, "each page to be judged", {m.replace(" ", "-"): fields for m, fields in WANT.items()})
    grown = peak_mib(pid) - began
    assert grown < 24, f"hostile pages took {grown:.0f} MiB"
    # One that is slow or large delays nobody: the plain one has been read all the time, the slow one asked once.
    engines["slow"].server.mode, engines["plain"].server.pages = "slow", 0
    h.until("ten more pages of the plain one", lambda: engines["plain"].server.pages >= 10, 5)
    assert engines["slow"].server.pages <= 2, "a page that is waited for is not asked for again"
    # A worker that ends gets nothing new from its first 503, or its first closed connection, until it says 200 again.
    for mode, why in (("ending", "unavailable"), ("closing", "closing")):
        for e in engines.values():
            e.server.mode, e.server.answered = mode if e.name != "plain" else "plain", 0
        wait_why(house, f"{mode}", {e.name: {"health_why": why} for e in engines.values() if e.name != "plain"})
        for _ in range(20):
            assert ask(house, [1, 2, 3]) == 200
        assert engines["plain"].server.answered == 20, {e.name: e.server.answered for e in engines.values()}
        for e in engines.values():
            e.server.mode = "plain"
        wait_why(house, "all to be back", {e.name: {"health": "up", "health_why": "ok"} for e in engines.values()})
    # MX-06: no page of anybody: routed all the same, and counted.
    blind = counter(house, "decisions_blind")
    for e in engines.values():
        e.server.mode = "absent"
    sleeping_engine()                           # meanwhile
    wait_why(house, "all readings to be too old",
             {e.name: {"waiting": None, "health": "up"} for e in engines.values() if e.name != "slow"})
    assert ask(house, [1, 2, 3]) == 200
    h.until("that to be counted", lambda: counter(house, "decisions_blind") > blind)
    stop.set()

print("every page and every state was told apart")
