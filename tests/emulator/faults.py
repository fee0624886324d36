"""What the emulator is asked to do wrong, it does, and nothing else: each fault of its events, replays, pages and life, seen
from outside with ZMQ and HTTP.  Waits for events, never for time.  usage: faults.py (PM_BIN: where the programs are)
"""
import gzip, http.client, json, pathlib, shutil, socket, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scenario"))
import house as h
import msgpack, zmq

BLOCK = 16
context = zmq.Context()
folder = pathlib.Path(tempfile.mkdtemp(prefix="emulator-"))
workers = []


class Emulator(h.Worker):
    """One that says where its events and replays are, and a SUB socket that is known to be heard."""

    def __init__(self, *options, listen=None, **named):
        super().__init__(folder, f"e{len(workers)}", "--profile", "zero", "--tokenizer", "ids", "--num-gpu-blocks", 256,
                         "--max-model-len", 4000, "--hash-seed", "random", *options, **named)
        workers.append(self)
        self.asked = 0
        self.sub = context.socket(zmq.SUB)
        self.sub.linger = 0
        self.sub.subscribe("")
        if listen is None:
            monitor = self.sub.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
            self.sub.connect(f"tcp://127.0.0.1:{self.kv_port}")
            assert monitor.poll(5000), "no connection"
            self.sub.disable_monitor()
            self.heard()

    def heard(self):
        """A subscription counts a moment after the connection: say things until one is heard."""
        for _ in range(500):
            self.ask()
            if self.sub.poll(10):
                break
        state = self.state()
        last = state.get("ranks", [state])[0]["next_seq"] - 1        # we hear the first one
        while self.take()[0] != last:
            pass

    def ask(self, first=None, n=40, headers=None, **more):
        """A prompt of n tokens, new unless its first is given; the usage."""
        self.asked += 1
        first = first if first is not None else self.asked * 1000
        status, body, _ = h.request(self.port, "POST", "/v1/completions", {
            "model": self.model, "prompt": [first + i for i in range(n)], "max_tokens": 1, **more}, headers)
        assert status == 200, body
        return body["usage"]

    def take(self):
        """The next batch: sequence number, events, what stands behind them."""
        assert self.sub.poll(5000), "no batch"
        _, seq, payload = self.sub.recv_multipart()
        batch = msgpack.unpackb(payload)
        return int.from_bytes(seq, "big"), batch[1], batch[2:]

    def config(self, **values):
        status, body, _ = self.get("/emu/config", {k.replace("_", "-"): v for k, v in values.items()})
        assert status == 200, body

    def replay(self, start=0):
        """All replies to one request, and whether the end was said."""
        with context.socket(zmq.DEALER) as s:
            s.linger = 0
            s.connect(self.replay_at)
            s.send_multipart([b"", start.to_bytes(8, "big")])
            got, wait = [], 5000
            while s.poll(wait):
                frames = s.recv_multipart()
                seq = frames[-2]
                if seq == b"\xff" * 8:
                    return got, len(frames), True
                got.append(int.from_bytes(seq, "big"))
                wait = 300              # what comes comes at once
            return got, None, False

    @property
    def replay_at(self):
        return self.get("/kv_event_sources")[1]["0"]["replay_endpoint"]

    def lives(self):
        """The new process answers."""
        h.read_line(self.process.stdout, f"{self.name} to be back", 10)


def types(events):
    return [e["type"] for e in events]


def events_are_lost_doubled_and_late():
    e = Emulator()
    base = e.state()["next_seq"]
    e.config(drop_events=1)
    e.ask()
    e.config(drop_events=0, dup_events=1)
    e.ask()
    e.config(dup_events=0, reorder_events=1)
    e.ask()
    e.config(reorder_events=0, gap=7)
    e.ask()
    got = [e.take()[0] for _ in range(4)]
    assert got == [base + 1, base + 1, base + 10, base + 2], (base, got)
    assert e.state()["next_seq"] == base + 11 and e.state()["events_dropped"] == 1


def a_replay_has_holes_and_no_end():
    e = Emulator("--kv-replay-endpoint", "tcp://127.0.0.1:*")
    while e.state()["next_seq"] < 9:
        e.ask()
    n = e.state()["next_seq"]
    assert e.replay() == (list(range(n)), 5 - 1, True)      # the DEALER's delimiter, topic, number, payload
    assert e.replay(5)[0] == list(range(5, n))
    e.config(replay_drop_every=3, replay_no_end=1)
    got, _, end = e.replay()
    assert got == [i for i in range(n) if i % 3 != 2] and not end, got
    old = Emulator("--kv-replay-endpoint", "tcp://127.0.0.1:*", "--kv-replay-form", "old", "--kv-buffer-steps", 3)
    while old.state()["next_seq"] < 6:
        old.ask()
    n = old.state()["next_seq"]
    assert old.replay() == (list(range(n - 3, n)), 3, True)


def a_restart_begins_anew_hides_or_reconnects():
    e = Emulator("--kv-publisher-id")
    e.ask(7)
    _, (stored,), (_, id1) = e.take()
    e.get("/emu/restart", {})
    e.lives()
    e.ask(7)
    seq, (again,), (_, id2) = e.take()
    assert seq == 0 and again["token_ids"] == stored["token_ids"] and again["block_hashes"] != stored["block_hashes"]
    assert id1 != id2 and len(id1) == len(id2) == 16
    e.get("/emu/restart?seq=keep", {})
    e.lives()
    assert e.ask(7)["prompt_tokens_details"]["cached_tokens"] == 0
    assert e.take()[0] == 1
    monitor = e.sub.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    e.get("/emu/restart?reconnect=1", {})
    e.lives()
    assert monitor.poll(5000), "the connection stands"
    e.sub.disable_monitor()
    e.heard()


def an_idle_publisher_with_an_id_says_so_each_second():
    e = Emulator("--kv-publisher-id")
    seq, events, (rank, ident) = e.take()
    assert events == [] and rank == 0 and seq == e.state()["next_seq"] - 1
    assert ident == e.take()[2][1]


def a_publisher_connects_where_it_is_told_to():
    sub = context.socket(zmq.SUB)
    sub.subscribe("")
    port = sub.bind_to_random_port("tcp://127.0.0.1")
    e = Emulator("--kv-connect", listen=port, kv_port=port)
    e.sub = sub
    e.heard()


def what_sleeps_or_is_paused_waits_and_clears_with_the_next_step():
    e = Emulator()
    e.ask(7)
    e.take()
    assert e.get("/sleep?level=1", {})[0] == 200 and e.get("/is_sleeping")[1] == {"is_sleeping": True}
    assert 'sleep_state="weights_offloaded"} 1.0' in e.get("/metrics")[1]
    assert e.state()["cached_blocks"] == 0 and not e.sub.poll(0)
    c = http.client.HTTPConnection("127.0.0.1", e.port, timeout=20)
    c.request("POST", "/v1/completions", json.dumps({"model": e.model, "prompt": list(range(7, 47)), "max_tokens": 1}))
    h.until("the request to wait", lambda: e.state()["waiting"] == 1)
    e.get("/wake_up", {})
    assert json.loads(c.getresponse().read())["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert types(e.take()[1]) == ["AllBlocksCleared", "BlockStored"]
    e.get("/pause", {})
    assert e.get("/is_paused")[1] == {"is_paused": True}
    assert e.get("/update_weights", {})[1] == {"success": True}
    e.get("/resume", {})
    e.ask()
    assert types(e.take()[1]) == ["AllBlocksCleared", "BlockStored"]


def who_drains_says_so_ends_what_runs_and_lets_nobody_in():
    e = Emulator("--t-o", 0.3)
    c = http.client.HTTPConnection("127.0.0.1", e.port, timeout=20)
    c.request("POST", "/v1/completions", json.dumps({"model": e.model, "prompt": [1, 2, 3], "max_tokens": 3}))
    h.until("the request to run", lambda: e.state()["running"] == 1)
    e.get("/emu/drain", {})
    status, _, headers = e.get("/health")
    assert status == 503 and {k.lower(): v for k, v in headers.items()}["connection"] == "close"
    r = c.getresponse()
    assert r.status == 200 and r.getheader("connection") == "close" and len(r.read()) > 0

    def refused():
        try:
            e.get("/health")
        except OSError:
            return True
    h.until("connections to be refused", refused)


def pages_are_spoilt_as_asked():
    e = Emulator()
    e.config(metrics_fault="nan")
    assert 'vllm:kv_cache_usage_perc{engine="0",model_name="emu-8b"} NaN\n' in e.get("/metrics")[1]
    e.config(metrics_fault="gzip")
    c = http.client.HTTPConnection("127.0.0.1", e.port, timeout=20)
    c.request("GET", "/metrics")
    r = c.getresponse()
    assert r.getheader("content-encoding") == "gzip" and b"vllm:num_requests_running" in gzip.decompress(r.read())
    e.config(metrics_fault="half")
    try:
        e.get("/metrics")
        raise AssertionError("a whole page")
    except http.client.IncompleteRead:
        pass
    e.config(metrics_fault="huge")
    assert len(e.get("/metrics")[1]) > 16 << 20
    e.config(metrics_fault="500")
    assert e.get("/metrics")[0] == 500
    assert e.get("/emu/config", {"metrics-fault": "nonsense"})[0] == 400
    e.config(metrics_fault="stall")
    with socket.create_connection(("127.0.0.1", e.port)) as s:
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        s.settimeout(0.3)
        try:
            assert not s.recv(1), "an answer"
        except TimeoutError:
            pass


def ranks_adapters_and_tiers_are_told_as_they_are():
    e = Emulator("--data-parallel-size", 2, "--lora", "a,b", "--offload-blocks", 4, "--offload-self-describing")
    e.ask(7, n=4 * BLOCK + 1, headers={"X-data-parallel-rank": "0"}, model="b", cache_salt="s")
    _, events, behind = e.take()
    assert all(r["medium"] == "CPU" for r in events if r["type"] == "BlockRemoved")    # of the prompts before
    events = [r for r in events if r["type"] == "BlockStored"]
    assert behind == [0] and [(s["medium"], s["lora_name"], s["lora_id"]) for s in events] == [("GPU", "b", 2), ("CPU", "b", 2)]
    assert events[0]["extra_keys"] == [["b", "s"], ["b"], ["b"], ["b"]] and "extra_keys" not in events[1]
    assert e.ask(7, n=4 * BLOCK + 1, headers={"X-data-parallel-rank": "1"}, model="b", cache_salt="s")[
        "prompt_tokens_details"]["cached_tokens"] == 0
    assert h.request(e.port, "POST", "/v1/completions", {"model": e.model, "prompt": [1]},
                     {"X-data-parallel-rank": "2"})[0] == 400
    blocks = [b for b in e.get("/emu/state?hashes=1&tokens=1")[1]["cached"] if b["lora"] == "b"]
    assert {(b["rank"], b["tier"]) for b in blocks} == {(r, t) for r in (0, 1) for t in ("GPU", "CPU")}
    names = [f"0x{n:016x}" for n in events[0]["block_hashes"]]
    chain = sorted((b for b in blocks if b["rank"] == 0 and b["tier"] == "GPU"), key=lambda b: b["start"])
    assert [b["hash"] for b in chain] == names and [b["parent"] for b in chain] == [None, *names[:3]]
    assert sum((b["token_ids"] for b in chain), []) == events[0]["token_ids"] and all(b["salt"] == "s" for b in chain)


def a_socket_is_served_and_all_that_came_is_written_down():
    path = folder / "p.sock"
    e = h.Provider(folder, "elsewhere", path=path, profile="zero")
    workers.append(e)
    body = {"model": e.model, "prompt": "grüß", "max_tokens": 2}
    assert e.get("/v1/completions", body, {"X-Own": "1"})[0] == 200 and e.get("/health")[0] == 200
    e.get("/v1/completions", b"{\xff")
    e.restart()                                 # in the place of the socket that was left
    assert e.get("/v1/completions", body)[0] == 200
    said = [json.loads(line) for line in e.sink.read_text().splitlines()]
    assert [s["path"] for s in said] == ["/v1/completions", "/health", "/v1/completions", "/v1/completions"], said
    assert json.loads(said[0]["body"]) == body and ["X-Own", "1"] in said[0]["headers"]
    assert said[1]["body"] == "" and bytes(said[2]["body"]) == b"{\xff"


try:
    for case in (events_are_lost_doubled_and_late, a_replay_has_holes_and_no_end, a_restart_begins_anew_hides_or_reconnects,
                 an_idle_publisher_with_an_id_says_so_each_second, a_publisher_connects_where_it_is_told_to,
                 what_sleeps_or_is_paused_waits_and_clears_with_the_next_step,
                 who_drains_says_so_ends_what_runs_and_lets_nobody_in, pages_are_spoilt_as_asked,
                 ranks_adapters_and_tiers_are_told_as_they_are, a_socket_is_served_and_all_that_came_is_written_down):
        case()
        print(case.__name__.replace("_", " "))
finally:
    for w in workers:
        w.stop()
        if hasattr(w, "sub"):
            w.sub.close()
    context.destroy(linger=0)       # also what a case that failed left open
shutil.rmtree(folder)
