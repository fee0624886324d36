"""Rules as clients and operators meet them: who may have a request, who is refused and by whose name, and who is held until
a rule leaves somebody, across a reload too.
policies.py [BACKEND]
"""
import json, socket, sys, threading

import house as h

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "auto"
RED = "when: \"request.headers['x-team'] == 'red'\""


class Fleet(h.House):
    """Two workers, w0 and w1, under rules that change."""

    def __init__(self, rules, **named):
        super().__init__(io=BACKEND, policy=rules, **named)
        self.add("--profile", "zero", count=2)

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

    def counted(self, name, at_least):
        h.until(f"{name} to be {at_least}", lambda: self.stat()[name] >= at_least)


def a_rule_keeps_refuses_by_its_name_and_is_explained():
    rules = ("  rules:\n"
             f"  - {{name: red-to-w1, {RED}, keep: \"candidate.name == 'w1'\"}}\n"
             "  - {name: not-for-guests, when: \"request.headers['x-team'] == 'guest'\", remove: 'true'}\n"
             "  - {name: hope, keep: \"candidate.name == 'nobody'\", onEmpty: Skip}\n")
    with Fleet(rules) as f:
        f.start()
        assert f.workers_of(4) == {"w0", "w1"}
        assert f.workers_of(6, {"x-team": "red"}) == {"w1"}
        status, body, head = f.ask({"X-Team": "guest"})
        error = json.loads(body)["error"]
        assert (status, error["code"], head["x-pointsman-rule"]) == (403, "refused_by_rule", "not-for-guests"), (body, head)
        assert "not-for-guests" in error["message"], error
        said = f.ctl("explain", head["x-pointsman-request-id"]).stdout
        assert "by rule not-for-guests" in said and "rule red-to-w1: does not apply" in said, said
        head = f.ask({"x-team": "red"})[2]
        said = f.ctl("explain", head["x-pointsman-request-id"]).stdout
        assert "rule red-to-w1: applied, 1 removed" in said and "rule hope: skipped" in said, said
        one = next(l for l in said.splitlines() if l.startswith("w0 "))
        assert one.endswith("red-to-w1"), one
        assert f.stat()["rejections_by_rule"] == 1


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
        f.counted("held", 3)
        gone = socket.create_connection(("127.0.0.1", f.port))
        body = json.dumps({"model": f.model, "prompt": "hello", "max_tokens": 1}).encode()
        gone.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        f.counted("held", 4)
        gone.close()
        h.until("its slot to be free", lambda: f.stat()["slots_used"] == 3)
        assert said == []
        f.other_rules(nobody % ("w1", "60s"))
        for t in threads:
            t.join()
        assert all(s[0] == 200 and s[2]["x-pointsman-worker"] == "w1" for s in said), said
        f.other_rules(nobody % ("nobody", "200ms"))
        status, body, head = f.ask()
        assert (status, head["x-pointsman-rule"]) == (503, "later") and "waited" in body, (status, body, head)
        assert "retry-after" in head, head
        assert f.stat()["held_late"] >= 1


for case in (a_rule_keeps_refuses_by_its_name_and_is_explained, sessions_stay_where_they_are_and_an_objective_may_be_ones_own,
             one_that_is_held_goes_under_the_rules_that_come_and_one_that_leaves_is_forgotten):
    case()
    print(case.__name__.replace("_", " "))
