"""`pointsctl workers --why` tells each reporter of the kv, mx and tk cases in one line what is wrong, and raises no
alarm where Pointsman handles it; `pointsctl events` shows a worker's events as they are applied; the hash seed stays.

Every case is a worker of its own: a small HTTP server here and a real ZMQ publisher, fed with the cases' inputs.
"""
import http.server, json, os, pathlib, re, select, signal, struct, subprocess, sys, threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h
import msgpack, zmq

CASES = h.ROOT / "tests/data/cases"
GOOD = ('vllm:num_requests_waiting{engine="0"} 0\nvllm:num_requests_running{engine="0"} 1\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.5\n')
TWO = GOOD + GOOD.replace('engine="0"', 'engine="1"')
SILENT = 50                             # prompts without an event after which silence is told, and 10 s
FEW = 20                                # requests below which "none of them" says nothing


def hexed(name):
    return bytes.fromhex((CASES / "kv" / name).read_text()) if not name.startswith("tk") else \
        bytes.fromhex((CASES / "tk" / name).read_text())


def batch(*events, rank=0):
    return msgpack.packb([1.5, list(events), rank])


def stored(hashes, tokens, size=16, parent=None, **more):
    return {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens,
            "block_size": size, "lora_id": None, "medium": "GPU", "lora_name": None, **more}


class Engine:
    """One worker: what its page says, how it counts tokens, and one publisher a rank."""

    def __init__(self, name, page=GOOD, extra_tokens=0, ranks=1, spec="", member="", kv=True, alias="",
                 cached=0):
        self.name, self.page, self.extra_tokens, self.ranks, self.spec = name, page, extra_tokens, ranks, spec
        self.cached = cached
        self.kv, self.hang, self.member_spec, self.alias = kv, threading.Event(), member, alias and f", {alias}"
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def say(self, status, body, kind="application/json"):
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                try:
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:         # it did not wait
                    self.close_connection = True

            def do_GET(self):
                if self.path == "/metrics":
                    if engine.hang.is_set():
                        stopped.wait()
                        return
                    if engine.page is None:
                        return self.say(404, {"detail": "Not Found"})
                    return self.say(200, engine.page, "text/plain; version=0.0.4")
                if self.path == "/v1/models":
                    return self.say(200, {"object": "list", "data": [{"id": engine.name, "max_model_len": 8192}]})
                self.say(200, {})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                prompt = body.get("prompt") or json.dumps(body.get("messages") or body.get("input") or "")
                if isinstance(prompt, str) and self.path != "/tokenize":       # the older name, which /tokenize does not know
                    prompt = prompt.replace('"reasoning_content":', '"reasoning":')
                ids = prompt if isinstance(prompt, list) else list(prompt.encode())
                if self.path == "/tokenize":
                    return self.say(200, {"count": len(ids), "max_model_len": 8192, "tokens": ids})
                n = len(ids) + engine.extra_tokens
                self.say(200, {"id": "x", "object": "text_completion", "model": engine.name,
                               "choices": [{"index": 0, "text": "a", "finish_reason": "stop"}],
                               "usage": {"prompt_tokens": n, "completion_tokens": 1, "total_tokens": n + 1,
                                         "prompt_tokens_details": {"cached_tokens": engine.cached}}})

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.port = self.server.server_address[1]
        self.pubs = []
        while self.kv and len(self.pubs) < ranks:       # ports that follow each other
            first = h.free_port(ranks)
            self.pubs = []
            for r in range(ranks):
                pub = context.socket(zmq.XPUB)
                pub.linger = 0
                try:
                    pub.bind(f"tcp://127.0.0.1:{first + r}")
                except zmq.ZMQError:
                    break
                self.pubs.append(pub)
            self.kv_port = first

    def joined(self):
        for pub in self.pubs:
            assert pub.poll(20000), f"kvevents never came to {self.name}"
            assert pub.recv()[:1] == b"\x01", self.name        # and how topics must begin

    def publish(self, seq, payload, topic=b"", rank=0):
        self.pubs[rank].send_multipart([topic, struct.pack(">Q", seq), payload])

    def documents(self):
        kv = f", kvEvents: 'tcp://127.0.0.1:{self.kv_port}'" if self.kv else ""
        return f"""---
apiVersion: pointsman.io/v1alpha1
kind: InferenceWorkerSet
metadata: {{name: {self.name}}}
spec:
  engine: vllm
  model: {self.name}
  members: [{{name: {self.name}, url: 'http://127.0.0.1:{self.port}'{kv}{self.member_spec}}}]
{self.spec}
---
apiVersion: pointsman.io/v1alpha1
kind: InferencePool
metadata: {{name: {self.name}}}
spec: {{workerSets: [{self.name}]}}
---
apiVersion: pointsman.io/v1alpha1
kind: InferencePolicy
metadata: {{name: {self.name}}}
spec: {{match: {{models: [{self.name}{self.alias}]}}, candidates: [{{pool: {self.name}}}], minimize: PredictedTTFT}}
"""


context, stopped = zmq.Context(), threading.Event()
engines = {}


def engine(name, **more):
    engines[name] = Engine(name, **more)
    return engines[name]


def facts(house, name):
    said = json.loads(house.ctl("workers", "--why", "--worker", name, "--output", "json").stdout)
    assert {w["worker"] for w in said["workers"]} == {name}, said
    return [f for w in said["workers"] for f in w["why"]]


def troubles(house, name):
    return [f for f in facts(house, name) if f["trouble"]]


def told(house, name, about, is_, reason, *words, trouble=True):
    """Waits until the line is there; every word is in it."""
    def found():
        return next((f for f in facts(house, name) if (f["about"], f["is"], f["reason"]) == (about, is_, reason)), None)
    try:
        f = h.until(f"{name}: {about} {is_} ({reason})", found)
    except h.Late:
        raise AssertionError((name, facts(house, name), [w for w in json.loads(house.ctl("workers", "--output", "json").stdout)["workers"] if w["worker"] == name]))
    for w in words:
        assert re.search(w, f["text"]), (name, w, f)
    assert f["trouble"] == trouble and len(f["text"]) < 399 and "\n" not in f["text"], (name, f)
    return f


def quiet(house, name, batches=None, cache="exact"):
    """Nothing is wrong, and nobody says so."""
    def settled():
        w = next(w for w in json.loads(house.ctl("workers", "--output", "json").stdout)["workers"] if w["worker"] == name)
        return batches is None or w["cache"]["batches"] == batches
    h.until(f"{name}: {batches} batches", settled)
    assert not troubles(house, name), (name, troubles(house, name))
    if cache:
        assert any(f["about"] == "cache" and f["is"] == cache for f in facts(house, name)), (name, facts(house, name))


# ---- the workers, one a case ----
for name in ("kv01", "kv01-new", "kv03", "kv05", "kv06", "kv09", "kv11", "kv12", "kv13", "tk01", "tk01-id", "tk04"):
    engine(name)
engine("kv13-other")
engine("kv13-filter", spec="  blockSize: 16\n  kvTopic: other-events")
engine("kv11-size", spec="  blockSize: 16")
engine("kv10", ranks=2, page=TWO, spec="  dataParallelRanks: 2")
engine("kv10-mixed", ranks=2, page=TWO, spec="  dataParallelRanks: 2")
engine("many-ranks", ranks=17, page="".join(GOOD.replace('engine="0"', f'engine="{r}"') for r in range(17)),
       spec="  dataParallelRanks: 17")
engine("off", kv=False)
for name, file in (("mx02", "mx02_engines"), ("mx03", "mx03_pids"), ("mx04", "mx04_values")):
    engine(name, kv=False, page=(CASES / f"mx/{file}.prom").read_text())
engine("mx08", kv=False, page=(CASES / "mx/mx08_dup_help.prom").read_text() + GOOD)
engine("mx06", kv=False)
engine("mx-404", kv=False, page=None)
engine("mx-help", kv=False, page="# HELP vllm:x y\n# TYPE vllm:x gauge\n")
engine("tk02", kv=False, extra_tokens=1)
engine("tk05", kv=False)
engine("tk06", kv=False, alias="tk06-alias")
engine("tk08", kv=False, spec="  tokenize: false")
engine("hits-missing", kv=False, spec="  blockSize: 16")
engine("hits-unknown", kv=False, spec="  blockSize: 16", cached=16)
engine("hits-sound", kv=False, spec="  blockSize: 16", cached=96)
engine("silent", spec="  blockSize: 16")
engine("silent-unsized")

with h.House() as house:
    house.config.write_text(f"""\
apiVersion: pointsman.io/v1alpha1
kind: GatewayBackend
metadata: {{name: front}}
spec:
  listen: {json.dumps(house.listen)}
  admin: {{listen: "127.0.0.1:{house.admin}"}}
  models: [{", ".join(f"{{name: {n}, policy: {n}}}" for n in engines)}, {{name: tk06-alias, aliasOf: tk06}}]
{"".join(e.documents() for e in engines.values())}""")
    house.start()
    for e in engines.values():
        e.joined()
    engines["mx06"].hang.set()

    def ask(model, path="/v1/completions", **body):
        status, said, _ = h.request(house.port, "POST", path, {"model": model, "max_tokens": 1, **body})
        assert status == 200, (model, said)

    for i in range(SILENT + 10):     # notes of the first may be lost
        ask("silent", prompt=list(range(i, i + 100)))
        ask("kv13-filter", prompt=list(range(i, i + 100)))

    # ---- KV ----
    tokens = list(range(1000, 1016))
    one = batch(stored([5], tokens))
    names = ["kv01_map.hex", "kv01_array.hex", "kv01_map_type_last_unknown_keys.hex", "kv01_mixed_batch.hex",
             "kv01_outer_map.hex"]
    for seq, name in enumerate(names):
        engines["kv01"].publish(seq, hexed(name))
    for seq in range(60):               # what a format of tomorrow looks like to us
        engines["kv01-new"].publish(seq, batch({"type": "BlockMoved", "blocks": [1]}))
    names = ["kv03_array_min5.hex", "kv03_array_14_fields.hex", "kv03_removed_short_and_long.hex",
             "kv03_batch_without_rank.hex", "kv03_int_timestamp.hex"]
    for seq, name in enumerate(names):
        engines["kv03"].publish(seq, hexed(name))
    for name, file in (("kv05", "kv05_gap.jsonl"), ("kv06", "kv06_restart.jsonl"), ("kv09", "kv09_dup.jsonl")):
        for line in (CASES / "kv" / file).read_text().splitlines():
            m = json.loads(line) if line.strip() else {}
            if "replay_reply" in m:
                break
            if "payload_hex" in m:
                engines[name].publish(m["seq"], bytes.fromhex(m["payload_hex"]), m["topic"].encode())
    for rank in (0, 1):
        engines["kv10"].publish(0, batch(stored([5], tokens), rank=rank), b"same", rank)
        engines["kv10-mixed"].publish(0, batch(stored([5], tokens), rank=rank + 2), b"same", rank)
    engines["kv11"].publish(0, hexed("kv11_groups.hex"))
    for seq in range(3):
        engines["kv11-size"].publish(seq, batch(stored([seq + 1], list(range(32)), 32)))
    engines["kv12"].publish(0, hexed("kv12_offload.hex"))
    for seq, topic in enumerate(("", "kv-events", "kv@10.0.0.1@demo-8b", "kv@10.0.0.1:8000@org/demo@v2")):
        engines["kv13"].publish(seq, batch(stored([seq + 1], tokens)), topic.encode())

    for seq in range(2):                # another engine's: its address, not this worker's
        engines["kv13-other"].publish(seq, batch(stored([seq + 1], tokens)), b"kv@127.9.9.9:8000@demo-8b")
        engines["kv13-filter"].publish(seq, batch(stored([seq + 1], tokens)), b"kv-events")

    quiet(house, "kv01", 5)
    told(house, "kv01-new", "events", "deaf", "tag", r"^60 batches received, 0 events applied; 60 times: ", "newer")
    quiet(house, "kv03", 5)
    f = told(house, "kv05", "cache", "gap", "sequence-hole", "events were lost", "sequence 13",
             "kvReplay, which could bring them back, is not configured")
    assert f["since"] and f["since_s"] < 60, f
    told(house, "kv06", "cache", "exact", "sequence-back", "began anew", trouble=False)
    assert not troubles(house, "kv09") or [f["reason"] for f in troubles(house, "kv09")] == ["first-sequence"]
    quiet(house, "kv10", 1)
    told(house, "kv10-mixed", "events", "deaf", "rank", "0 events applied", r"rank \d, here is \d", "mixed up")
    quiet(house, "kv11", 1)
    told(house, "kv11-size", "events", "applied", "configured-block-size", "theirs 32 tokens, blockSize 16",
         "correct or drop blockSize")
    quiet(house, "kv12", 1)
    quiet(house, "kv13", 4)
    told(house, "kv13-other", "events", "deaf", "topic", "0 events applied", "topic of another", "kvTopic")
    told(house, "off", "cache", "approximate", "no-events", "kvEvents is not configured", trouble=False)

    # ---- MX ----
    told(house, "mx02", "metrics", "known", "ok", "not its start", trouble=False)
    told(house, "mx03", "metrics", "in-part", "ok", "does not say waiting, running", "unknown, not 0",
         "the largest counts")
    told(house, "mx04", "metrics", "in-part", "ok", "does not say waiting, or says no finite number")
    told(house, "mx08", "metrics", "known", "ok", trouble=False)
    told(house, "mx-404", "metrics", "unknown", "no-page", "/metrics, status 404", "SGLang wants --enable-metrics",
         "unknown \\(not 0\\)")
    told(house, "mx-help", "metrics", "unknown", "no-samples")

    # ---- TK ----
    engines["tk01"].publish(0, hexed("tk01_lora.hex"))
    for seq in range(2):
        engines["tk01-id"].publish(seq, batch(stored([seq + 1], tokens, lora_id=7)))
    h.until("tk01's events", lambda: any(f["about"] == "events" and f["is"] == "applied" for f in facts(house, "tk01")))
    assert {f["reason"] for f in troubles(house, "tk01")} <= {"extra-keys"}    # an image's and a salt's name in one list
    told(house, "tk01-id", "events", "applied", "adapter", "number of the engine only", "before 0.14")
    for i in range(3):
        ask("tk02", prompt=list(range(100 + i, 140 + i)))
        ask("tk06", prompt=list(range(100 + i, 140 + i)))
        ask("tk06-alias", prompt="a text that is long enough")
    f = told(house, "tk02", "tokens", "mismatch", "counts-differ", "^3 of 3 answers", "ours 40, the engine's 41",
             "special tokens twice")
    assert f["since"], f
    for name in ("tk04_next_turn_with_reasoning.json", "tk04_next_turn_without_reasoning.json"):
        ask("tk04", "/v1/chat/completions", messages=json.loads((CASES / "tk" / name).read_text())["messages"])
    engines["tk04"].publish(0, one)
    told(house, "tk04", "tokens", "exact", "counts-agree", trouble=False)
    told(house, "tk06", "tokens", "exact", "counts-agree", trouble=False)
    for i in range(FEW):
        ask("tk05", "/v1/messages", messages=[{"role": "user", "content": "x"}])
        ask("tk08", prompt="text")
        ask("silent-unsized", prompt=list(range(i, i + 100)))
    for i in range(FEW + 20):           # what it was sent is believed to be there soon, not at once
        ask("hits-missing", prompt=list(range(100)))
        ask("hits-unknown", prompt=list(range(i * 100, i * 100 + 100)))
        ask("hits-sound", prompt=list(range(100)))
    told(house, "hits-missing", "cache", "approximate", "hits-missing", "prefix caching on", r"\d\d tokens expected")
    told(house, "hits-unknown", "cache", "approximate", "hits-unknown", "16 tokens", "another tokenizer")
    assert not troubles(house, "hits-sound"), facts(house, "hits-sound")
    told(house, "tk05", "tokens", "unverified", "no-lookup", "no lookup although traffic", "last 20 ", "/v1/messages")
    told(house, "tk08", "tokens", "unverified", "no-lookup", "tokenize is false")
    f = told(house, "silent", "events", "silent", "silent", "no event came", 'need "publisher":"zmq"', "0.11.0")
    told(house, "kv13-filter", "events", "silent", "silent", 'topics begin with kvTopic, "other-events"')
    told(house, "silent-unsized", "events", "silent", "silent", "no event came", "block size is unknown")
    told(house, "silent", "cache", "none", "no-events", "unknown, not cold", trouble=False)

    # A page that hangs makes its numbers unknown, and nothing else: requests go there as before.
    told(house, "mx06", "metrics", "unknown", "slow", "unknown \\(not 0\\)")
    told(house, "mx06", "state", "up", "ok", trouble=False)
    ask("mx06", prompt=[1, 2, 3])

    # The text has one line a fact, `!` before what is wrong; the page has the same words.
    text = house.ctl("workers", "--why").stdout
    assert re.search(r"^kv11-size rank 0, kv11-size at http://\S+: 1 trouble$", text, re.M), text
    assert re.search(r"^! events +applied \(configured-block-size\) since \d{4}-\S+Z: 3 batches received", text, re.M), text
    assert re.search(r"^  state +up \(ok\) since ", text, re.M), text
    page = h.request(house.admin, "GET", "/metrics")[1]
    for line in (r'pointsman_worker_trouble\{worker="kv11-size",.*about="events",reason="configured-block-size"\} 1',
                 r'pointsman_worker_reason\{worker="kv05",.*about="cache",reason="sequence-hole"\} 1',
                 r'pointsman_worker_since_seconds\{worker="kv05",.*about="cache",reason="sequence-hole"\} [\d.]+',
                 r'pointsman_worker_trouble\{worker="tk02",.*about="tokens",reason="counts-differ"\} 1',
                 r'pointsman_worker_trouble\{worker="mx-404",.*about="metrics",reason="no-page"\} 1'):
        assert re.search(f"^{line}$", page, re.M), line
    assert not re.search(r'pointsman_worker_trouble\{worker="kv01",', page)

    r = house.ctl("workers", "--why", "--worker", "nobody", check=False)
    assert r.returncode == 1 and 'no worker "nobody"' in r.stderr, r

    # ---- events, as they are applied ----
    with subprocess.Popen([h.BIN / "pointsctl", "-r", house.run, "events", "--worker", "kv13", "-n", "3", "--output",
                           "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        assert p.stderr.readline() == "pointsctl: watching kv13\n"
        engines["kv13"].publish(4, batch(stored([9], tokens, parent=77), stored([10], list(range(16)), lora_id=3),
                                         {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"}))
        got = [json.loads(line) for line in p.stdout]
        assert p.wait(20) == 0
    assert [(e["seq"], e["type"], e["outcome"], e["reason"], e["blocks"]) for e in got] == [
        (4, "BlockStored", "kept", "parent", 1), (4, "BlockStored", "applied", None, 1),
        (4, "BlockRemoved", "applied", None, 1)], got
    assert got[0]["parent"] == "%016x" % 77 and got[1]["lora"] == "id 3" and got[1]["tokens"] == 16, got
    # All ranks are looked at.
    with subprocess.Popen([h.BIN / "pointsctl", "-r", house.run, "events", "--worker", "many-ranks", "-n", "1", "--output",
                           "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        assert p.stderr.readline() == "pointsctl: watching many-ranks\n"
        engines["many-ranks"].publish(0, batch(stored([1], tokens), rank=16), rank=16)
        try:
            out, _ = p.communicate(timeout=20)
        finally:
            p.kill()
        assert json.loads(out)["rank"] == 16, out
    # Who follows sees on, when kvevents was killed meanwhile.
    with subprocess.Popen([h.BIN / "pointsctl", "-r", house.run, "events", "--worker", "kv13", "-f"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as p:
        house.kill("kvevents")
        assert engines["kv13"].pubs[0].poll(20000), "no new kvevents subscribed"
        seq, seen = 5, False
        while not seen and seq < 1000:
            engines["kv13"].publish(seq, batch(stored([seq + 1], tokens)))
            seen = bool(select.select([p.stdout], [], [], 0.1)[0])
            seq += 1
        assert re.search(r" rank 0 seq \d+ BlockStored 1 blocks of 16, 16 tokens, GPU", p.stdout.readline())
        p.terminate()
    r = house.ctl("events", "--worker", "nobody", check=False)
    assert r.returncode == 1 and 'no worker "nobody"' in r.stderr, r

    # ---- the hash seed: a prompt's hashes made without asking are those of the index; it outlives its process ----
    seed = house.run / "hash-seed"
    assert os.stat(seed).st_mode & 0o7777 == 0o600
    kept = seed.read_text()
    assert kept.strip() not in house.tail(10 ** 6)
    (house.folder / "ids").write_text(json.dumps(list(range(100, 140))))
    chain = house.ctl("hash", "--tokens", house.folder / "ids", "--model", "tk02", "--block-tokens", 16, "--seed", seed)
    assert chain.stdout == house.ctl("hash", "--tokens", house.folder / "ids", "--model", "tk02", "--block-tokens", 16).stdout
    q = json.loads(house.ctl("index", "--output", "json", "--hash", *chain.stdout.split()).stdout)
    assert len(q["blocks"]) == 2, q
    ours = house.ctl("index", "--output", "json", "--tokens", house.folder / "ids", "--model", "tk02", "--block-tokens", 16)
    assert [b["hash"] for b in json.loads(ours.stdout)["blocks"]] == chain.stdout.split(), ours.stdout
    house.supervisor.send_signal(signal.SIGTERM)
    assert house.supervisor.wait(60) == 0
    assert seed.read_text() == kept
    seed.write_text(kept[:9])
    r = subprocess.run([h.BIN / "pointsman", "-r", house.run, "-c", house.config], capture_output=True, text=True, timeout=60)
    assert r.returncode != 0 and "16 hexadecimal digits" in r.stderr and seed.read_text() == kept[:9], r
    stopped.set()
print("a worker's trouble is told in one line")
