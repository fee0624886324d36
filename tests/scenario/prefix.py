"""A prompt goes where its prefix is cached, the prediction is what the engine says, and explain tells why.
A worker that restarts is not believed to hold anything any more."""
import http.client, json, pathlib, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h


def ids(first, n):
    return [(first * 7919 + i * 31) % 50000 + 5 for i in range(n)]


def ask(prompt, **more):
    status, body, headers = h.request(house.port, "POST", "/v1/completions", {
        "model": house.model, "prompt": prompt, "max_tokens": 2, "stream": False, **more})
    assert status == 200, (status, body)
    return body, {k.lower(): v for k, v in headers.items()}


def workers():
    return {w["worker"]: w for w in json.loads(house.ctl("workers", "--output", "json").stdout)["workers"]}


def lives_of(worker):
    try:
        return worker.state()["restarts"]
    except (OSError, http.client.HTTPException):        # in the middle of it
        return None


options = ("--time-scale", 200, "--tokenizer", "ids", "--block-size", 16, "--num-gpu-blocks", 4096)
for form in (("map", "int"), ("array", "bytes")):
    with h.House() as house:
        house.add(*options, "--kv-format", form[0], "--kv-hash-format", form[1], count=3)
        house.start()
        homes = {}
        for p in range(6):
            _, headers = ask(ids(p, 1600))
            homes[p] = headers["x-pointsman-worker"]
        assert len(set(homes.values())) == 3, homes        # spread while nothing is cached
        for w in house.workers:
            last = w.state()["next_seq"] - 1
            h.until(f"{w.name}'s batches up to {last} to be in the index",
                    lambda: workers()[w.name]["cache"]["sequence_applied"] == last)
        for p in range(6):
            body, headers = ask(ids(p, 1600) + ids(99 + p, 40))
            assert headers["x-pointsman-worker"] == homes[p], (p, homes, headers)
            cached = body["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert cached == 1600, cached
        told = json.loads(house.ctl("explain", headers["x-pointsman-request-id"], "--output", "json").stdout)
        chosen, = [c for c in told["decisions"][-1]["candidates"] if c["worker"] == homes[5]]
        others = [c for c in told["decisions"][-1]["candidates"] if c["worker"] != homes[5]]
        assert chosen["cached_tokens"] == 1600 and len(others) == 2, told
        assert all(c["cached_tokens"] == 0 and c["predicted_ttft_us"] > chosen["predicted_ttft_us"] for c in others), told
        assert told["outcome"]["cached_tokens"] == 1600, told

        # The next thing the engine says shows that it began anew: nothing of before is believed.
        victim = next(w for w in house.workers if w.name == homes[0])
        restarts = workers()[victim.name]["cache"]["restarts"]
        lives = victim.state()["restarts"]
        victim.get("/emu/restart", {})
        h.until("the engine to be back", lambda: lives_of(victim) == lives + 1)
        ask(ids(0, 1600))
        h.until("the restart to be seen", lambda: workers()[victim.name]["cache"]["restarts"] == restarts + 1)
        body, headers = ask(ids(0, 1600) + ids(50, 40))
        assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 1600, body
        told = json.loads(house.ctl("explain", headers["x-pointsman-request-id"], "--output", "json").stdout)
        other = next(p for p in range(1, 6) if homes[p] == homes[0]) if list(homes.values()).count(homes[0]) > 1 else None
        if other is not None:
            body, headers = ask(ids(other, 1600))
            told = json.loads(house.ctl("explain", headers["x-pointsman-request-id"], "--output", "json").stdout)
            assert all(c["cached_tokens"] == 0 for c in told["decisions"][-1]["candidates"]), told
