"""A worker whose tokens are not ours is found out by probes, by its answers' counts where /tokenize is off, marked where
it is alone, and believed again after it restarts with the right model; `pointsctl verify` says the same by hand.

The other model is the demo model with another chat template.  Modes: probed, counted, alone, adapters, hand.
"""
import contextlib, http.client, http.server, json, pathlib, shutil, subprocess, sys, tempfile, threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

DEMO = h.ROOT / "etc/models/demo"
OTHER = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"


def other_model(folder):
    """The same vocabulary, another chat template."""
    to = pathlib.Path(folder) / "other"
    to.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(DEMO / name, to / name)
    (to / "chat_template.jinja").write_text(OTHER)
    return to


def workers(house):
    return json.loads(house.ctl("workers", "--why", "--output", "json").stdout)


def tokens(house, i=0):
    return workers(house)["workers"][i]["tokens"] or {}


def model(house):
    return next(iter(workers(house)["models"]), {}).get("tokens")


def reach(house, i, state, reason):
    h.until(f"worker {i} to be {state} by {reason}",
            lambda: (tokens(house, i).get("state"), tokens(house, i).get("reason")) == (state, reason), 60)
    return tokens(house, i)


def run_with(worker, folder):
    """The engine begins anew, with that model."""
    worker.stop()
    worker.options = [*worker.options[:worker.options.index("--model-dir")], "--model-dir", str(folder),
                      *worker.options[worker.options.index("--model-dir") + 2:]]
    worker.start()


def tokenized(worker):
    return worker.state()["requests"]["tokenized"]


def page(house):
    return h.request(house.admin, "GET", "/metrics")[1]


def probed():
    """By probes, with other workers and alone."""
    with h.House(workerset=f"  tokenizer: {{path: {DEMO}}}") as house:
        other = other_model(house.folder)
        house.add("--time-scale", 100, "--model-dir", DEMO)
        house.start()
        t = reach(house, 0, "exact", "probes-agree")
        assert t["agreed"] == t["probes"] >= 50 and t["differed"] == 0, t
        assert t["engine_version"], t
        asked = tokenized(house.workers[0])
        assert asked >= 50, asked

        # A reload asks nobody again, and what was proven stays.
        house.ctl("reload")
        assert (tokens(house)["state"], model(house)) == ("exact", "exact")
        for i in range(3):
            assert house.chat(f"Is track {i} free?")[0] == 200
        h.until("counts of three answers", lambda: tokens(house)["usage_same"] == 3)
        for given in ("Is the track free?", ["Is the track free?", "And this one?"]):
            status, answer = h.request(house.port, "POST", "/v1/embeddings", {"model": house.model, "input": given})[:2]
            assert status == 200 and answer["usage"]["prompt_tokens"] > 3, answer
        h.until("counts of what was embedded, all prompts of a request together", lambda: tokens(house)["usage_same"] == 5)
        assert tokens(house)["usage_differ"] == 0
        assert tokenized(house.workers[0]) == asked, "made here: the worker is not asked"

        # Another model behind the same name.
        run_with(house.workers[0], other)
        t = reach(house, 0, "mismatch", "probes-differ")
        d = t["difference"]
        assert d["probe"] and d["ours"] != d["theirs"], t
        assert model(house) == "mismatch"
        why = workers(house)["workers"][0]["why"]
        assert any(f["about"] == "tokens" and f["trouble"] and "differs at token" in f["text"] for f in why), why
        assert 'state="mismatch"} 1' in next(
            line for line in page(house).splitlines()
            if line.startswith("pointsman_model_tokens_state") and "mismatch" in line)
        asked = h.until("the whole run", lambda: tokens(house)["probes"] >= 50 and tokenized(house.workers[0]))
        assert house.chat("And track 9?")[0] == 200
        assert tokenized(house.workers[0]) == asked + 1, "its prompts go by /tokenize"

        # And the right one again.
        run_with(house.workers[0], DEMO)
        reach(house, 0, "exact", "probes-agree")
        h.until("the model to be exact", lambda: model(house) == "exact")


def counted():
    """By its answers alone: /tokenize is off."""
    with h.House(workerset=f"  tokenizer: {{path: {DEMO}}}") as house:
        other = other_model(house.folder)
        house.add("--time-scale", 100, "--tokenize", 0, "--model-dir", DEMO)
        house.start()
        reach(house, 0, "unverified", "no-route")
        assert house.chat("Which track is free?")[0] == 200
        h.until("its count", lambda: tokens(house)["usage_same"] == 1)
        assert tokens(house)["state"] == "unverified", "equal counts prove nothing"
        run_with(house.workers[0], other)
        h.until("its new life", lambda: tokens(house).get("usage_same") == 0, 60)
        assert house.chat("Which track is free?")[0] == 200
        t = reach(house, 0, "mismatch", "usage-differs")
        assert t["usage_differ"] == 1 and model(house) == "mismatch", t
        assert house.chat("Which track is free?")[0] == 200, "and requests are served on"


def alone():
    """One of three workers has another model."""
    with h.House(workerset=f"  tokenizer: {{path: {DEMO}}}") as house:
        other = other_model(house.folder)
        house.add("--time-scale", 100, "--model-dir", DEMO)
        house.add("--time-scale", 100, "--model-dir", other)
        house.add("--time-scale", 100, "--model-dir", DEMO)
        house.start()
        reach(house, 0, "exact", "probes-agree")
        reach(house, 1, "mismatch", "probes-differ")
        reach(house, 2, "exact", "probes-agree")
        assert model(house) == "exact"
        reasons = {f["reason"] for f in workers(house)["workers"][1]["why"] if f["about"] == "tokens"}
        assert {"probes-differ", "alone"} <= reasons, reasons
        # Its successor finds what was proven: nobody is asked again.
        asked = [tokenized(w) for w in (house.workers[0], house.workers[2])]
        house.kill("metrics")
        h.until("the successor", lambda: house.pids("metrics"))
        reach(house, 1, "mismatch", "probes-differ")
        assert [tokens(house, i)["state"] for i in (0, 2)] == ["exact", "exact"]
        assert [tokenized(w) for w in (house.workers[0], house.workers[2])] == asked


def adapters():
    """Requests for an adapter go to the set that has it, and its cache is its own."""
    with h.House(workerset="  loraAdapters: [adapter-a, adapter-b]") as house:
        house.add("--time-scale", 100, "--tokenizer", "ids", "--block-size", 16, "--num-gpu-blocks", 4096,
                  "--lora", "adapter-a,adapter-b")
        house.start()
        listed = {m["id"]: m for m in h.request(house.port, "GET", "/v1/models")[1]["data"]}
        assert listed["adapter-a"]["parent"] == house.model and "parent" not in listed[house.model], listed
        prompt = list(range(1000, 1000 + 40 * 16))

        def ask(name):
            status, answer, headers = h.request(house.port, "POST", "/v1/completions",
                                                {"model": name, "prompt": prompt, "max_tokens": 2})[:3]
            assert status == 200 and answer["model"] == name, (status, answer)
            return answer["usage"]["prompt_tokens_details"]["cached_tokens"], headers

        for name in (house.model, "adapter-a", "adapter-b"):
            cached, headers = ask(name)
            assert cached == 0, f"{name}: what another name computed is not its own"
        for name in (house.model, "adapter-a", "adapter-b"):
            cached, headers = ask(name)
            assert cached > 500, (name, cached)
            h.until(f"{name} to be found in the index", lambda: compared(house, ask(name)[1]))


def compared(house, headers):
    o = json.loads(house.ctl("explain", headers["x-pointsman-request-id"], "--output", "json").stdout)
    c = (o.get("outcome") or {})
    return c.get("our_cached_tokens") and c["our_cached_tokens"] == c["cached_tokens"]


@contextlib.contextmanager
def behind_key(worker_port, key):
    """The worker behind one that answers 401 to whoever does not have the key; its port."""
    class Door(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, answer = 401, b"{}"
            if self.headers.get("Authorization") == f"Bearer {key}":
                conn = http.client.HTTPConnection("127.0.0.1", worker_port, timeout=20)
                conn.request(self.command, self.path, body, {"Content-Type": "application/json"})
                status, answer = (r := conn.getresponse()).status, r.read()
                conn.close()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = pass_on

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door) as door:
        threading.Thread(target=door.serve_forever).start()
        try:
            yield door.server_address[1]
        finally:
            door.shutdown()


def keyed(file, port):
    """A worker that wants a key: the file's, without its line's end."""
    def verify(*more):
        return subprocess.run([h.BIN / "pointsctl", "verify", "--model", DEMO, "--url", f"http://127.0.0.1:{port}", *more],
                              capture_output=True, text=True)
    r = verify()
    assert r.returncode == 1 and "status 401" in r.stderr, r.stderr
    file.write_text("another\n")
    r = verify("--api-key-from", file)
    assert r.returncode == 1 and "status 401" in r.stderr and "another" not in r.stdout + r.stderr, r.stderr
    file.write_text("k3y \r\n")
    r = verify("--api-key-from", file)
    assert r.returncode == 0 and " 0 differ" in r.stdout, r.stdout + r.stderr
    file.unlink()
    r = verify("--api-key-from", file)
    assert r.returncode == 1 and r.stderr == f"pointsctl: {file}: No such file or directory\n", r.stderr


def hand():
    """pointsctl verify: exit 0 only where all agree."""
    with tempfile.TemporaryDirectory(prefix="pointsman-") as folder:
        folder = pathlib.Path(folder)
        worker = h.Worker(folder, "w", "--time-scale", 100, "--model-dir", DEMO, model="demo")
        try:
            def verify(*more, model=DEMO):
                return subprocess.run([h.BIN / "pointsctl", "verify", "--model", model, "--url",
                                       f"http://127.0.0.1:{worker.port}", *more], capture_output=True, text=True)
            r = verify()
            assert r.returncode == 0, r.stdout + r.stderr
            assert r.stdout.count("\nagree") >= 49 and " 0 differ" in r.stdout, r.stdout
            assert verify("--served-model", "demo").returncode == 0
            r = verify(model=other_model(folder))
            assert r.returncode == 1 and "DIFFER" in r.stdout and "at token 0: ours" in r.stdout, r.stdout
            r = verify("--output", "json", model=folder / "other")
            assert r.returncode == 1
            o = json.loads(r.stdout)
            assert o["differ"] > 5 and o["agree"] > 20 and len(o["results"]) == o["probes"], r.stdout
            r = verify("--served-model", "nobody")
            assert r.returncode == 1 and "status 404" in r.stderr, r.stderr
            r = verify(model=folder)
            assert r.returncode == 1 and r.stderr, r.stderr
            with behind_key(worker.port, "k3y") as port:
                keyed(folder / "key", port)
        finally:
            worker.stop()
        r = verify()
        assert r.returncode == 1 and r.stderr.startswith("pointsctl: http://"), r.stderr
        r = subprocess.run([h.BIN / "pointsctl", "verify", "--model", DEMO], capture_output=True, text=True)
        assert r.returncode == 2 and "--url" in r.stderr, r.stderr       # usage, as pointsctl help says


for mode in sys.argv[1:] or ["probed", "counted", "alone", "adapters", "hand"]:
    globals()[mode]()
    print(mode, "ok", flush=True)
