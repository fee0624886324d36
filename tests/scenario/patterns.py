"""The published policies of etc/policies do what their first comment says: each file as it is, with the addresses of this
machine in the place of its own, over emulated workers and a process that stands for the provider.
patterns.py NAME
"""
import json, pathlib, re, signal, sys, threading

import house as h

FILES = h.ROOT / "etc/policies"


class Published(h.House):
    """The file's workers in its order, each with these options or its own ({name: options}); its provider, if it has one."""

    def __init__(self, file, *options, own={}):
        super().__init__()
        text = (FILES / file).read_text()
        self.by_name = {}
        for block in re.split(r"^---$", text, flags=re.M):
            if "kind: InferenceWorkerSet" not in block:
                continue
            self.model = re.search(r"^  model: (\S+)", block, re.M)[1]
            for name in re.findall(r"\{name: (\w+), url:", block):
                w = self.add("--profile", "zero", *options, *own.get(name, ()), name=name)
                self.by_name[name] = w
                text = re.sub(rf"\{{name: {name}, url: .*?\}}", lambda m: w.member(), text)
        text = text.replace('listen: ["127.0.0.1:8080"]',
                            f'listen: ["127.0.0.1:{self.port}"]\n  admin: {{listen: "127.0.0.1:{self.admin}"}}')
        self.write(text)
        self.start()
        self.cloud = None
        if "kind: InferenceProvider" in text:
            self.cloud = h.Provider(self.folder, "cloud", path=self.run / "provider.sock", profile="zero",
                                    model=re.search(r"upstream: (\S+)", text)[1])
            self.workers.append(self.cloud)
        self.held = []
        h.until("all to be up", lambda: all(r["state"] == "up" for r in self.rows()))

    def __exit__(self, *error):
        self.let_go()
        return super().__exit__(*error)

    def rows(self):
        return json.loads(self.ctl("workers", "--output", "json").stdout)["workers"]

    def there(self, row):
        """Our requests there: without a first byte, and with one."""
        return next((r["prefilling"], r["decoding"]) for r in self.rows() if r["worker"] == row)

    def begin(self, model, text="hold", **more):
        """A request that goes on until let_go(); its answer is not read.  Returns the client's connection."""
        c = h.http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        c.request("POST", "/v1/chat/completions", json.dumps({
            "model": model, "stream": True, "max_tokens": 20000, "ignore_eos": True,
            "messages": [{"role": "user", "content": text}], **more}), {"Content-Type": "application/json"})
        self.held.append(c)
        return c

    def let_go(self):
        for c in self.held:
            c.close()
        self.held = []

    def quiet(self):
        self.let_go()
        h.until("nothing to be in flight", lambda: not any(r["prefilling"] + r["decoding"] for r in self.rows()))

    def busy(self, model="assistant"):
        """As many requests as it takes until one is sent to the provider; how many stayed here."""
        for n in range(1, 40):
            self.begin(model, f"hold {n}")
            rows = h.until("it to be sent", lambda: (r := self.rows()) and
                           sum(w["prefilling"] + w["decoding"] for w in r) == n and r)
            if any(w["kind"] == "Provider" and w["prefilling"] + w["decoding"] for w in rows):
                return n - 1
        raise AssertionError(f"the provider got nothing: {rows}")

    def ask(self, model, text, **more):
        """Status, body, who answered, as which model."""
        status, body, head = h.request(self.port, "POST", "/v1/chat/completions", {
            "model": model, "max_tokens": 2, "messages": [{"role": "user", "content": text}], **more})
        head = {k.lower(): v for k, v in head.items()}
        return status, body, head.get("x-pointsman-worker"), head.get("x-pointsman-model")

    def kill(self, *names):
        for name in names:
            self.by_name[name].stop(signal.SIGKILL)
        h.until("them to be known as down", lambda: all(r["state"] == "down" for r in self.rows() if r["worker"] in names))


ONE_SEAT = ("--max-num-seqs", 1, "--t-o", 0.05)         # a second request waits until the first has gone
CLOUD = "bedrock-us/qwen3-32b"


def model_aliasing():
    with Published("model-aliasing.yaml") as f:
        for name in ("s1", "s2", "l1"):
            f.by_name[name].get("/emu/config", {"reset_counters": True})
        got = [f.ask("assistant", f"n {i}") for i in range(6)]
        assert all(s == 200 and w in ("s1", "s2") and m == "Qwen/Qwen3-8B" for s, _, w, m in got), got
        s, _, w, m = f.ask("Qwen/Qwen3-32B", "its own name")
        assert (s, w, m) == (200, "l1", "Qwen/Qwen3-32B")
        assert f.ask("Qwen/Qwen3-8B", "not a name of this gateway")[0] == 404
        # Of two models whoever is there.
        f.kill("l1")
        s, _, w, m = f.ask("assistant-any", "a small one")
        assert s == 200 and w in ("s1", "s2") and m == "Qwen/Qwen3-8B", (s, w, m)
        f.by_name["l1"].start()
        h.until("it to be up", lambda: all(r["state"] == "up" for r in f.rows()))
        f.kill("s1", "s2")
        s, _, w, m = f.ask("assistant-any", "who is left")
        assert (s, w, m) == (200, "l1", "Qwen/Qwen3-32B"), (s, w, m)
        assert f.ask("assistant", "nobody")[0] == 503


def burst_to_cloud():
    with Published("burst-to-cloud.yaml", *ONE_SEAT) as f:
        for i in range(4):
            s, _, w, _ = f.ask("assistant", f"quiet {i}")
            assert s == 200 and w in ("w1", "w2"), (s, w)
        assert f.cloud.came() == []
        stayed = f.busy()
        # Two workers with one request each, and more than two that wait at each.
        assert 6 <= stayed <= 10, stayed
        s, _, w, m = f.ask("assistant", "while they are busy")
        assert (s, w, m) == (200, CLOUD, "qwen.qwen3-32b-v1:0"), (s, w, m)
        assert all(json.loads(c["body"])["model"] == "qwen.qwen3-32b-v1:0" for c in f.cloud.came())
        f.quiet()
        came = len(f.cloud.came())
        assert f.ask("assistant", "quiet again")[2] in ("w1", "w2") and len(f.cloud.came()) == came
        # The provider is gone as well: then they wait here.
        f.cloud.stop(signal.SIGKILL)
        h.until("it to be known as down", lambda: any(r["state"] == "down" for r in f.rows()))
        for n in range(1, 12):
            f.begin("assistant", f"hold {n}")
            h.until("it to be sent", lambda: sum(w["prefilling"] + w["decoding"] for w in f.rows()) == n)
        f.quiet()
        f.cloud.start()
        h.until("it to be up", lambda: all(r["state"] == "up" for r in f.rows()))
        f.kill("w1", "w2")
        assert f.ask("assistant", "alone")[2] == CLOUD


def pii_stays_local():
    secret = "mail jane.doe@example.com about DE89 3704 0044 0532 0130 00"
    with Published("pii-stays-local.yaml", *ONE_SEAT) as f:
        assert f.ask("assistant", secret)[2] in ("w1", "w2")
        f.busy()
        assert f.ask("assistant", "nothing personal")[2] == CLOUD
        # It waits here, however long the queue is; told by the ledger, not by time.
        before = sum(r["prefilling"] for r in f.rows())
        f.begin("assistant", secret)
        h.until("it to wait here", lambda: sum(r["prefilling"] for r in f.rows() if r["kind"] == "Worker") == before + 1)
        f.quiet()
        # A worker that refuses: a retry goes to the other worker and no further.
        for w in ("w1", "w2"):
            f.by_name[w].get("/emu/config", {"fail-rate": 1, "fail-kind": "503"})
        status, body, w, _ = f.ask("assistant", secret)
        assert status == 503 and w in ("w1", "w2", None), (status, body, w)
        f.kill("w1", "w2")
        status, body, w, _ = f.ask("assistant", secret)
        assert status == 503 and w is None, (status, body, w)
        assert f.ask("assistant", "nothing personal")[2] == CLOUD
        # In a tool's arguments, in parts, in other digits, escaped: it is the same.
        for body in ({"messages": [{"role": "user", "content": [{"type": "text", "text": "write to jane.doe\\u0040example.com"
                                                                .encode().decode("unicode_escape")}]}]},
                     {"messages": [{"role": "assistant", "content": None, "tool_calls": [
                         {"id": "a", "type": "function", "function": {"name": "mail", "arguments": json.dumps(
                             {"to": "jane.doe@example.com"})}}]}, {"role": "tool", "tool_call_id": "a", "content": "sent"}]}):
            assert f.ask("assistant", "", **body)[0] == 503, body
        came = json.dumps(f.cloud.came())
        assert "jane" not in came and "0532" not in came, came


def simple_to_cheaper():
    with Published("simple-to-cheaper.yaml") as f:
        for i in range(4):
            s, _, w, m = f.ask("assistant", f"what is {i} and {i}?")
            assert (s, w, m) == (200, "s1", "Qwen/Qwen3-8B"), (s, w, m)
        hard = f.ask("assistant", "think of " + "many things " * 400)
        assert hard[2:] == ("l1", "Qwen/Qwen3-32B"), hard
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
        assert f.ask("assistant", "short, with a tool", tools=tools)[2] == "l1"
        # Simple, but the large one has it in its cache: it would be slower at the small one.
        known = "once more, the story of the wolf: " + "and so on " * 130
        body = {"model": "Qwen/Qwen3-32B", "max_tokens": 1, "messages": [{"role": "user", "content": known}]}
        assert f.by_name["l1"].get("/v1/chat/completions", body)[0] == 200
        h.until("its blocks to be known", lambda: next(r for r in f.rows() if r["worker"] == "l1")["cache"]["applied"] > 0)
        h.until("the large one to be preferred", lambda: f.ask("assistant", known)[2] == "l1")
        assert f.ask("assistant", "but this is new")[2] == "s1"
        f.kill("s1")
        assert f.ask("assistant", "simple, and no small one is up")[2] == "l1"


def batch_on_idle_gpus():
    # 64 blocks of 16 tokens: one long prompt takes more than 70 % of them.
    room = ("--block-size", 16, "--num-gpu-blocks", 64, "--t-o", 0.05, "--max-model-len", 1000)
    with Published("batch-on-idle-gpus.yaml", *room) as f:
        assert f.ask("assistant-batch", "idle")[0] == 200
        for n in (1, 2):
            f.begin("assistant", f"{n} " * 1600, max_tokens=100)
        h.until("both to be full", lambda: all((r["reading"]["kv_usage"] or 0) > 0.7 for r in f.rows()))
        started = sum(w.state()["requests"]["started"] for w in f.workers)
        done = []
        t = threading.Thread(target=lambda: done.append(f.ask("assistant-batch", "batch work")))
        t.start()
        h.until("it to be held", lambda: f.stat()["requests"]["live"] >= 3)
        assert f.ask("assistant", "who waits for an answer")[0] == 200, "not held"
        assert not done
        f.let_go()
        t.join(60)
        assert done and done[0][0] == 200, done
        assert sum(w.state()["requests"]["started"] for w in f.workers) == started + 2


CASES = {c.__name__: c for c in (model_aliasing, burst_to_cloud, pii_stays_local, simple_to_cheaper, batch_on_idle_gpus)}
assert set(CASES) == {p.stem.replace("-", "_") for p in FILES.glob("*.yaml")}, "each published file has its case"
for name in sys.argv[1:] or CASES:
    CASES[name]()
    print(name.replace("_", " "))
