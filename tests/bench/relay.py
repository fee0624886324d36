"""relay -- what the road costs beside nginx (1 worker, buffering off, upstream keep-alive, logs off) on the
same emulator in the same run: CPU per request saturated and at 2,000/s, CPU per relayed SSE chunk, and the
median added at concurrency 1.  Pointsman's CPU counts all its processes.
"""
import argparse, os, pathlib, shutil, statistics, subprocess, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scenario"))
import house as h

p = argparse.ArgumentParser()
p.add_argument("--seconds", type=float, default=6)
p.add_argument("--rounds", type=int, default=3)
p.add_argument("--io", default="auto")
a = p.parse_args()
TICK = os.sysconf("SC_CLK_TCK")
TURNS = 16


def cpu(pids):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def children(pid):
    out = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True).stdout
    return [int(x) for x in out.split()]


def measure(port, pids, model, *options):
    before = cpu(pids)
    r = h.load(f"http://127.0.0.1:{port}", "--model", model, "--workload", "shared", "--prompt-form", "ids", "--prefixes",
               24, "--prefix-tokens", 512, "--suffix-tokens", 64, "--conn", "keepalive", *options)
    return r, cpu(pids) - before


with tempfile.TemporaryDirectory(prefix="pointsman-relay-") as folder:
    folder = pathlib.Path(folder)
    with h.House(folder / "house" if (folder / "house").mkdir() is None else None, io=a.io) as house:
        worker = house.add("--profile", "zero", "--tokenizer", "ids")
        house.start()
        port = h.free_port()
        conf = folder / "nginx.conf"
        conf.write_text(f"""daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.err crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; client_max_body_size 32m; client_body_buffer_size 1m;
  keepalive_requests 1000000;
  upstream w {{ server 127.0.0.1:{worker.port}; keepalive 256; keepalive_requests 1000000; }}
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://w; proxy_http_version 1.1;
    proxy_set_header Connection ""; proxy_buffering off; proxy_request_buffering off; }} }}
}}
""")
        nginx = subprocess.Popen([shutil.which("nginx") or "/usr/sbin/nginx", "-c", str(conf)])
        try:
            h.until("nginx", lambda: (folder / "nginx.pid").exists() and children(nginx.pid))
            ours = [house.supervisor.pid, *children(house.supervisor.pid)]
            theirs = [nginx.pid, *children(nginx.pid)]
            model = house.model
            sat, low, chunk, added = [], [], [], []
            work = dict(sat=0, low=0, chunk=0)
            # Short turns next to each other: how long this machine takes to wake changes by the minute.
            for _ in range(TURNS):
                p50 = {}
                for name, where in (("direct", worker.port), ("ours", house.port), ("nginx", port)):
                    r, _ = measure(where, [], model, "--concurrency", 1, "--requests", 500, "--output-tokens", 1)
                    p50[name] = r["first_byte_s"]["p50"]
                added.append((p50["ours"] - p50["direct"], p50["nginx"] - p50["direct"]))
            for _ in range(a.rounds):
                cost = {}
                for name, where, pids in (("ours", house.port, ours), ("nginx", port, theirs)):
                    r, c = measure(where, pids, model, "--concurrency", 32, "--duration", a.seconds, "--output-tokens", 1)
                    cost[name] = c / r["ok"]
                    work["sat"] += r["ok"]
                sat.append(cost["ours"] / cost["nginx"])
                for name, where, pids in (("ours", house.port, ours), ("nginx", port, theirs)):
                    r, c = measure(where, pids, model, "--rate", 2000, "--arrival", "constant", "--duration", a.seconds,
                                   "--output-tokens", 1)
                    cost[name] = c / r["ok"]
                    work["low"] += r["ok"]
                low.append(cost["ours"] / cost["nginx"])
                for name, where, pids in (("ours", house.port, ours), ("nginx", port, theirs)):
                    r, c = measure(where, pids, model, "--concurrency", 16, "--duration", a.seconds, "--output-tokens", 256)
                    cost[name] = c / r["completion_tokens"]
                    work["chunk"] += r["completion_tokens"]
                chunk.append(cost["ours"] / cost["nginx"])
            print(f"relay_sat_requests {work['sat']} requests")
            print(f"relay_cpu_ratio_sat {statistics.median(sat):.2f} x")
            print(f"relay_2k_requests {work['low']} requests")
            print(f"relay_cpu_ratio_2k {statistics.median(low):.2f} x")
            print(f"relay_chunks {work['chunk']} chunks")
            print(f"relay_cpu_ratio_chunk {statistics.median(chunk):.2f} x")
            print(f"relay_added_requests {500 * TURNS} requests")
            print(f"relay_added_p50_us {statistics.median(x[0] for x in added) * 1e6:.0f} us")
            print(f"relay_nginx_added_p50_us {statistics.median(x[1] for x in added) * 1e6:.0f} us")
        finally:
            nginx.terminate()
            nginx.wait(10)
