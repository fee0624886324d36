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
        if m := re.fullmatch(r"# TYPE (\S+) (counter|gauge)", line):
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
            assert set(hello["result"]["verbs"]) == {"hello", "help", "stat", "workers", "requests", "explain"}
            assert set(ask(verb="help")["result"]) == set(hello["result"]["verbs"])
            assert "id" in ask(verb="help", of="explain")["result"]["explain"]["argument"]
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
    assert total("requests_total") == total("requests_ok_total") == 2
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
    assert kinds["outcome"] == kinds["decision"] == 11 and kinds["config"] == 2, kinds
    assert {x["request_id"] for x in kept if x["record"] == "outcome"} >= {x["request_id"] for x in lines} | {last}
    assert all(x["worker"] in ("w0", "w1") for x in kept if x["record"] == "outcome")
    assert len(house.ctl("journal", "print", record).stdout.splitlines()) == 12
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
    assert r.returncode == 1 and not found["ok"] and found["errors"][0]["line"] > 1, found
    house.config.write_text(good)
    assert house.ctl("check", house.config).stdout.startswith("configuration ok")
    assert "generation 3 is in force" in house.ctl("reload").stdout or house.generation() >= 3

    # Without admin the same words come from memory.
    before = house.pids("admin")[0]
    os.kill(before, signal.SIGSTOP)
    r = house.ctl("stat", "--output", "json")
    assert "shared memory" in r.stderr and json.loads(r.stdout)["workers_count"] == 2, r
    r = house.ctl("explain", id, "--output", "json", check=False)
    assert json.loads(r.stdout)["outcome"]["worker"] == worker, r
    os.kill(before, signal.SIGKILL)
    h.until("a new admin", lambda: house.pids("admin", "ready") not in ([], [before]))
    h.until("its page", lambda: page(house)["pointsman_ready"] == 1)
    assert total("requests_total") == 11
    assert 'process="admin"' in str([k for k, v in page(house).items() if "restarts_total" in k and v == 1])

    # An ingress that dies takes no count with it.
    killed = house.kill("ingress")
    h.until("a new ingress", lambda: len(house.pids("ingress", "ready")) == 2 and killed not in house.pids("ingress"))
    assert total("requests_total") == 11
    assert len(json.loads(house.ctl("requests", "--output", "json").stdout)["requests"]) == 0

    # Usage.
    for args in (["dance"], ["stat", "--dry-run"], ["explain"], ["stat", "more"], ["--output", "xml", "stat"], []):
        r = subprocess.run([h.BIN / "pointsctl", *args], capture_output=True, text=True)
        assert r.returncode == 2 and "pointsctl" in r.stderr, (args, r)
    assert subprocess.run([h.BIN / "pointsctl", "help"], capture_output=True, text=True).stdout.startswith("usage: ")
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
