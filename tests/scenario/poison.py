"""A request unanswered in two crashes of policy processes is refused by every ingress; two kills from outside fail nobody.
"""
import os, pathlib, re, signal, sys, threading, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import json
import house as h


def live(house):
    return json.loads(house.ctl("requests", "--output", "json").stdout)["requests"]


def asked(house, times):
    return [r for r in live(house) if r["state"] == "asked" and r["ask"] >= times]


def policies(house):
    """The process that is asked and its standby, both there."""
    return house.pids("policy", "active"), house.pids("policy", "standby")


def struck(house, text, how, blows):
    """The answer to a request during which its policy process is struck so often."""
    worker, result = house.workers[0], {}
    h.until("a policy process and its standby", lambda: all(policies(house)))
    client = threading.Thread(target=lambda: result.update(zip(("status", "body"), house.chat(text))))
    worker.process.send_signal(signal.SIGSTOP)          # policy waits for its /tokenize, up to 2 s
    try:
        client.start()
        for blow in range(1, blows + 1):
            h.until(f"the question to be asked the {blow}. time", lambda: asked(house, blow))
            h.until("it to be shown who is asked", lambda: house.pids("policy", "active"))
            pid = house.pids("policy", "active")[0]
            os.kill(pid, how)
            h.until("its death to be known", lambda: pid not in house.pids("policy"))
            if blow < blows:
                h.until("a process to ask", lambda: house.pids("policy", "active"))
    finally:
        worker.process.send_signal(signal.SIGCONT)
    client.join(60)
    return result["status"], result["body"]


def refused(house, text):
    """Statuses of the same body on connections of their own, until each ingress has had some."""
    return {house.chat(text)[0] for _ in range(16)}


def poisoned(house):
    page = urllib.request.urlopen(f"http://127.0.0.1:{house.admin}/metrics", timeout=10).read().decode()
    return {m[1]: int(m[2]) for m in re.finditer(
        r'pointsman_requests_poisoned_total\{process="ingress",index="(\d+)"\} (\d+)', page)}


with h.House(ingresses=2) as house:
    house.add("--profile", "zero")
    house.start()
    assert house.chat("warm")[0] == 200

    status, body = struck(house, "an operator restarts policy twice", signal.SIGKILL, 2)
    assert status == 200, (status, body)
    assert not any(poisoned(house).values()), poisoned(house)

    status, body = struck(house, "a body that kills", signal.SIGSEGV, 2)
    assert status == 500 and body["error"]["code"] == "policy_crash", (status, body)
    assert refused(house, "a body that kills") == {500}
    assert all(poisoned(house)[i] > 0 for i in ("0", "1")), poisoned(house)
    assert house.chat("another body")[0] == 200

    # It is known beyond the life of whoever met it: to the neighbour, and to the successors of both.
    for index in range(2):
        pid = house.pids("ingress", "ready")[0] if index == 0 else [p for p in house.pids("ingress", "ready") if p not in born][0]
        before = set(house.pids("ingress"))
        os.kill(pid, signal.SIGKILL)
        h.until("its successor", lambda: pid not in house.pids("ingress") and len(house.pids("ingress", "ready")) == 2)
        born = set(house.pids("ingress")) - before | (born if index else set())
        assert refused(house, "a body that kills") == {500}
    assert house.chat("another body")[0] == 200
