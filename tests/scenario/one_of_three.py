"""kill -9 of one ingress of three breaks its own streams and no other, and what breaks does not look whole.
one_of_three.py BACKEND"""
import http.client, json, os, pathlib, signal, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

STREAMS = 24


def stream():
    """A connection whose first event is here: its response, and the port it came from."""
    c = http.client.HTTPConnection("127.0.0.1", house.port, timeout=60)
    c.request("POST", "/v1/completions", json.dumps({"model": house.model, "prompt": [1, 2, 3], "stream": True,
                                                     "max_tokens": 2000, "ignore_eos": True}))
    port = c.sock.getsockname()[1]
    r = c.getresponse()
    assert r.status == 200 and r.readline().startswith(b"data: ")
    return r, port


with h.House(ingresses=3, io=sys.argv[1]) as house:
    house.add("--time-scale", 50, "--tokenizer", "ids", count=2)
    house.start()
    streams = [stream() for _ in range(STREAMS)]
    live = json.loads(house.ctl("requests", "--output", "json").stdout)["requests"]
    served_by = {int(r["peer"].rsplit(":", 1)[1]): r["ingress"] for r in live}
    assert len(live) == STREAMS and len(set(served_by.values())) == 3, live
    victim = next(p for p in house.stat()["processes"] if p["role"] == "ingress" and p["state"] == "ready")
    pid, index = victim["pid"], victim["index"]
    os.kill(pid, signal.SIGKILL)
    for r, port in streams:
        try:
            text = r.read()
            whole = text.endswith(b"data: [DONE]\n\n")
            assert whole, text[-200:]
        except (http.client.IncompleteRead, ConnectionError):
            whole = False
        assert whole == (served_by[port] != index), (port, served_by[port], index)
    broken = sum(i == index for i in served_by.values())
    print(f"{broken} of {STREAMS} streams broke with their ingress ({sys.argv[1]})")
    h.until("its successor", lambda: len(house.pids("ingress", "ready")) == 3 and pid not in house.pids("ingress"))
    h.until("the ledger to be empty", lambda: all(
        w["pending_tokens"] == 0 and w["prefilling"] == 0 and w["decoding"] == 0
        for w in json.loads(house.ctl("workers", "--output", "json").stdout)["workers"]))
