"""No private request reaches a provider while its rule is in force, whatever fails: faults by seeds through the real
processes, with a process on a unix socket as the only outside, which writes down all that it was sent.
privacy.py [BACKEND] [--seeds N] [--first SEED]
"""
import argparse, concurrent.futures, contextlib, http.server, json, random, signal, threading, time

import house as h

DOCUMENTS = """
---
apiVersion: pointsman.io/v1alpha1
kind: InferenceProvider
metadata: {{name: cloud}}
spec:
  type: openai
  prior: {{ttft: 50ms}}
  models: [{{name: big, upstream: their-model}}]
---
apiVersion: pointsman.io/v1alpha1
kind: InferencePolicy
metadata: {{name: wide}}
spec:
  candidates: [{{provider: cloud, model: big}}, {{pool: all}}]
---
apiVersion: pointsman.io/v1alpha1
kind: RequestTag
metadata: {{name: pii}}
spec: {{patterns: [{{type: email}}, {{type: iban}}]}}
---
apiVersion: pointsman.io/v1alpha1
kind: RequestTag
metadata: {{name: ill}}
spec: {{classifier: {{url: "http://127.0.0.1:{judge}/judge", label: ill, deadline: 100ms}}}}
"""
PRIVATE = "\"'pii' in request.tags || 'ill' in request.tags\""
RULE = "  - {name: stays-here, when: %s, remove: \"candidate.kind == 'Provider'\"}\n" % PRIVATE
# What comes behind, or before, the privacy rule; each is another way to a provider.
OTHERS = (
    "  - {name: burst, keepFirst: [\"candidate.waiting < 1\", \"candidate.kind == 'Provider'\"]}\n",
    "  - {name: rather-there, prefer: \"candidate.kind == 'Provider'\"}\n",
    "  - {name: idle, keep: \"candidate.kind == 'Provider' || candidate.waiting < 1\", onEmpty: Wait, upTo: 300ms}\n",
    "  - {name: not-busy, remove: \"candidate.kind == 'Worker' && candidate.running > 1\", onEmpty: Skip}\n")
ENDS = ("  onEmpty: {action: Fallback, policy: wide}\n", "",
        "  onEmpty: {action: Wait, upTo: 300ms, then: Fallback, policy: wide}\n")
FAULTS = ("worker", "workers", "provider", "policy", "failing", "judge dead", "judge slow", "loosen", "tighten", "replace",
          "metrics", "other rules")
PRIVATE_TEXTS = ("write to jane.doe%d@example.com", "account DE89 3704 0044 0532 0130 00, case %d", "the illness of number %d")


class Judge(http.server.ThreadingHTTPServer):
    """A classifier: a text is `ill` that says so.  mode: well, slow (past every deadline), dead (ends the connection)."""
    daemon_threads = True

    def __init__(self):
        judge = self
        self.mode, self.well = "well", threading.Event()

        class Answer(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                if judge.mode == "dead":
                    self.close_connection = True
                    return
                if judge.mode == "slow":
                    judge.well.wait(20)
                said = json.dumps({"label": "ill" if "illness" in text else "well", "score": 0.9}).encode()
                with contextlib.suppress(OSError):
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(said)))
                    self.end_headers()
                    self.wfile.write(said)

            def log_message(self, *args):
                pass

        super().__init__(("127.0.0.1", 0), Answer)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *args):
        pass                            # who asked went away

    def set(self, mode):
        self.mode = mode
        if mode == "slow":
            self.well.clear()
        else:
            self.well.set()


class Siege(h.House):
    def __init__(self, backend):
        self.judge = Judge()
        super().__init__(io=backend, candidates="[{pool: all}, {provider: cloud, model: big}]",
                         documents=DOCUMENTS.format(judge=self.judge.server_address[1]))
        for _ in range(2):
            self.add("--profile", "zero", "--max-num-seqs", 2, "--t-o", 0.01)
        self.locals = self.workers[:]
        self.listed = self.locals
        self.lock = threading.Lock()
        self.number, self.private, self.counts = 0, {}, {}
        self.strict, self.loosened, self.rules = True, 0, ("", 0, ENDS[0])
        self.set_rules(True)
        self.start()
        self.cloud = h.Provider(self.folder, "cloud", path=self.run / "provider.sock", profile="zero")
        self.workers.append(self.cloud)
        self.all_up()

    def rows(self):
        return json.loads(self.ctl("workers", "--output", "json").stdout)["workers"]

    def all_up(self):
        h.until("all to be up", lambda: {r["state"] for r in self.rows()} == {"up"})

    def set_rules(self, strict):
        other, before, end = self.rules
        mine = RULE if strict else ""
        rules = other + mine if before else mine + other
        self.policy = ("  rules:\n" + rules if rules else "") + end
        self.write()

    def reload(self, strict=None):
        """The rule is in force from when a reload with it has ended until one without it begins."""
        strict = self.strict if strict is None else strict
        if not strict:
            self.strict = False
            self.loosened += 1
        self.set_rules(strict)
        done = self.ctl("reload")
        assert done.returncode == 0, done
        self.strict = strict

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def ask(self, private, rng):
        with self.lock:
            self.number += 1
            n = self.number
        text = rng.choice(PRIVATE_TEXTS) % n if private else f"nothing of importance, {n}"
        body = {"model": self.model, "max_tokens": 2, "metadata": {"case": f"<{n}>"}}
        shape = rng.randrange(4)
        if shape == 0:
            body["prompt"] = text
        elif shape == 1:
            body["messages"] = [{"role": "user", "content": text}]
        elif shape == 2:
            body["messages"] = [{"role": "user", "content": [{"type": "text", "text": "see here:"}, {"type": "text", "text": text}]}]
        else:
            body["messages"] = [{"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {
                "name": "f", "arguments": json.dumps({"about": text})}}]}, {"role": "tool", "tool_call_id": "a", "content": "done"}]
        began = self.loosened if self.strict else None
        try:
            status, answer, head = h.request(self.port, "POST", "/v1/completions" if shape == 0 else "/v1/chat/completions",
                                             json.dumps(body))
        except (OSError, h.http.client.HTTPException):
            self.count("broken")
            return None, None, None
        finally:
            if private:         # under the rule all the time?
                self.private[n] = began is not None and self.loosened == began
        head = {k.lower(): v for k, v in head.items()}
        rule, who = head.get("x-pointsman-rule"), head.get("x-pointsman-worker")
        self.count(f"{'private' if private else 'open'} {status} {rule or ('provider' if who == 'cloud/big' else 'here' if who else '-')}")
        if isinstance(answer, dict) and (answer.get("error") or {}).get("code") == "refused_by_rule":
            assert rule, (answer, head)
        return status, rule, who

    def leaked(self):
        """Numbers of private requests that were under the rule from beginning to end, and are in the sink; all there."""
        came = [json.loads(c["body"])["metadata"]["case"] for c in self.cloud.came()]
        return [n for n in (int(c[1:-1]) for c in came) if self.private.get(n)], len(came)

    def fault(self, what, rng):
        self.count("fault: " + what)
        if what == "worker":
            rng.choice(self.locals).stop(signal.SIGKILL)
        elif what == "workers":
            for w in self.locals:
                w.stop(signal.SIGKILL)
        elif what == "provider":
            self.cloud.stop(signal.SIGKILL)
        elif what in ("policy", "metrics"):
            with contextlib.suppress(IndexError, ProcessLookupError):
                self.kill(what)
        elif what == "failing":
            for w in self.locals:
                with contextlib.suppress(OSError):
                    w.get("/emu/config", {"fail-rate": 0.7, "fail-kind": rng.choice(("503", "reset")), "fail-at": 0})
        elif what.startswith("judge"):
            self.judge.set(what.split()[1])
        elif what == "loosen":
            self.reload(strict=False)
        elif what == "tighten":
            self.reload(strict=True)
        elif what == "replace":
            self.supervisor.send_signal(signal.SIGUSR2)
        else:
            self.rules = (rng.choice(OTHERS), rng.randrange(2), rng.choice(ENDS))
            self.reload()

    def mend(self):
        self.judge.set("well")
        for w in self.workers:
            if w.process.poll() is not None:
                w.stop()
                w.start()
        for w in self.locals:
            w.get("/emu/config", {"fail-rate": 0})
        if not self.strict:
            self.reload(strict=True)

    def schedule(self, seed):
        rng = random.Random(seed)
        # Every seed is of other rules, and one in three has the privacy rule behind what calls for the provider.
        self.rules = (rng.choice(OTHERS), rng.random() < 0.3, rng.choice(ENDS))
        self.reload(strict=True)
        faults = rng.sample(FAULTS, 3)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            asked = []
            for what in [None, *faults]:
                if what:
                    self.fault(what, rng)
                asked += [pool.submit(self.ask, rng.random() < 0.6, random.Random(rng.random())) for _ in range(8)]
            for a in asked:
                a.result()
        self.mend()
        leaked, came = self.leaked()
        assert not leaked, f"seed {seed} {faults} {self.rules}: {leaked} of {came} at the provider"

    def closed(self):
        """Nobody here, the provider up: who is private is refused by the rule's name, whoever asks."""
        self.rules = ("", 0, ENDS[0])
        self.reload(strict=True)
        for w in self.locals:
            w.stop(signal.SIGKILL)
        h.until("them to be down", lambda: [r["state"] for r in self.rows()].count("down") == 2 and
                any(r["state"] == "up" for r in self.rows()))
        rng = random.Random(1)
        for _ in range(8):
            said = self.ask(True, rng)
            assert said[:2] == (503, "stays-here"), said
        h.until("the judge to be asked again", lambda: self.ask(False, rng)[2] == "cloud/big")
        self.judge.set("dead")
        h.until("who is unknown to be refused", lambda: self.ask(False, rng)[:2] == (503, "stays-here"))
        assert not self.leaked()[0]
        self.mend()
        self.all_up()

    def held(self):
        """Who is held when the rule comes goes under it, and is refused by its name where nobody is left here."""
        later = "  - {name: later, keep: \"candidate.name == 'nobody'\", onEmpty: Wait, upTo: 60s}\n"
        for down in (False, True):
            self.rules = (later, 1, "")
            self.reload(strict=False)
            before = self.counter("held_total")
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                asked = [pool.submit(self.ask, True, random.Random(i)) for i in range(6)]
                h.until("them to be held", lambda: self.counter("held_total") >= before + 6)
                if down:
                    for w in self.locals:
                        w.stop(signal.SIGKILL)
                    h.until("them to be down", lambda: [r["state"] for r in self.rows()].count("down") == 2)
                came = self.leaked()[1]
                self.rules = (OTHERS[1], 0, "")
                self.reload(strict=True)
                said = [a.result() for a in asked]
            assert self.leaked()[1] == came, said
            assert all(s[:2] == (503, "stays-here") if down else s[0] == 200 for s in said), said
        self.mend()
        self.all_up()


parser = argparse.ArgumentParser()
parser.add_argument("backend", nargs="?", default="auto")
parser.add_argument("--seeds", type=int, default=6)
parser.add_argument("--first", type=int, default=1)
args = parser.parse_args()
began = time.monotonic()
with Siege(args.backend) as siege:
    siege.closed()
    siege.held()
    for seed in range(args.first, args.first + args.seeds):
        siege.schedule(seed)
        if seed % 20 == 0:
            print(f"seed {seed}, {time.monotonic() - began:.0f} s", flush=True)
    leaked, came = siege.leaked()
    print(f"{args.seeds} schedules: {siege.number} requests, {len(siege.private)} private, {sum(siege.private.values())} of these "
          f"under the rule; {came} came to the provider, {len(leaked)} of those")
    for what, n in sorted(siege.counts.items()):
        print(f"  {what}: {n}")
    assert came > 0 and not leaked
