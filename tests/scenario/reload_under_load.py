"""Broken and good configurations, workers that come, go and come back under the same name, all by reload and
all under load: no request fails, none is sent twice, nothing stays charged."""
import collections, json, pathlib, sys, threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

SECONDS, RATE = 8, 400

with h.House(ingresses=2) as house:
    house.add("--profile", "zero", "--tokenizer", "ids", count=3)
    every = list(house.workers)
    house.start()
    out = house.folder / "requests.jsonl"
    result = {}

    def drive():
        result.update(h.load(f"http://127.0.0.1:{house.port}", "--model", house.model, "--workload", "shared",
                             "--prompt-form", "ids", "--prefix-tokens", 256, "--suffix-tokens", 32, "--output-tokens", 8,
                             "--rate", RATE, "--arrival", "constant", "--duration", SECONDS, "--conn", "keepalive",
                             "--out", out, "--allow-errors", "--timeout", 20))

    driver = threading.Thread(target=drive)
    driver.start()
    h.until("requests to flow", lambda: sum(w.served() for w in every) > RATE)
    good, rounds = house.config.read_text(), 0
    while driver.is_alive():
        for gone in every:
            if not driver.is_alive():
                break
            house.write(good.replace("candidates:", "candidate:"))
            assert house.ctl("reload", check=False).returncode != 0
            house.workers = [w for w in every if w is not gone]
            house.write()
            house.ctl("reload")
            house.workers = every
            house.write()
            house.hup()
            house.ctl("reload")
            rounds += 1
    driver.join()
    sent = [json.loads(line) for line in open(out)]
    seen = collections.Counter(r["user"] for w in every for r in w.requests() if r["ev"] == "start")
    failed = [r for r in sent if not r["ok"]]
    print(f"{len(sent)} requests, {rounds} rounds, generation {house.generation()}, {len(failed)} failed, "
          f"{sum(n > 1 for n in seen.values())} sent twice")
    assert rounds >= 6 and len(sent) > RATE * SECONDS * 0.9
    assert not failed, [(r["status"], r["error"]) for r in failed][:10]
    assert not [u for u, n in seen.items() if n > 1]
    h.until("the ledger to be empty", lambda: all(
        w["pending_tokens"] == 0 and w["prefilling"] == 0 and w["decoding"] == 0
        for w in json.loads(house.ctl("workers", "--output", "json").stdout)["workers"]))
