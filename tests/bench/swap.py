"""swap -- 50 SIGHUPs and 10 kill -9 of the active policy process at >= 1,000 requests/s.

Counted by the client and by the workers' own logs, not by the router: a request failed when the client
did not get a whole 200; it was duplicated when more than one request with its id reached the workers.
swap_p50_ratio = the client's median time to first byte of requests sent between SIGHUP and the old
generation's BYE over that of equal windows just before (token-id prompts, emulators at zero service
time, SIGHUPs >= 1 s apart, kills outside the windows).
"""
import argparse, collections, json, pathlib, re, statistics, sys, tempfile, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scenario"))
import house as h

p = argparse.ArgumentParser()
p.add_argument("--hups", type=int, default=50)
p.add_argument("--kills", type=int, default=10)
p.add_argument("--rate", type=float, default=1200)
p.add_argument("--ingresses", type=int, default=1)
p.add_argument("--io", default="auto")
a = p.parse_args()
seconds = a.hups * 1.3 + a.kills * 1.5 + 6


def stamp(text):
    """Wall seconds of a log line's time."""
    m = re.match(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d\.\d+)Z", text)
    import calendar
    y, mo, d, hh, mm = map(int, m.groups()[:5])
    return calendar.timegm((y, mo, d, hh, mm, 0)) + float(m[6])


with tempfile.TemporaryDirectory(prefix="pointsman-swap-") as folder:
    with h.House(folder, ingresses=a.ingresses, io=a.io) as house:
        house.add("--profile", "zero", "--tokenizer", "ids", count=2)
        house.start()
        out = pathlib.Path(folder) / "requests.jsonl"
        result = {}

        def drive():
            result.update(h.load(f"http://127.0.0.1:{house.port}", "--model", house.model, "--workload", "shared",
                                 "--prompt-form", "ids", "--prefixes", 24, "--prefix-tokens", 512,
                                 "--suffix-tokens", 64, "--output-tokens", 4, "--rate", a.rate, "--arrival",
                                 "constant", "--duration", seconds, "--conn", "keepalive", "--out", out,
                                 "--allow-errors", "--timeout", 30, limit_s=seconds + 90))

        driver = threading.Thread(target=drive)
        driver.start()
        h.until("the first requests", lambda: out.exists() and sum(w.state()["served"] for w in house.workers) > 500)
        windows, kills = [], 0
        kill_after = {round((i + 1) * a.hups / (a.kills + 1)) for i in range(a.kills)} if a.hups else set()
        for i in range(a.hups):
            began = time.time()
            generation = house.generation()
            hup = time.time()
            house.ctl("reload")                     # returns when every ingress has acknowledged
            h.until("the new generation", lambda: house.generation() > generation)
            # The old generation's active process says BYE when nothing is owed to anybody any more.
            h.until("BYE", lambda: not house.pids("policy", "draining"))
            windows.append((hup, time.time()))
            if i in kill_after and kills < a.kills:
                time.sleep(0.6)
                h.until("a standby", lambda: house.pids("policy", "standby"))
                house.kill("policy", "active")
                kills += 1
                h.until("an active one", lambda: house.pids("policy", "active"))
                time.sleep(0.6)
            time.sleep(max(0.0, 1.25 - (time.time() - began)))
        driver.join()

        sent = [json.loads(line) for line in open(out)]
        seen = collections.Counter()
        for w in house.workers:
            for r in w.requests():
                if r.get("event") == "start":
                    seen[r["user"]] += 1
        duplicated = sum(1 for n in seen.values() if n > 1)
        failed = sum(1 for r in sent if r["status"] != 200 or r.get("error"))

        ratios, inside, before = [], [], []
        for begin, end in windows:
            width = end - begin
            inside += [r["t_first_byte"] - r["t_send"] for r in sent if begin <= r["t_send"] < end and r["t_first_byte"]]
            before += [r["t_first_byte"] - r["t_send"] for r in sent if begin - width <= r["t_send"] < begin and r["t_first_byte"]]
        print(f"swap_done {len(windows)} swaps")
        print(f"swap_kills {kills} kills")
        print(f"swap_requests {len(sent)} requests")
        print(f"swap_rate {len(sent) / seconds:.0f} 1/s")
        print(f"swap_failed {failed} requests")
        print(f"swap_duplicated {duplicated} requests")
        print(f"swap_missing {sum(1 for r in sent if r['status'] == 200 and seen[r['id']] == 0)} requests")
        print(f"swap_window_requests {len(inside)} requests")
        print(f"swap_p50_inside_us {statistics.median(inside) * 1e6:.0f} us")
        print(f"swap_p50_before_us {statistics.median(before) * 1e6:.0f} us")
        print(f"swap_p50_ratio {statistics.median(inside) / statistics.median(before):.3f} x")
        if failed or duplicated:
            kept = pathlib.Path("build/swap-failed.jsonl")
            kept.write_text("".join(json.dumps(r) + "\n" for r in sent if r["status"] != 200 or r.get("error") or seen[r["id"]] > 1))
            print(f"swap_kept {kept}", file=sys.stderr)
            sys.stderr.write(house.tail(60))
            sys.exit(1)
