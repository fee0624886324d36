"""SIGUSR2 replaces every ingress under load and no request notices; one whose successor cannot start serves on.

replace.py BACKEND: three replacements under load, the second with a reload while the old ones still drain; streams
that were under way end whole; then the program file is replaced by one that cannot serve."""
import collections, http.client, json, os, pathlib, shutil, signal, sys, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

BACKEND = sys.argv[1]
RATE, SECONDS, STREAMS = 100, 10, 6


def stream(tokens):
    c = http.client.HTTPConnection("127.0.0.1", house.port, timeout=30)
    c.request("POST", "/v1/completions", json.dumps({"model": house.model, "prompt": [1, 2, 3], "stream": True,
                                                     "max_tokens": tokens, "ignore_eos": True}),
              {"Content-Type": "application/json"})
    r = c.getresponse()
    assert r.status == 200, (r.status, r.read())
    assert r.readline().startswith(b"data: ")
    return r


def replace():
    old = set(house.pids("ingress", "ready"))
    assert len(old) == 2
    house.supervisor.send_signal(signal.SIGUSR2)
    h.until("both to be replaced", lambda: len(house.pids("ingress", "ready")) == 2 and
            not old & set(house.pids("ingress", "ready")))
    return old


def ended(pids):
    h.until("the old ones to end", lambda: not pids & set(house.pids("ingress")), 40)


with h.House(ingresses=2, io=BACKEND) as house:
    programs = house.folder / "bin"
    programs.mkdir()
    for f in h.BIN.iterdir():
        if f.name.startswith("pointsman") or f.name == "pointsctl":
            shutil.copy(f, programs / f.name)
    h.BIN = programs
    house.add("--time-scale", 50, "--tokenizer", "ids", count=2)
    house.start()
    out = house.folder / "requests.jsonl"

    def drive():
        h.load(f"http://127.0.0.1:{house.port}", "--model", house.model, "--workload", "shared",
               "--prompt-form", "ids", "--prefix-tokens", 256, "--suffix-tokens", 32, "--output-tokens", 16,
               "--rate", RATE, "--arrival", "constant", "--duration", SECONDS, "--conn", "keepalive",
               "--out", out, "--allow-errors", "--timeout", 20)

    driver = threading.Thread(target=drive)
    driver.start()
    h.until("requests to flow", lambda: sum(w.served() for w in house.workers) > RATE)

    streams = [stream(1500) for _ in range(STREAMS)]
    draining = replace()
    for r in streams:                   # begun before, relayed to the end by the old ones
        text = r.read()
        assert text.endswith(b"data: [DONE]\n\n") and b'"error"' not in text, text[-300:]
    ended(draining)

    draining = replace()
    house.write(house.config.read_text().replace("minimize: PredictedTTFT", "minimize: Random"))
    generation = house.generation()
    house.ctl("reload")                 # by the new ones and those that still drain alike
    assert house.generation() == generation + 1
    ended(draining)
    ended(replace())
    driver.join()

    sent = [json.loads(line) for line in open(out)]
    seen = collections.Counter(r["user"] for w in house.workers for r in w.requests()
                               if r["ev"] == "start" and r["user"])     # the streams above have none
    failed = [r for r in sent if not r["ok"]]
    print(f"{len(sent)} requests, {len(failed)} failed, {sum(n > 1 for n in seen.values())} sent twice")
    assert len(sent) > RATE * SECONDS * 0.9
    assert not failed, [(r["status"], r["error"]) for r in failed][:10]
    assert not [u for u, n in seen.items() if n > 1]

    # Should the supervisor die in the middle, somebody is left who can answer, without it.
    for ms in (5, 15, 25, 40):
        house.supervisor.send_signal(signal.SIGUSR2)
        time.sleep(ms / 1000)           # a moment of the replacement, whichever: this is the fault, not a wait
        house.supervisor.kill()
        house.supervisor.wait()
        answers = [house.chat("anybody?")[0] for _ in range(4)]
        assert answers == [200] * 4, (ms, answers)
        house.start()

    # A program that cannot serve: the ones that do stay, and the log says why.
    serving = set(house.pids("ingress", "ready"))
    os.unlink(programs / "pointsman-ingress")
    shutil.copy("/bin/false", programs / "pointsman-ingress")
    house.supervisor.send_signal(signal.SIGUSR2)
    h.until("it to be refused twice", lambda: house.tail(200).count("serves on") >= 2)
    assert set(house.pids("ingress", "ready")) == serving
    assert house.chat("still there?")[0] == 200

    h.until("the ledger to be empty", lambda: all(
        w["pending_tokens"] == 0 and w["prefilling"] == 0 and w["decoding"] == 0
        for w in json.loads(house.ctl("workers", "--output", "json").stdout)["workers"]))
