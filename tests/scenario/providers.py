"""Providers as candidates: their socket, their model, who goes there and who never does, and what becomes of local traffic
when one of them dies.  What stands for the outside is a process of its own that writes down all that it was sent.
providers.py [BACKEND]
"""
import json, pathlib, signal, sys, threading

import house as h

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "auto"
CLOUD = """
---
apiVersion: pointsman.io/v1alpha1
kind: InferenceProvider
metadata: {{name: {name}}}
spec:
  type: openai
  prior: {{ttft: {ttft}}}
  models: [{{name: big, upstream: {upstream}, price: {{input: 3, output: 15}}}}]
{more}
"""
POLICY = """
---
apiVersion: pointsman.io/v1alpha1
kind: InferencePolicy
metadata: {{name: {name}}}
spec:
  candidates: {candidates}
{more}
"""


def cloud(name="cloud", ttft="500ms", upstream="their-model", more=""):
    return CLOUD.format(name=name, ttft=ttft, upstream=upstream, more=more)


def policy(name, candidates, more=""):
    return POLICY.format(name=name, candidates=candidates, more=more)


class Fleet(h.House):
    """One worker, w0, and models: the worker's own by policy standard, `remote` by policy remote."""

    def __init__(self, *worker, **named):
        super().__init__(io=BACKEND, **named)
        self.add("--profile", "zero", *worker)
        self.listed = self.workers[:]

    def provider(self, name, *options, path=None, **named):
        """Started, and waited for until it is known to be up; path None: where providers are by default."""
        p = h.Provider(self.folder, name, *options, path=path or self.run / "provider.sock", **named)
        self.workers.append(p)
        return p

    def state(self, row):
        rows = json.loads(self.ctl("workers", "--output", "json").stdout)["workers"]
        return next((w for w in rows if w["worker"] == row), {"state": "absent"})

    def up(self, row):
        h.until(f"{row} to be up", lambda: self.state(row)["state"] == "up")

    def ask(self, text="hello", model=None, headers=None, **more):
        """Status, body, who answered."""
        body = {"model": model or self.model, "messages": [{"role": "user", "content": text}], "max_tokens": 4, **more}
        status, answer, head = h.request(self.port, "POST", "/v1/chat/completions", body, headers)
        return status, answer, {k.lower(): v for k, v in head.items()}

    def sent_by(self, head):
        return head.get("x-pointsman-worker")


def what_is_sent_there_is_ours_and_nothing_of_the_client():
    with Fleet(candidates="[{provider: cloud, model: big}]", documents=cloud()) as f:
        f.start()
        p = f.provider("cloud", profile="zero")
        f.up("cloud/big")
        headers = {"Authorization": "Bearer client-secret", "Cookie": "c=client-secret", "X-Api-Key": "client-secret",
                   "X-Pointsman-Provider": "other", "X-Kept": "yes"}
        status, body, head = f.ask("grüß dich", headers=headers, temperature=0.25)
        assert status == 200 and f.sent_by(head) == "cloud/big" and head["x-pointsman-model"] == "their-model", (status, head)
        stream = f.ask("again", stream=True)
        assert stream[0] == 200 and stream[1].rstrip().endswith("data: [DONE]"), stream
        came = p.came()
        assert len(came) == 2 and "client-secret" not in json.dumps(came), came
        one = {k.lower(): v for k, v in came[0]["headers"]}
        assert one["x-pointsman-provider"] == "cloud" and one["x-kept"] == "yes" and one["host"] == "localhost", one
        assert json.loads(came[0]["body"]) == {"model": "their-model", "messages": [{"role": "user", "content": "grüß dich"}],
                                               "max_tokens": 4, "temperature": 0.25}
        # What operators see says what it is.
        row = f.state("cloud/big")
        assert row["kind"] == "Provider" and row["set"] == "cloud" and row["url"] == "unix:provider.sock", row
        assert f.stat()["providers_up"] == 1 and f.stat()["workers_count"] == 1
        said = f.explain(head["x-pointsman-request-id"])
        assert "choose cloud/big" in said, said
        why = f.ctl("workers", "--why").stdout.split("cloud/big")[1]
        assert "metrics" not in why and "up (ok)" in why, why
        page = h.request(f.admin, "GET", "/metrics")[1]
        assert any('worker="cloud/big"' in l and 'kind="provider"' in l and 'state="up"' in l and l.endswith(" 1")
                   for l in page.splitlines() if l.startswith("pointsman_worker_state")), page


def nothing_reaches_one_that_no_policy_names():
    with Fleet(documents=cloud()) as f:
        f.start()
        p = f.provider("cloud")
        f.up("w0")
        f.up("cloud/big")
        assert f.sent_by(f.ask()[2]) == "w0"
        assert f.ask(model="big")[0] == 404
        w = f.workers[0]
        w.get("/emu/config", {"fail-rate": 1, "fail-kind": "503"})
        assert f.ask()[0] == 503
        w.stop(signal.SIGKILL)
        assert f.ask()[0] in (502, 503)
        assert p.came() == [], "health questions only"


def a_retry_goes_where_the_list_says_and_a_missing_socket_is_passed_by():
    both = "[{pool: all}, {provider: cloud, model: big}, {provider: other, model: big}]"
    with Fleet(candidates=both, documents=cloud(ttft="20s") + cloud("other", ttft="30s", more="  socket: gone.sock")
               .replace("gone.sock", "/nowhere/gone.sock")) as f:
        f.start()
        p = f.provider("cloud", profile="zero")
        f.up("w0")
        f.up("cloud/big")
        status, _, head = f.ask()
        assert status == 200 and f.sent_by(head) == "w0" and p.came() == []
        f.workers[0].get("/emu/config", {"fail-rate": 1, "fail-kind": "503"})
        status, _, head = f.ask("busy there")
        assert status == 200 and f.sent_by(head) == "cloud/big" and head["x-pointsman-attempts"] == "2", (status, head)
        assert json.loads(p.came()[0]["body"])["model"] == "their-model"
        assert f.state("other/big")["state"] in ("suspect", "down", "unproven")
        assert "nobody serves unix:/nowhere/gone.sock" in f.ctl("workers", "--why").stdout
        # The worker is well again and the provider's socket goes: nobody notices.
        f.workers[0].get("/emu/config", {"fail-rate": 0})
        p.stop(signal.SIGKILL)
        for i in range(5):
            status, _, head = f.ask(f"alone {i}")
            assert status == 200 and f.sent_by(head) == "w0", (status, head)
        # Both are gone: a clear word at once, and no hanging.
        f.workers[0].stop(signal.SIGKILL)
        status, body, _ = f.ask("nobody")
        assert status in (502, 503) and body["error"]["code"] in ("upstream_unreachable", "no_candidate"), (status, body)
        h.until("both to be known as down", lambda: f.state("w0")["state"] == f.state("cloud/big")["state"] == "down")
        status, body, _ = f.ask("nobody")
        assert status == 503 and body["error"]["code"] == "no_candidate", (status, body)


def one_that_dies_under_load_takes_no_local_request_with_it():
    with Fleet(candidates="[{pool: all}]", documents=policy("remote", "[{provider: cloud, model: big}]", "  match: {models: [remote]}") + cloud()) as f:
        f.write()
        f.config.write_text(f.config.read_text().replace("models: [{name: emu-8b", "models: [{name: remote}, {name: emu-8b"))
        f.start()
        p = f.provider("cloud", "--mean-output", 2000)
        f.up("w0")
        f.up("cloud/big")
        over, done, wrong, cut = threading.Event(), [], [], []
        first = threading.Barrier(5)

        def local():
            while not over.is_set():
                status, body, head = f.ask(f"local {len(done)}")
                done.append(1)
                if status != 200 or f.sent_by(head) != "w0":
                    wrong.append((status, body))

        def remote():
            c = h.http.client.HTTPConnection("127.0.0.1", f.port, timeout=60)
            c.request("POST", "/v1/chat/completions", json.dumps({
                "model": "remote", "stream": True, "max_tokens": 2000, "ignore_eos": True,
                "messages": [{"role": "user", "content": "long"}]}), {"Content-Type": "application/json"})
            r = c.getresponse()
            got = r.read(1)
            while b"data: " not in got:
                got += r.read(1)
            first.wait(60)                      # its answer has begun
            try:
                got += r.read()
                cut.append(got)
            except h.http.client.IncompleteRead as e:
                cut.append(got + e.partial)
            c.close()

        threads = [threading.Thread(target=t) for t in (local, local, remote, remote, remote, remote)]
        for t in threads:
            t.start()
        first.wait(60)
        h.until("local requests beside them", lambda: len(done) > 20)
        assert f.state("cloud/big")["decoding"] == 4, f.state("cloud/big")
        p.stop(signal.SIGKILL)
        before = len(done)
        for t in threads[2:]:
            t.join(60)
        assert len(cut) == 4 and all(b"[DONE]" not in c and b'"error"' in c for c in cut), cut
        status, body, _ = f.ask("new", model="remote")
        assert status in (502, 503) and "error" in body, (status, body)
        h.until("local requests after it", lambda: len(done) > before + 20)
        p.start()
        f.up("cloud/big")
        assert f.ask("back", model="remote")[0] == 200
        over.set()
        for t in threads[:2]:
            t.join(60)
        assert not wrong, wrong[:3]
        assert f.state("cloud/big")["decoding"] == f.state("cloud/big")["prefilling"] == 0


def a_reload_brings_one_and_takes_it_away():
    with Fleet() as f:
        f.start()
        p = f.provider("cloud", profile="zero")
        f.up("w0")
        assert f.sent_by(f.ask()[2]) == "w0" and f.state("cloud/big")["state"] == "absent"
        f.candidates, f.documents = "[{provider: cloud, model: big}]", cloud()
        f.write()
        f.ctl("reload")
        f.up("cloud/big")
        assert f.sent_by(f.ask()[2]) == "cloud/big" and len(p.came()) == 1
        # The same name, sold as another model: rewritten to that one from now on.
        f.documents = cloud(upstream="newer-model")
        f.write()
        f.ctl("reload")
        p.stop()
        p.model = "newer-model"
        p.start()
        f.up("cloud/big")
        assert f.ask()[0] == 200 and json.loads(p.came()[-1]["body"])["model"] == "newer-model"
        came = len(p.came())
        f.candidates, f.documents = "[{pool: all}]", ""
        f.write()
        f.ctl("reload")
        for i in range(5):
            assert f.sent_by(f.ask(f"home {i}")[2]) == "w0"
        assert len(p.came()) == came
        h.until("its row to go", lambda: f.state("cloud/big")["state"] in ("absent", "draining"))
        # A mistake refuses the reload and changes nothing.
        f.candidates = "[{provider: clowd, model: big}]"
        f.write()
        r = f.ctl("reload", check=False)
        assert r.returncode != 0 and "clowd" in r.stdout + r.stderr, r
        assert f.sent_by(f.ask()[2]) == "w0"


for case in (what_is_sent_there_is_ours_and_nothing_of_the_client, nothing_reaches_one_that_no_policy_names,
             a_retry_goes_where_the_list_says_and_a_missing_socket_is_passed_by,
             one_that_dies_under_load_takes_no_local_request_with_it, a_reload_brings_one_and_takes_it_away):
    case()
    print(case.__name__.replace("_", " "))
