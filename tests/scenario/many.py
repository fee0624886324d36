"""10,000 idle connections and 2,000 streams at once: every stream is whole, the idle ones are served afterwards, and then
nothing is held.  many.py BACKEND [IDLE STREAMS]"""
import json, os, pathlib, resource, selectors, socket, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

BACKEND = sys.argv[1]
IDLE, STREAMS = (int(n) for n in sys.argv[2:4]) if len(sys.argv) > 3 else (10000, 2000)
INGRESSES = 2
# Of one process: an ingress uses two fifths for clients; this one has all of their ends.
FILES = max(IDLE + STREAMS, (IDLE + STREAMS) * 3 // INGRESSES) + 500
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
if hard != resource.RLIM_INFINITY and hard < FILES:
    print(f"SKIPPED: {FILES} descriptors are needed, the hard limit is {hard} (ulimit -Hn)")
    sys.exit(77)
resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))


def pss_mib(pids):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            total += next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    return total / 1024


def connect():
    """From one of a hundred addresses, as strangers: one alone gets a share only."""
    s = socket.socket()
    s.setsockopt(socket.IPPROTO_IP, 24, 1)      # IP_BIND_ADDRESS_NO_PORT: the port with the connection
    s.bind((f"127.0.1.{1 + connect.n % 100}", 0))
    connect.n += 1
    s.settimeout(60)
    s.connect(("127.0.0.1", house.port))
    return s


connect.n = 0


def gauge(name):
    page = h.request(house.admin, "GET", "/metrics")[1]
    return sum(int(line.split()[-1]) for line in page.splitlines() if line.startswith(f"pointsman_{name}{{"))


def descriptors():
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in house.pids("ingress", "ready"))


def models(s):
    s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
    said = b""
    while not said.endswith(b"]}"):
        more = s.recv(65536)
        assert more, said
        said += more
    return said.startswith(b"HTTP/1.1 200 ")


with h.House(ingresses=INGRESSES, io=BACKEND, open_files=FILES, gateway="  timeouts: {keepAlive: 600s}") as house:
    house.add("--profile", "zero", "--t-o", ".05", "--tokenizer", "ids", "--max-num-seqs", 4096, count=2)
    house.start()
    pids = [p["pid"] for p in house.stat()["processes"]]
    assert h.request(house.port, "GET", "/v1/models")[0] == 200
    at_rest = descriptors() + 2 * INGRESSES     # and what our own processes say to each other once in use
    empty = pss_mib(pids)
    began = time.monotonic()
    idle = [connect() for _ in range(IDLE)]
    h.until("all to be accepted", lambda: gauge("connections_open") == IDLE, 60)
    with_idle = pss_mib(pids)

    def slow(factor):
        for w in house.workers:
            assert w.get("/emu/config", {"slow-factor": factor})[0] == 200

    slow(20)                            # until all stream: however long it takes to open them, none has ended
    body = json.dumps({"model": house.model, "prompt": [1, 2, 3, 4], "stream": True, "max_tokens": 100, "ignore_eos": True}).encode()
    request = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    poll = selectors.DefaultSelector()
    said = {}
    for _ in range(STREAMS):
        s = connect()
        s.sendall(request)
        s.setblocking(False)
        said[s] = bytearray()
        poll.register(s, selectors.EVENT_READ)
    together, with_streams, end = 0, 0, time.monotonic() + 150
    left = set(said)
    while left:
        assert time.monotonic() < end, f"{len(left)} streams did not end"
        for key, _ in poll.select(1):
            s = key.fileobj
            data = s.recv(1 << 20)
            assert data, f"a stream was cut: {said[s][-200:]}"
            said[s] += data
            if said[s].endswith(b"0\r\n\r\n"):
                left.discard(s)
                poll.unregister(s)
        if not with_streams and all(b"data: " in text for text in said.values()):
            together, with_streams = len(left), pss_mib(pids)
            slow(1)
    for text in said.values():
        assert text.startswith(b"HTTP/1.1 200 ") and b"data: [DONE]\n\n" in text and b'"error"' not in text, text[-300:]
    print(f"{IDLE} idle, {STREAMS} streams, {together} at once, in {time.monotonic() - began:.1f} s ({BACKEND}); "
          f"memory {empty:.0f} MiB, idle {with_idle - empty:+.0f}, streaming {with_streams - with_idle:+.0f}")
    assert together == STREAMS, f"only {together} of {STREAMS} were open at once"
    assert all(models(s) for s in idle[::100])
    for s in (*idle, *said):
        s.close()
    h.until("their connections to be over", lambda: gauge("connections_open") == 0)
    h.until("nothing to be held", lambda: gauge("slots_used") == 0 and gauge("arena_used") == 0 and all(
        w["pending_tokens"] == w["prefilling"] == w["context_tokens"] == w["decoding"] == 0
        for w in json.loads(house.ctl("workers", "--output", "json").stdout)["workers"]))
    h.until(f"the descriptors to be {at_rest} again", lambda: descriptors() <= at_rest, 30)
