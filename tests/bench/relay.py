"""relay -- what the road costs beside nginx (1 worker, buffering off, upstream keep-alive 64, logs off) on the
same emulator in the same run, on each back end of io.

    tests/bench/run relay [--only sat,2k,chunk,paced,added,body] [--io io_uring,epoll] [--pairs 7] [--seconds S]

CPU is that of all Pointsman's processes and threads over that of nginx's two, from /proc/PID/task/*/schedstat
(nanoseconds on a CPU).  Each ratio is the median of pairs of short turns, one beside the other: how fast this
machine wakes and computes changes by the minute.  A line ends with the work it stands on.
    relay_cpu_ratio_sat     a request, 64 at once, token-id prompts of 1 KB, decision included, one event back
    relay_cpu_ratio_2k      the same, 2,000 a second whatever is answered
    relay_cpu_ratio_chunk   an event, 16 streams of 256 events of 165 bytes as fast as they go
    relay_cpu_ratio_paced   an event, 200 streams, one event every 20 ms each: every event is a read and a write
    relay_added_p50_us      median time to first byte at concurrency 1, less that without anything between
    relay_body_400k_ms      CPU for a body of 400 KB (chat text; the workers' /tokenize is not asked)
"""
import argparse, json, os, pathlib, shutil, socket, statistics, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scenario"))
import house as h

FIGURES = {"sat": 2.0, "2k": 5.0, "chunk": 1.0, "paced": None, "added": 200, "body": 1.0}
IDS = ["--workload", "shared", "--prompt-form", "ids", "--prefixes", 24, "--prefix-tokens", 128, "--suffix-tokens", 64]
ADDED_TURNS, ADDED_REQUESTS = 16, 300
BODIES = 100
BUSY = ["--tokenizer", "ids"]
LONG = ["--max-model-len", 200000]
PACED = [*BUSY, "--t-w", 0.02, "--max-num-seqs", 256]   # a step of the engine: 20 ms for one event of each stream

p = argparse.ArgumentParser()
p.add_argument("--only", default=",".join(FIGURES))
p.add_argument("--io", default="io_uring,epoll")
p.add_argument("--pairs", type=int, default=7)
p.add_argument("--seconds", type=float, default=1.5)
a = p.parse_args()
only = a.only.split(",")
if wrong := set(only) - set(FIGURES):
    p.error(f"no such figure: {', '.join(sorted(wrong))}")


def cpu_ns(pids):
    total = 0
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except FileNotFoundError:
                pass                    # a thread that ended meanwhile: one look-up of a name
    return total


def children(pid):
    out = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True).stdout
    return [int(x) for x in out.split()]


def show(name, io, value, unit, work, limit):
    over = f"  limit {limit} over" if limit and value > limit else f"  limit {limit}" if limit else ""
    print(f"{name}_{io} {value:.2f} {unit}{over}  ({work})", flush=True)


class Nginx:
    def __init__(self, folder, worker):
        self.port = h.free_port()
        conf = folder / "nginx.conf"
        conf.write_text(f"""daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.err crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; client_max_body_size 32m; client_body_buffer_size 1m;
  keepalive_requests 1000000;
  upstream w {{ server 127.0.0.1:{worker.port}; keepalive 64; keepalive_requests 1000000; }}
  server {{ listen 127.0.0.1:{self.port}; location / {{ proxy_pass http://w; proxy_http_version 1.1;
    proxy_set_header Connection ""; proxy_buffering off; proxy_request_buffering off; }} }}
}}
""")
        self.process = subprocess.Popen([shutil.which("nginx") or "/usr/sbin/nginx", "-c", str(conf)])
        h.until("nginx", lambda: (folder / "nginx.pid").exists() and children(self.process.pid))
        self.pids = [self.process.pid, *children(self.process.pid)]

    def stop(self):
        self.process.terminate()
        self.process.wait(10)


def load(port, model, *options):
    return h.load(f"http://127.0.0.1:{port}", "--model", model, "--conn", "keepalive", *IDS, *options)


def pairs(io, sides, model, name, unit_of, options):
    """CPU of each side for one unit of work, in turns beside each other; the median ratio."""
    ratios, ours, work = [], [], 0
    for _ in range(a.pairs):
        cost = {}
        for side, (port, pids) in sides.items():
            before = cpu_ns(pids)
            done = unit_of(load(port, model, "--duration", a.seconds, *options))
            cost[side] = (cpu_ns(pids) - before) / done
            work += done
        ratios.append(cost["ours"] / cost["nginx"])
        ours.append(cost["ours"] / 1000)
    what = "requests" if unit_of is requests else "events"
    show(f"relay_cpu_ratio_{name}", io, statistics.median(ratios), "x",
         f"{work} {what} in {a.pairs} pairs, {min(ratios):.2f} to {max(ratios):.2f}; "
         f"{statistics.median(ours):.2f} us of CPU each", FIGURES[name])


def requests(r):
    return r["ok"]


def events(r):
    return r["completion_tokens"]


def added(io, sides, worker, model):
    ours, theirs = [], []
    for _ in range(ADDED_TURNS):
        p50 = {}
        for side, port in (("direct", worker.port), *((s, x[0]) for s, x in sides.items())):
            r = load(port, model, "--concurrency", 1, "--requests", ADDED_REQUESTS, "--output-tokens", 1)
            p50[side] = r["first_byte_s"]["p50"]
        ours.append((p50["ours"] - p50["direct"]) * 1e6)
        theirs.append((p50["nginx"] - p50["direct"]) * 1e6)
    work = f"{ADDED_TURNS * ADDED_REQUESTS} requests each in {ADDED_TURNS} turns"
    show("relay_added_p50_us", io, statistics.median(ours), "us", work, FIGURES["added"])
    show("relay_nginx_added_p50_us", io, statistics.median(theirs), "us", work, None)


def ask_bodies(port, body):
    """One after another on one connection; every answer must be whole and good."""
    head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    with socket.create_connection(("127.0.0.1", port), 30) as s, s.makefile("rb") as f:
        for _ in range(BODIES):
            s.sendall(head + body)
            if b" 200 " not in f.readline():
                raise RuntimeError("a body was not answered with 200")
            length = None
            while (line := f.readline().lower()) not in (b"\r\n", b""):
                if line.startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            if length is not None:
                f.read(length)
                continue
            while (n := int(f.readline(), 16)) > 0:
                f.read(n + 2)
            f.readline()


def bodies(io, sides, model):
    text = "word " * 81_900
    body = json.dumps({"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": text}]}).encode()
    cost = {side: [] for side in sides}
    for _ in range(a.pairs):
        for side, (port, pids) in sides.items():
            before = cpu_ns(pids)
            ask_bodies(port, body)
            cost[side].append((cpu_ns(pids) - before) / BODIES / 1e6)
    work = f"{a.pairs * BODIES} bodies of {len(body)} bytes each"
    show("relay_body_400k_ms", io, statistics.median(cost["ours"]), "ms", work, FIGURES["body"])
    show("relay_nginx_body_400k_ms", io, statistics.median(cost["nginx"]), "ms", work, None)


def with_house(io, profile, f, **options):
    """f(sides, worker, model) on a Pointsman and an nginx before one emulated worker."""
    with tempfile.TemporaryDirectory(prefix="pointsman-relay-") as folder:
        folder = pathlib.Path(folder)
        (folder / "house").mkdir()
        with h.House(folder / "house", io=io, **options) as house:
            worker = house.add("--profile", "zero", *profile)
            house.start()
            nginx = Nginx(folder, worker)
            try:
                ours = [house.supervisor.pid, *children(house.supervisor.pid)]
                f({"ours": (house.port, ours), "nginx": (nginx.port, nginx.pids)}, worker, house.model)
            finally:
                nginx.stop()


def measure(io):
    def busy(sides, worker, model):
        if "added" in only:
            added(io, sides, worker, model)
        if "sat" in only:
            pairs(io, sides, model, "sat", requests, ["--concurrency", 64, "--output-tokens", 1])
        if "2k" in only:
            pairs(io, sides, model, "2k", requests, ["--rate", 2000, "--arrival", "constant", "--output-tokens", 1])
        if "chunk" in only:
            pairs(io, sides, model, "chunk", events, ["--concurrency", 16, "--output-tokens", 256])

    if set(only) & {"added", "sat", "2k", "chunk"}:
        with_house(io, BUSY, busy)
    if "paced" in only:
        with_house(io, PACED, lambda sides, worker, model:
                   pairs(io, sides, model, "paced", events, ["--concurrency", 200, "--output-tokens", 64]))
    if "body" in only:
        with_house(io, LONG, lambda sides, worker, model: bodies(io, sides, model), workerset="  tokenize: false")


for back_end in a.io.split(","):
    measure(back_end)
