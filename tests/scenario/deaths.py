"""Any process may die under load, and nobody but its own streams notices.

deaths.py ROLE: kill -9 of that process under load, twice (the supervisor once, its successor afterwards): the
"if it dies" column of the README.
"""
import collections, json, pathlib, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

role = sys.argv[1]
RATE, KILLS = 300, 2

with h.House(ingresses=2) as house:
    house.add("--profile", "zero", "--tokenizer", "ids", count=2)
    house.start()
    out = house.folder / "requests.jsonl"
    began = time.monotonic()
    load = h.Load(f"http://127.0.0.1:{house.port}", "--model", house.model, "--workload", "shared",
                  "--prompt-form", "ids", "--prefix-tokens", 256, "--suffix-tokens", 32, "--output-tokens", 4,
                  "--rate", RATE, "--arrival", "constant", "--duration", 100, "--out", out,
                  "--allow-errors", "--timeout", 20)
    h.until("requests to flow", lambda: sum(w.served() for w in house.workers) > RATE)
    for _ in range(KILLS):
        if role == "supervisor":
            break
        state = {"policy": "active"}.get(role, "ready")
        h.until(f"a live {role}", lambda: house.pids(role, state))
        # All of the set must be there before the next blow: one death at a time is what is promised.
        if role == "policy":
            h.until("a standby", lambda: house.pids("policy", "standby"))
        killed = house.kill(role, state)
        h.until(f"{role} to be reborn", lambda: killed not in house.pids(role) and
                len(house.pids(role, state)) == (2 if role == "ingress" else 1))
    if role == "supervisor":
        house.supervisor.kill()
        house.supervisor.wait()
        time.sleep(1)           # the others serve on alone meanwhile: this is what is looked at, not waited for
    else:
        # Anyone can see that it happened, and why.
        h.until("the deaths to be shown", lambda: [
            p for p in house.stat()["processes"] if p["role"] == role and p["restarts"] >= 1 and
            "signal 9" in p["last_exit"]] and
            sum(p["restarts"] for p in house.stat()["processes"] if p["role"] == role) >= KILLS)
    more = sum(w.served() for w in house.workers) + RATE
    h.until("requests to flow on", lambda: sum(w.served() for w in house.workers) > more)
    seconds = time.monotonic() - began
    load.stop()

    sent = [json.loads(line) for line in open(out)]
    failed = [r for r in sent if r["status"] != 200 or r.get("error")]
    seen = collections.Counter(r["user"] for w in house.workers for r in w.requests() if r["ev"] == "start")
    duplicated = [u for u, n in seen.items() if n > 1]
    print(f"{role}: {len(sent)} requests, {len(failed)} failed, {len(duplicated)} duplicated")
    assert len(sent) > RATE * seconds * 0.8, (len(sent), seconds)
    assert not duplicated, duplicated[:5]
    if role == "ingress":
        # Streams of the dead one break; requests are a millisecond long, so that is a handful.
        assert len(failed) <= 20 * KILLS, [r["error"] for r in failed][:20]
    else:
        assert not failed, [(r["status"], r.get("error")) for r in failed][:10]

    if role == "supervisor":
        house.start()           # a successor takes the run directory and replaces the set
        r = h.request(house.port, "POST", "/v1/completions", {"model": house.model, "prompt": [1, 2, 3], "max_tokens": 2})
        assert r[0] == 200, r
    # Nothing stays charged, whoever died.
    h.until("the ledger to be empty", lambda: all(
        w["pending_tokens"] == 0 and w["prefilling"] == 0 and w["decoding"] == 0
        for w in json.loads(house.ctl("workers", "--output", "json").stdout)["workers"]))
