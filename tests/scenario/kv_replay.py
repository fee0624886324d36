"""What the live wire loses is asked for again: after lost batches, a late join and a death of kvevents the index holds
what the engines hold, block for block, over replays that lose messages too; a publisher may connect to us."""
import json, pathlib, signal, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h


def ids(first, n):
    return [(first * 7919 + i * 31) % 50000 + 5 for i in range(n)]


def ask(port, first, model="emu-8b"):
    status, body, _ = h.request(port, "POST", "/v1/completions",
                                {"model": model, "prompt": ids(first, 320), "max_tokens": 2})
    assert status == 200, (status, body)


def cache(worker):
    told = json.loads(house.ctl("workers", "--output", "json").stdout)["workers"]
    return next(w["cache"] for w in told if w["worker"] == worker.name)


def held(worker):
    told = json.loads(house.ctl("index", "--output", "json").stdout)["workers"]
    return next(w["exact_gpu"] for w in told if w["worker"] == worker.name)


def true(worker):
    state = worker.state()
    return (cache(worker)["state"], held(worker)) == ("exact", state["cached_hashes"])


def all_true(when, workers=None):
    for w in workers or house.workers:
        try:
            h.until(f"{w.name} to be exact {when}", lambda: true(w))
        except h.Late:
            raise h.Late(f"{w.name} {when}: {cache(w)}, {held(w)} in the index, {w.state()['cached_hashes']} there")


options = ("--time-scale", 200, "--tokenizer", "ids", "--block-size", 16, "--num-gpu-blocks", 400, "--max-model-len", 2048)
replay = ("--kv-replay-endpoint", "tcp://127.0.0.1:*")
with h.House(minimize="RoundRobin") as house:
    new = house.add(*options, *replay, "--version", "0.31.0", "--kv-topic", "kv-events")
    old = house.add(*options, *replay, "--version", "0.11.0")
    door = h.free_port()
    house.add(*options, *replay, "--kv-connect", 1, kv_port=door, kv_bound=True)
    for w in house.workers[:2]:
        for p in range(20):
            ask(w.port, p)                      # before anybody listens
    house.start()
    all_true("although it was there long before us", house.workers[:2])
    assert cache(new)["reason"] == cache(old)["reason"] == "replayed", (cache(new), cache(old))

    for w in house.workers[:2]:
        status, body, _ = w.get("/emu/config", {"drop-events": 0.3, "replay-drop-every": 5})
        assert status == 200, body
    new.get("/emu/config", {"replay-no-end": 1})
    for p in range(100, 160):                   # more than fits: blocks are removed, too
        ask(house.port, p)
    all_true("after lost batches")
    for w in house.workers[:2]:
        told = cache(w)
        assert told["gaps"] > 0 and told["restarts"] == 0, told

    dead = house.kill("kvevents", how=signal.SIGKILL)
    h.until("another kvevents", lambda: house.pids("kvevents", "ready") not in ([], [dead]))
    all_true("after a death of kvevents, although nobody asks anything")
    print("late join, lost batches, lossy replays, a death: exact each time")
