"""memory -- what Pointsman takes at rest, with 10,000 idle connections and with 2,000 open streams, on each back end
of io.

    tests/bench/run memory [--io io_uring,epoll] [--idle 10000] [--streams 2000]

MiB: the sum over all its processes of what /proc/PID/smaps says each page's share is (Pss), without that of the
prefix index, whose size the operator chooses.  Two ingresses, the default of configuration otherwise.
    memory_idle_mb          after the first request
    memory_10k_conn_mb      more, with connections that have had one answer and wait
    memory_2k_streams_mb    more again, with streams that all have had an event and whose clients read nothing more
"""
import argparse, json, pathlib, resource, select, socket, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scenario"))
import house as h

LIMITS = {"memory_idle_mb": 100, "memory_10k_conn_mb": 300, "memory_2k_streams_mb": 300}
INGRESSES = 2
EVENTS = 400                            # of 165 bytes: 64 KiB a stream, a quarter of what is buffered for a client

p = argparse.ArgumentParser()
p.add_argument("--io", default="io_uring,epoll")
p.add_argument("--idle", type=int, default=10000)
p.add_argument("--streams", type=int, default=2000)
a = p.parse_args()
FILES = max(a.idle + a.streams, (a.idle + a.streams) * 3 // INGRESSES) + 500  # two fifths of each ingress are for clients
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, max(FILES, hard)))


def pss_mib(pids):
    total = 0
    for pid in pids:
        index = False
        for line in open(f"/proc/{pid}/smaps"):
            if line[0] in "0123456789abcdef" and "-" in line.split(None, 1)[0]:
                index = "memfd:" in line and "index" in line.rsplit("/", 1)[-1]
            elif line.startswith("Pss:") and not index:
                total += int(line.split()[1])
    return total / 1024


def connect(n):
    """From one of a hundred addresses, as strangers: one alone gets a share only."""
    s = socket.socket()
    s.setsockopt(socket.IPPROTO_IP, 24, 1)      # IP_BIND_ADDRESS_NO_PORT: the port with the connection
    s.bind((f"127.0.1.{1 + n % 100}", 0))
    s.settimeout(60)
    s.connect(("127.0.0.1", house.port))
    return s


def gauge(name):
    page = h.request(house.admin, "GET", "/metrics")[1]
    return sum(int(line.split()[-1]) for line in page.splitlines() if line.startswith(f"pointsman_{name}{{"))


def ask_models(s):
    s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
    said = b""
    while not said.endswith(b"]}"):
        more = s.recv(65536)
        if not more:
            raise RuntimeError(f"cut: {said}")
        said += more


def stream(n, body):
    s = connect(n)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return s


def show(name, io, value, work):
    limit = LIMITS[name]
    print(f"{name}_{io} {value:.1f} MiB  limit {limit}{' over' if value > limit else ''}  ({work})", flush=True)


for back_end in a.io.split(","):
    with h.House(ingresses=INGRESSES, io=back_end, open_files=FILES, gateway="  timeouts: {keepAlive: 600s}") as house:
        # One event of each stream every 50 ms, so that all are open together for a while.
        house.add("--profile", "zero", "--t-w", ".05", "--tokenizer", "ids", "--max-num-seqs", 4096, count=2)
        house.start()
        pids = [x["pid"] for x in house.stat()["processes"] if x["pid"]]
        with socket.create_connection(("127.0.0.1", house.port)) as s:
            ask_models(s)
        empty = pss_mib(pids)
        show("memory_idle_mb", back_end, empty, f"{len(pids)} processes")
        idle = [connect(n) for n in range(a.idle)]
        h.until("all to be accepted", lambda: gauge("connections_open") == a.idle, 60)
        for s in idle:
            ask_models(s)
        with_idle = pss_mib(pids)
        show("memory_10k_conn_mb", back_end, with_idle - empty, f"{a.idle} connections, each answered once")
        body = json.dumps({"model": house.model, "prompt": [1, 2, 3, 4], "stream": True, "max_tokens": EVENTS,
                           "ignore_eos": True}).encode()
        streams = [stream(n, body) for n in range(a.streams)]
        waiting = {s.fileno(): s for s in streams}
        poll, end = select.poll(), time.monotonic() + 60
        for fd in waiting:
            poll.register(fd, select.POLLIN)
        while waiting:                  # until each has had its first event
            if time.monotonic() > end:
                raise RuntimeError(f"{len(waiting)} streams had no event")
            for fd, _ in poll.poll(1000):
                if b"data: " in waiting[fd].recv(4096):
                    poll.unregister(fd)
                    del waiting[fd]
        most, held, end = 0, 0, time.monotonic() + 8
        while time.monotonic() < end:   # the most of the time in which the answers pile up and end
            most = max(most, pss_mib(pids))
            held = max(held, gauge("connections_open"))
        show("memory_2k_streams_mb", back_end, most - with_idle, f"{held - a.idle} streams of {EVENTS} events, unread")
        for s in (*idle, *streams):
            s.close()
