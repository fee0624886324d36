"""Rules as clients and operators meet them: who may have a request, who is refused and by whose name, and who is held until
a rule leaves somebody, across a reload too.
policies.py [rules|places]
"""
import json, signal, socket, sys, threading

import house as h

RED = "when: \"has(request.headers['x-team']) && request.headers['x-team'] == 'red'\""


class Fleet(h.House):
    """Two workers, w0 and w1, under rules that change."""

    def __init__(self, rules, *options, **named):
        super().__init__(policy=rules, **named)
        self.add("--profile", "zero", *options, count=2)

    def ask(self, headers=None, **more):
        body = {"model": self.model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, **more}
        status, answer, head = h.request(self.port, "POST", "/v1/chat/completions", body, headers)
        return status, answer, {k.lower(): v for k, v in head.items()}

    def workers_of(self, n, headers=None):
        said = [self.ask(headers) for _ in range(n)]
        assert all(s[0] == 200 for s in said), said
        return {s[2]["x-pointsman-worker"] for s in said}

    def other_rules(self, rules):
        self.policy = rules
        self.write()
        done = self.ctl("reload")
        assert done.returncode == 0, done

    def rows(self):
        return json.loads(self.ctl("workers", "--output", "json").stdout)["workers"]

    def counted(self, name, at_least):
        h.until(f"{name} to be {at_least}", lambda: self.counter(name) >= at_least)


def a_rule_keeps_refuses_by_its_name_and_is_explained():
    rules = ("  rules:\n"
             f"  - {{name: red-to-w1, {RED}, keep: \"candidate.name == 'w1'\"}}\n"
             f"  - {{name: not-for-guests, {RED.replace('red', 'guest')}, remove: 'true'}}\n"
             "  - {name: hope, keep: \"candidate.name == 'nobody'\", onEmpty: Skip}\n")
    with Fleet(rules) as f:
        f.start()
        assert f.workers_of(4) == {"w0", "w1"}
        assert f.workers_of(6, {"x-team": "red"}) == {"w1"}
        status, body, head = f.ask({"X-Team": "guest"})
        error = body["error"]
        assert (status, error["code"], head["x-pointsman-rule"]) == (403, "refused_by_rule", "not-for-guests"), (body, head)
        assert "not-for-guests" in error["message"], error
        said = f.explain(head["x-pointsman-request-id"])
        assert "by rule not-for-guests" in said and "rule red-to-w1: does not apply" in said, said
        head = f.ask({"x-team": "red"})[2]
        said = f.explain(head["x-pointsman-request-id"])
        assert "rule red-to-w1: applied, 1 removed" in said and "rule hope: skipped" in said, said
        one = next(l for l in said.splitlines() if l.startswith("w0 "))
        assert one.endswith("red-to-w1"), one
        f.counted("rejections_by_rule_total", 1)


def sessions_stay_where_they_are_and_an_objective_may_be_ones_own():
    with Fleet("  affinity: {by: Header, header: x-session}\n") as f:
        f.start()
        homes = {s: f.workers_of(3, {"x-session": s}) for s in "abcdefghij"}
        assert all(len(w) == 1 for w in homes.values()), homes
        assert len(set.union(*homes.values())) == 2, homes
        f.minimize = "\"candidate.name == 'w1' ? 1 : 2\""
        f.other_rules("")
        assert f.workers_of(4) == {"w1"}


def one_that_is_held_goes_under_the_rules_that_come_and_one_that_leaves_is_forgotten():
    nobody = "  rules:\n  - {name: later, keep: \"candidate.name == '%s'\", onEmpty: Wait, upTo: %s}\n"
    with Fleet(nobody % ("nobody", "60s")) as f:
        f.start()
        said = []
        threads = [threading.Thread(target=lambda: said.append(f.ask())) for _ in range(3)]
        for t in threads:
            t.start()
        f.counted("held_total", 3)
        gone = socket.create_connection(("127.0.0.1", f.port))
        body = json.dumps({"model": f.model, "prompt": "hello", "max_tokens": 1}).encode()
        gone.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        f.counted("held_total", 4)
        gone.close()
        h.until("its slot to be free", lambda: f.counter("slots_used") == 3)
        assert said == []
        f.other_rules(nobody % ("w1", "60s"))
        for t in threads:
            t.join()
        assert all(s[0] == 200 and s[2]["x-pointsman-worker"] == "w1" for s in said), said
        f.other_rules(nobody % ("nobody", "200ms"))
        status, body, head = f.ask()
        assert (status, head["x-pointsman-rule"]) == (503, "later") and "waited" in body["error"]["message"], (status, body, head)
        assert "retry-after" in head, head
        f.counted("held_late_total", 1)


CLOUD = """
---
apiVersion: pointsman.io/v1alpha1
kind: InferenceProvider
metadata: {name: cloud}
spec:
  type: openai
  models: [{name: big, upstream: their-model}]
---
apiVersion: pointsman.io/v1alpha1
kind: InferencePolicy
metadata: {name: wide}
spec:
  candidates: [{pool: all}, {provider: cloud, model: big}]
"""


def what_a_strict_rule_removed_stays_removed_in_what_is_fallen_back_to():
    rules = ("  rules:\n"
             "  - {name: stays-home, when: \"has(request.headers['x-private'])\", keep: \"candidate.kind == 'Worker'\"}\n"
             "  onEmpty: {action: Fallback, policy: wide}\n")
    with Fleet(rules, documents=CLOUD) as f:
        f.listed = f.workers[:]
        f.start()
        cloud = h.Provider(f.folder, "cloud", path=f.run / "provider.sock", profile="zero", model="their-model")
        f.workers.append(cloud)
        h.until("the provider to be up", lambda: f.stat()["providers_up"] == 1)
        assert f.workers_of(4) == {"w0", "w1"} and cloud.came() == []
        for w in f.listed:
            w.stop(signal.SIGKILL)
        h.until("them to be known as down", lambda: [r["state"] for r in f.rows()].count("down") == 2)
        status, body, head = f.ask({"X-Private": "1"})
        assert status == 503 and cloud.came() == [], (status, body, head)
        said = f.explain(head["x-pointsman-request-id"])
        assert any(l.startswith("cloud/big ") and l.endswith("stays-home") for l in said.splitlines()), said
        assert f.workers_of(1) == {"cloud/big"} and len(cloud.came()) == 1
        f.listed[1].start()
        h.until("one to be back", lambda: any(r["state"] == "up" for r in f.rows() if r["worker"] == "w1"))
        assert f.workers_of(3, {"X-Private": "1"}) == {"w1"} and len(cloud.came()) == 1


def a_split_is_by_weight_and_stays_and_who_waits_goes_where_a_worker_frees():
    far = """
---
apiVersion: pointsman.io/v1alpha1
kind: InferenceWorkerSet
metadata: {name: far}
spec: {engine: vllm, model: emu-8b, members: [%s]}
---
apiVersion: pointsman.io/v1alpha1
kind: InferencePool
metadata: {name: far}
spec: {workerSets: [far]}
"""
    with Fleet("  split: User\n", "--t-o", 0.02, candidates="[{pool: all, weight: 90}, {pool: far, weight: 10}]") as f:
        f.listed = f.workers[:1]
        f.documents = far % f.workers[1].member()
        f.start()
        h.until("both to be up", lambda: all(r["state"] == "up" for r in f.rows()))
        users = [f"user {i}" for i in range(60)]
        first, again = ([f.ask(user=u)[2]["x-pointsman-worker"] for u in users] for _ in range(2))
        assert first == again and 2 <= first.count("w1") <= 14, (first.count("w1"), first, again)
        f.candidates = "[{pool: all}, {pool: far}]"
        f.other_rules("  rules:\n  - {name: alone, keep: \"candidate.running == 0\", onEmpty: Wait, upTo: 60s}\n")
        streams = {}
        while len(streams) < 2:
            c = h.http.client.HTTPConnection("127.0.0.1", f.port, timeout=60)
            c.request("POST", "/v1/chat/completions", json.dumps({
                "model": f.model, "stream": True, "max_tokens": 20000, "ignore_eos": True,
                "messages": [{"role": "user", "content": "long"}]}), {"Content-Type": "application/json"})
            r = c.getresponse()
            assert r.status == 200, r.read()
            streams[r.headers["x-pointsman-worker"]] = (c, r)
            r.read(1)
            h.until("it to be known", lambda: sum(w["decoding"] for w in f.rows()) == len(streams))
        said, held = [], f.counter("held_total")
        t = threading.Thread(target=lambda: said.append(f.ask()))
        t.start()
        f.counted("held_total", held + 1)
        assert said == []
        for part in streams["w1"]:
            part.close()
        t.join()
        assert said[0][0] == 200 and said[0][2]["x-pointsman-worker"] == "w1", said
        for part in streams["w0"]:
            part.close()


CASES = {
    "rules": (a_rule_keeps_refuses_by_its_name_and_is_explained, sessions_stay_where_they_are_and_an_objective_may_be_ones_own,
              one_that_is_held_goes_under_the_rules_that_come_and_one_that_leaves_is_forgotten),
    "places": (what_a_strict_rule_removed_stays_removed_in_what_is_fallen_back_to,
               a_split_is_by_weight_and_stays_and_who_waits_goes_where_a_worker_frees),
}
for group in sys.argv[1:] or CASES:
    for case in CASES[group]:
        case()
        print(case.__name__.replace("_", " "))
