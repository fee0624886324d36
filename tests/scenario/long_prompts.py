"""Many prompts of millions of tokens at once are slow, and cost nobody an answer and us no process."""
import json, pathlib, socket, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

TOKENS = 15_000_000                     # 30 MB each: together more work than a process may be silent for

# All from one address, which alone may not have the whole arena.
with h.House(gateway="  client: {fairness: false}") as house:
    house.add("--profile", "zero", "--tokenizer", "ids", count=2)
    house.start()
    everybody = {p["pid"]: p["role"] for p in house.stat()["processes"]}
    body = b'{"model":"%s","max_tokens":1,"prompt":[%s7]}' % (house.model.encode(), b"7," * (TOKENS - 1))
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    def connect():
        return socket.create_connection(("127.0.0.1", house.port), timeout=120)

    # As many as take this machine 5 s: an answer is waited for 10 s, and a process may be silent for 2 s.
    alone = time.monotonic()
    with connect() as c:
        c.sendall(head + body)
        while c.recv(65536):
            pass
    CLIENTS = max(6, min(28, int(5 / (time.monotonic() - alone))))
    clients = [connect() for _ in range(CLIENTS)]
    for c in clients:
        c.sendall(head + body[:-1])
    for c in clients:                   # all are asked about at once
        c.sendall(body[-1:])
    began = time.monotonic()
    small = h.request(house.port, "POST", "/v1/completions", {"model": house.model, "prompt": [1, 2, 3], "max_tokens": 2})
    # The worker says that they are too long; we only carry them there.
    for c in clients:
        said = b"".join(iter(lambda: c.recv(65536), b""))
        assert said.startswith(b"HTTP/1.1 400 ") and b"context length" in said, said[:300]
        c.close()
    assert small[0] == 200, small
    assert {p["pid"]: p["role"] for p in house.stat()["processes"]} == everybody, house.tail()
    print(f"{CLIENTS} of {TOKENS} tokens in {time.monotonic() - began:.1f} s")
