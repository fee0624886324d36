"""What the house says of itself is true: admin's page and verbs, pointsctl's commands, and both while admin is
dead.  Every answer is compared with what the client or the worker saw.
"""
import collections, json, os, pathlib, re, signal, socket, subprocess, sys, threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h
import msgpack, zmq


def say(kind, path, payload, frames=None):
    """One exchange with admin.sock over a REQ or DEALER socket."""
    with zmq.Context() as context, context.socket(kind) as s:
        s.linger = 0
        s.connect(f"ipc://{path}")
        s.send_multipart(frames or [payload])
        assert s.poll(5000), f"no answer to {payload!r:.80}"
        return s.recv_multipart()[-1]


def page(house):
    """The Prometheus page, checked: every series once, after its TYPE, with a number."""
    status, text, head = h.request(house.admin, "GET", "/metrics")
    assert status == 200 and head["Content-Type"].startswith("text/plain; version=0.0.4"), head
    types, values = {}, {}
    for line in text.splitlines():
        if m := re.fullmatch(r"# TYPE (\S+) (counter|gauge|untyped)", line):
            assert m[1] not in types, line
            types[m[1]] = m[2]
        elif not line.startswith("# HELP "):
            m = re.fullmatch(r"([a-z_:0-9]+)(\{(?:[a-z_]+=\"(?:[^\"\\]|\\.)*\",?)*\})? (\S+)", line)
            assert m, line
            assert m[1] in types and m[1] + (m[2] or "") not in values, line
            assert (types[m[1]] == "counter") == m[1].endswith("_total"), line
            values[m[1] + (m[2] or "")] = float(m[3])
    return values


def stream(house, text):
    """A streamed chat; its request id."""
    import http.client
    c = http.client.HTTPConnection("127.0.0.1", house.port, timeout=60)
    c.request("POST", "/v1/chat/completions", json.dumps({
        "model": "small", "messages": [{"role": "user", "content": text}], "max_tokens": 6, "stream": True,
        "stream_options": {"include_usage": True}}), {"Content-Type": "application/json"})
    r = c.getresponse()
    assert r.status == 200 and b"[DONE]" in r.read()
    return r.getheader("x-pointsman-request-id"), r.getheader("x-pointsman-worker")


def segments(house):
    """stat --segments: the sums, and the segments as {(kind, role): [..]}."""
    said = json.loads(house.ctl("stat", "--segments", "--output", "json").stdout)
    by = collections.defaultdict(list)
    for s in said["segments"]:
        by[s["kind"], s["role"]].append(s)
    return said["sum"], by


HELD = ("slots_used", "arena_used_bytes", "charged_cells", "stale_cells", "torn_cells", "pending_tokens",
        "context_tokens", "prefilling", "decoding")


def held(house):
    return {k: v for k, v in segments(house)[0].items() if k in HELD and v}


def ended(house, id):
    return h.until(f"{id} to end", lambda: (e := json.loads(house.ctl(
        "explain", id, "--output", "json", check=False).stdout or "{}")).get("outcome") and e)


with h.House(ingresses=2) as house:
    house.add("--time-scale", 20, "--block-size", 16, "--num-gpu-blocks", 20000, count=2)
    house.start()
    sock = house.run / "admin.sock"
    assert h.request(house.admin, "GET", "/healthz")[0] == 200
    assert h.request(house.admin, "POST", "/metrics", {})[0] == 405
    assert h.request(house.admin, "GET", "/v1/models")[0] == 404
    status, ready, _ = h.request(house.admin, "GET", "/readyz")
    assert (status, ready["ready"], ready["generation"], ready["why_not"]) == (200, True, 1, []), ready

    # Every shared byte: who holds what while a request streams, and nothing is held when its client has left.
    h.until("nothing to be held", lambda: not held(house))
    sums, by = segments(house)
    kinds = {k: len(v) for k, v in by.items()}
    assert kinds == {("rows", "supervisor"): 1, ("roster", "supervisor"): 1, ("config", "supervisor"): 1,
                     ("index", "kvevents"): 1, ("pins", "ingress"): 1, ("limits", "ingress"): 1, ("column", "ingress"): 2, ("slots", "ingress"): 2,
                     ("arena", "ingress"): 2, ("process", "supervisor"): 1, ("process", "policy"): 2,
                     ("process", "ingress"): 2, ("process", "kvevents"): 1, ("process", "metrics"): 1,
                     ("process", "admin"): 1}, kinds
    every = [s for several in by.values() for s in several]
    assert sums["segments"] == len(every) and sums["size_bytes"] == sum(s["size_bytes"] for s in every), sums
    assert all(0 < s["touched_bytes"] <= s["size_bytes"] for s in every), every
    assert all(s["writer_alive"] and s["heartbeat_age_s"] < 10 for s in every if s["kind"] not in ("rows", "config", "pins", "limits"))
    assert {s["writer_pid"] for s in by["slots", "ingress"]} == set(house.pids("ingress")), by["slots", "ingress"]
    lines = house.ctl("stat", "--segments").stdout.splitlines()
    assert len(lines) == len(every) + 5
    assert next(l for l in lines if l.startswith("pins ")).endswith(" responses"), lines
    client = socket.create_connection(("127.0.0.1", house.port))
    body = json.dumps({"model": "small", "prompt": [*range(100, 900)], "max_tokens": 8000, "stream": True}).encode()
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                   b"content-length: %d\r\n\r\n" % len(body) + body)
    said = client.recv(100)
    assert b" 200 " in said, said
    holds = h.until("it to decode", lambda: (now := held(house)).get("decoding") and now)
    arena = holds.pop("arena_used_bytes", 0)
    assert holds == {"slots_used": 1, "charged_cells": 1, "context_tokens": 800, "decoding": 1}, holds
    assert arena >= len(body), arena
    client.close()
    h.until("nothing to be held", lambda: not held(house))

    # One request, from all sides.
    long = "The quick brown fox jumps over the lazy dog. " * 60
    id, worker = stream(house, long)
    e = ended(house, id)
    assert e["state"] == "done" and len(e["decisions"]) == 1, e
    d, o = e["decisions"][0], e["outcome"]
    assert d["chosen_worker"] == o["worker"] == worker and d["model"] == "small" and o["status"] == 200, e
    assert {c["worker"] for c in d["candidates"]} == {"w0", "w1"}
    assert o["prompt_tokens"] == o["our_prompt_tokens"] == d["prompt_tokens"] > 500, o
    assert o["completion_tokens"] == 6 and o["ttft_us"] and o["e2e_us"] > o["ttft_us"], o
    assert e["compare"]["ttft_error_us"] == o["predicted_ttft_us"] - o["ttft_us"], e["compare"]
    seen = [r for r in next(w for w in house.workers if w.name == worker).requests() if r["ev"] == "end"]
    assert len(seen) == 1 and seen[0]["prompt_tokens"] == o["prompt_tokens"], seen
    text = house.ctl("explain", id).stdout
    assert id in text and worker in text and "TTFT" in text, text
    # The same prompt again goes to the blocks, and explain proves it.
    last = next(w for w in house.workers if w.name == worker).state()["next_seq"] - 1
    h.until("the events to be applied", lambda: [w["cache"]["sequence_applied"] for w in json.loads(house.ctl(
        "workers", "--output", "json").stdout)["workers"] if w["worker"] == worker] == [last])
    again, there = stream(house, long)
    e = ended(house, again)
    assert there == worker and e["compare"]["cached_tokens"] == e["compare"]["our_cached_tokens"] > 400, e["compare"]

    # The index: what the engine says it has is held by its worker, and by nobody else.
    def index():
        return json.loads(house.ctl("index", "--output", "json").stdout)
    h.until("what is told to be what the engines have", lambda: {w["worker"]: w["exact_gpu"] for w in
            index()["workers"]} == {w.name: w.state()["cached_hashes"] for w in house.workers})
    x = index()
    told = {w["worker"]: w for w in x["workers"]}
    assert x["entries"] == x["holders"] == sum(w["exact_gpu"] for w in told.values()) > 0, x
    assert told[worker]["cache"] == "exact" and x["scrub_backlog"] == 0, x
    assert sum(x["refused"].values()) == 0 and x["slots"]["live"] == sum(g["slots"] for g in x["groups"]), x
    listed = json.loads(house.ctl("index", "--slots", "--output", "json").stdout)["slots"]
    assert len(listed) == x["slots"]["live"] and len({s["slot"] for s in listed}) == len(listed), listed
    assert {s["worker"]: s["held"] for s in listed if s["role"] == "exact" and s["held"]} == {
        n: w["exact_gpu"] for n, w in told.items() if w["exact_gpu"]}, listed
    mine = house.ctl("index", "--slots", "--worker", worker).stdout.splitlines()
    assert len(mine) > 1 and all(f" {worker} " in line for line in mine[1:]), mine
    # Who holds this prompt, by the tokens the worker itself makes of it.
    answer = next(w for w in house.workers if w.name == worker).get("/tokenize", {
        "model": house.model, "messages": [{"role": "user", "content": long}]})[1]
    prompt = house.folder / "tokens.json"
    prompt.write_text(json.dumps(answer))
    who = ["index", "--model", "small", "--tokens", prompt]
    p = json.loads(house.ctl(*who, "--output", "json").stdout)
    assert p["block_tokens"] == 16 and p["model"] == house.model and len(p["blocks"]) == o["prompt_tokens"] // 16, p
    assert [(d["worker"], d["exact"], d["gpu"], d["any"]) for d in p["depth"]] == [(worker, *[len(p["blocks"])] * 3)], p
    more = [2**32 - 1] * 12000                  # several questions: the same blocks lead
    prompt.write_text(json.dumps(answer["tokens"] + more))
    whole = json.loads(house.ctl(*who, "--output", "json").stdout)
    assert len(whole["blocks"]) > 512 and whole["blocks"][:len(p["blocks"])] == p["blocks"], len(whole["blocks"])
    assert whole["depth"] == p["depth"], whole["depth"]
    r = house.ctl(*who, "--block-tokens", 32, "--output", "json")
    wide = json.loads(r.stdout)
    assert r.stderr == "", r.stderr             # admin answered every part
    assert len(wide["blocks"]) == wide["tokens_given"] // 32 and wide["depth"] == [], wide["depth"]
    assert f"{worker} " in house.ctl(*who).stdout
    prompt.write_text("[1, 2, 3]")
    assert "it has none" in house.ctl(*who).stdout
    chain = [b["hash"] for b in p["blocks"]]
    for hashes in (chain[:1], chain[2:9], chain):
        q = json.loads(house.ctl("index", "--output", "json", "--hash", *hashes).stdout)
        assert [b["hash"] for b in q["blocks"]] == hashes and all(b["holders"] == 1 for b in q["blocks"]), q
        assert {s["worker"] for s in q["slots"]} == {worker} and q["depth"][0]["exact"] == len(hashes), q
        assert house.ctl("index", "--hash", *hashes).stdout.count(f"  {worker} ") >= len(hashes)
    nobody = json.loads(house.ctl("index", "--output", "json", "--hash", "00000000000000aa").stdout)
    assert nobody == {"blocks": [{"hash": "00000000000000aa", "holders": 0, "slots": []}], "slots": [], "depth": []}
    a = json.loads(house.ctl("index", "--audit", "--output", "json").stdout)
    assert a["exact"] and a["entries"] == a["entries_by_writer"] == x["entries"] and a["holders"] == x["holders"], a
    assert not (a["duplicates"] or a["unreachable"] or a["garbage"] or a["saturated"] or a["overcounted"]), a
    prompt.write_text("[1, 2, -3]")
    for bad, code, text in ((["--hash", "xyz"], 1, "no block hash"), (["--hash"], 2, "takes"), (["more"], 2, "takes"),
                            (["--slots", "--audit"], 2, "takes"), (["--slots", "--worker", "w9"], 1, "no worker"),
                            (["--tokens", prompt, "--model", "small"], 1, "tokens.json: number 3"),
                            (["--tokens", house.folder / "none", "--model", "small"], 1, "none: No such file"),
                            (["--tokens", prompt], 2, "takes"), (["--block-tokens", "0"], 2, "block-tokens")):
        r = house.ctl("index", *bad, check=False)
        assert r.returncode == code and text in r.stderr, (bad, r)

    # Ids nobody knows.
    for unknown in ("0000000000000001", f"{int(id, 16) + 1000:016x}"):
        r = house.ctl("explain", unknown, check=False)
        assert r.returncode == 1 and "unknown" in r.stdout, r
    assert house.ctl("explain", "nonsense", check=False).returncode == 1

    # Verbs, in both forms and over both kinds of socket.
    for kind in (zmq.REQ, zmq.DEALER):
        for pack, unpack in ((lambda x: json.dumps(x).encode(), json.loads), (msgpack.packb, msgpack.unpackb)):
            ask = lambda **q: unpack(say(kind, sock, pack({"v": 1, **q})))
            hello = ask(verb="hello", tag=7)
            assert hello["ok"] and hello["tag"] == 7, hello
            assert set(hello["result"]["verbs"]) == {"hello", "help", "stat", "segments", "workers", "events", "tenants", "requests",
                                                    "explain", "index", "index_slots", "index_holders", "index_prompt"}
            assert set(ask(verb="help")["result"]) == set(hello["result"]["verbs"])
            assert ask(verb="help", of="explain")["result"]["explain"]["arguments"]["id"]["required"]
            assert ask(verb="stat")["result"]["generation"] == 1
            assert [w["worker"] for w in ask(verb="workers")["result"]["workers"]] == ["w0", "w1"]
            assert ask(verb="requests", limit=5)["result"]["live"] == 0
            assert ask(verb="explain", id=id)["result"]["outcome"]["worker"] == worker
            for bad, code in (({"verb": "dance"}, "unknown_verb"), ({"verb": "explain"}, "bad_request"),
                              ({"verb": "explain", "id": "xyz"}, "bad_request"), ({}, "bad_request"),
                              ({"verb": "requests", "limit": 0}, "bad_request"),
                              ({"verb": "stat", "colour": 1}, "bad_request"),
                              ({"verb": "stat", "v": 2}, "unsupported_version")):
                answer = ask(**bad) if "v" not in bad else unpack(say(kind, sock, pack(bad)))
                assert not answer["ok"] and answer["error"]["code"] == code, (bad, answer)
    # Strangers' bytes get an answer or none, and the next one is served.
    for junk in (b"", b"\xdd\xff\xff\xff\xff", b"\xde\xff\xff", b"\x81\xa1v", b"{" * 5000, b"\xff" * 300,
                 b"[1]", b'{"v":1,"v":1}', b"\x81\xa1\xff\x01", b"\x91" * 60, os.urandom(2000)):
        answer = say(zmq.DEALER, sock, None, [junk])
        assert not (json.loads(answer) if answer[:1] == b"{" else msgpack.unpackb(answer))["ok"], junk
    assert not json.loads(say(zmq.DEALER, sock, None, [b"", b'{"v":1,"verb":"stat"}', b"more"]))["ok"]
    assert json.loads(say(zmq.REQ, sock, b'{"v":1,"verb":"hello"}'))["ok"]

    # A tool that attaches again and again is dropped, and has cost no descriptors.
    mine = f"/proc/{house.supervisor.pid}/fd"
    before = len(os.listdir(mine))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as tool:
        tool.connect(str(house.run / "control.sock"))
        try:
            for _ in range(100):
                tool.send(msgpack.packb([72]))
            h.until("the end of it", lambda: not tool.recv(65536))
        except (ConnectionResetError, BrokenPipeError):
            pass
        h.until("no descriptors kept", lambda: len(os.listdir(mine)) <= before)

    # The page agrees with the client's count, before and after a death.
    def total(name, values=None):
        return sum(v for k, v in (values or page(house)).items() if k.startswith(f"pointsman_{name}{{"))
    assert total("requests_total") == 3 and total("requests_ok_total") == 2 and total("requests_cancelled_total") == 1
    values = page(house)
    assert values["pointsman_up"] == values["pointsman_ready"] == values["pointsman_generation"] == 1
    assert total("worker_events_applied_total", values) > 0
    assert sum(v for k, v in values.items() if k.startswith("pointsman_worker_state{") and 'state="up"' in k) == 2

    # The live feed has every request once; the record of the same time too.
    feed = subprocess.Popen([h.BIN / "pointsctl", "-r", house.run, "log", "-f", "-n", "1", "--output", "json"],
                            stdout=subprocess.PIPE, text=True)
    assert json.loads(feed.stdout.readline())["request_id"] == again
    record = house.folder / "journal"
    recorder = subprocess.Popen([h.BIN / "pointsctl", "-r", house.run, "journal", "record", record],
                                stderr=subprocess.PIPE, text=True)
    h.until("the record to begin", lambda: record.exists() and record.stat().st_size > 64)
    threads = [threading.Thread(target=stream, args=(house, f"{n} {long}")) for n in range(8)]
    for t in threads:
        t.start()
    lines = [json.loads(feed.stdout.readline()) for _ in threads]
    for t in threads:
        t.join()
    assert len({x["request_id"] for x in lines}) == 8 and all(x["status"] == 200 and
           x["decision"]["chosen_worker"] == x["worker"] for x in lines), lines
    house.hup()

    def swapped():
        status, body, _ = h.request(house.admin, "GET", "/readyz")
        assert status == 200, body              # all through the switch
        return body["generation"] == 2

    h.until("the next generation", swapped)
    last, _ = stream(house, long)
    assert json.loads(feed.stdout.readline())["generation"] == 2
    recorder.send_signal(signal.SIGINT)
    said = recorder.communicate(timeout=20)[1]
    assert recorder.returncode == 0 and "outcomes" in said, said
    kept = [json.loads(x) for x in house.ctl("journal", "print", record, "--output", "json").stdout.splitlines()]
    kinds = collections.Counter(x["record"] for x in kept)
    assert kinds["outcome"] == kinds["decision"] == 12 and kinds["config"] == 2, kinds
    assert {x["request_id"] for x in kept if x["record"] == "outcome"} >= {x["request_id"] for x in lines} | {last}
    assert all(x["worker"] in ("w0", "w1") for x in kept if x["record"] == "outcome")
    assert len(house.ctl("journal", "print", record).stdout.splitlines()) == 13
    os.truncate(record, record.stat().st_size - 9)
    assert house.ctl("journal", "print", record, check=False).returncode == 1
    # A decision made by a process that is gone is still told.
    assert ended(house, id)["decisions"][0]["generation"] == 1

    # Reload: the answer is the truth.
    assert "nothing changed" in house.ctl("reload", "--dry-run").stdout
    good = house.config.read_text()
    house.config.write_text(good.replace("minimize: ", "minimise: "))
    r = house.ctl("reload", check=False)
    assert r.returncode == 1 and re.search(r"pointsman\.yaml:\d+:\d+: ", r.stderr), r.stderr
    r = house.ctl("check", house.config, "--output", "json", check=False)
    found = json.loads(r.stdout)
    assert r.returncode == 1 and not found["ok"] and found["complaints"][0]["line"] > 1, found
    house.config.write_text(good)
    assert house.ctl("check", house.config).stdout.startswith("configuration ok")
    assert "generation 3 is in force" in house.ctl("reload").stdout or house.generation() >= 3

    # Without admin the same words come from memory.
    before = house.pids("admin")[0]
    os.kill(before, signal.SIGSTOP)
    r = house.ctl("stat", "--output", "json")
    assert "shared memory" in r.stderr and json.loads(r.stdout)["workers_count"] == 2, r
    sock.rename(house.run / "away")             # not there is not waited for
    r = house.ctl("index", "--output", "json")
    assert "shared memory" in r.stderr and json.loads(r.stdout)["entries"] >= x["entries"], r
    r = house.ctl("index", "--hash", "--output", "json", chain[0])
    assert "shared memory" in r.stderr and json.loads(r.stdout)["slots"][0]["worker"] == worker, r
    r = house.ctl("explain", id, "--output", "json", check=False)
    assert json.loads(r.stdout)["outcome"]["worker"] == worker, r
    (house.run / "away").rename(sock)
    os.kill(before, signal.SIGKILL)
    h.until("a new admin", lambda: house.pids("admin", "ready") not in ([], [before]))
    h.until("its page", lambda: page(house)["pointsman_ready"] == 1)
    assert total("requests_total") == 12
    assert 'process="admin"' in str([k for k, v in page(house).items() if "restarts_total" in k and v == 1])

    # A writer of the index that dies: what was sure is demoted, and its successor says why; nothing is damaged.
    x = index()
    sure = {w["worker"]: w["exact_gpu"] for w in x["workers"]}
    assert sure[worker] > 0, sure
    killed = house.kill("kvevents")
    h.until("a new kvevents", lambda: house.pids("kvevents", "ready") not in ([], [killed]))
    h.until("its scan", lambda: index()["recoveries"] == x["recoveries"] + 1)
    y = index()
    assert {w["worker"]: w["demoted"] for w in y["workers"]} == sure and y["writer_pid"] != killed, y
    assert all((w["cache"], w["reason"], w["exact_gpu"]) == ("gap", "writer-restart", 0) for w in y["workers"]), y
    q = json.loads(house.ctl("index", "--output", "json", "--hash", chain[0]).stdout)
    assert [s["role"] for s in q["slots"]] == ["demoted"], q
    assert [(d["worker"], d["exact"], d["any"]) for d in q["depth"]] == [(worker, 0, 1)], q
    a = json.loads(house.ctl("index", "--audit", "--output", "json").stdout)
    assert a["exact"] and a["entries"] == y["entries"] and not (a["duplicates"] or a["unreachable"] or a["garbage"]), a

    # An ingress that dies takes no count with it.
    killed = house.kill("ingress")
    h.until("a new ingress", lambda: len(house.pids("ingress", "ready")) == 2 and killed not in house.pids("ingress"))
    assert total("requests_total") == 12
    assert len(json.loads(house.ctl("requests", "--output", "json").stdout)["requests"]) == 0

    # Usage.
    for args in (["dance"], ["stat", "--dry-run"], ["explain"], ["stat", "more"], ["--output", "xml", "stat"], []):
        r = subprocess.run([h.BIN / "pointsctl", *args], capture_output=True, text=True)
        assert r.returncode == 2 and "pointsctl" in r.stderr, (args, r)
    assert subprocess.run([h.BIN / "pointsctl", "help"], capture_output=True, text=True).stdout.startswith("usage: ")
    # Asked for the help of one command, it says that alone.
    one = subprocess.run([h.BIN / "pointsctl", "render", "--help"], capture_output=True, text=True).stdout.splitlines()
    assert one[0].startswith("usage: pointsctl") and len(one) > 1, one
    assert all(line.startswith("  render ") for line in one[1:]), one
    r = subprocess.run([h.BIN / "pointsctl", "-r", house.folder / "nowhere", "stat"], capture_output=True, text=True)
    assert r.returncode == 1 and "no pointsman runs" in r.stderr, r

    house.supervisor.send_signal(signal.SIGTERM)
    house.supervisor.wait(60)
    assert feed.wait(20) == 0

# Engines' payloads, as published.
data = h.ROOT / "tests/data"
want = collections.defaultdict(list)
for line in (data / "kv-events/expected.txt").read_text().splitlines():
    name, _, event = line.partition("\t")
    if event:
        want[name].append(json.loads(event))
assert len(want) > 15
for name, events in want.items():
    r = subprocess.run([h.BIN / "pointsctl", "decode", "kv-events", data / f"kv-events/{name}.bin"],
                       capture_output=True, text=True)
    assert [json.loads(x) for x in r.stdout.splitlines()] == events, (name, r)
r = subprocess.run([h.BIN / "pointsctl", "decode", "kv-events", data / "cases/kv/kv01_mixed_batch.hex"],
                   capture_output=True, text=True)
assert r.returncode == 0 and len(r.stdout.splitlines()) == 6, r
r = subprocess.run([h.BIN / "pointsctl", "decode", "kv-events", data / "kv-events/bad_truncated.bin"],
                   capture_output=True, text=True)
assert r.returncode == 1 and "bad_truncated" in r.stderr and r.stdout == "", r
print("introspection tells the truth")
