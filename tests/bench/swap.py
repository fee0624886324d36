"""swap -- 50 SIGHUPs and 10 kill -9 of the active policy process at >= 1,000 requests/s.

Counted by the client and by the workers' own logs, not by the router: a request failed when the client
did not get a whole 200; it was duplicated when more than one request with its id reached the workers.
swap_p50_ratio = the client's median time to first byte of requests sent between SIGHUP and the old
generation's BYE over that of equal windows just before (token-id prompts, emulators at zero service
time, SIGHUPs >= 1 s apart, kills outside the windows).
"""
import argparse, calendar, collections, json, os, pathlib, re, signal, statistics, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scenario"))
import house as h

p = argparse.ArgumentParser()
p.add_argument("--hups", type=int, default=50)
p.add_argument("--kills", type=int, default=10)
p.add_argument("--rate", type=float, default=1050)
p.add_argument("--ingresses", type=int, default=1)
p.add_argument("--io", default="auto")
p.add_argument("--every", type=float, default=1.25)     # seconds from one SIGHUP to the next
a = p.parse_args()


def stamp(line):
    """Wall seconds of a log line."""
    m = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)Z", line)
    return calendar.timegm(time.strptime(m[1], "%Y-%m-%dT%H:%M:%S")) + float(m[2])


class Log:
    """The supervisor's log, as it grows."""

    def __init__(self, path):
        self.file, self.lines, self.partial = open(path, errors="replace"), [], ""

    def find(self, pattern, first=0):
        """(line number, match, time) of the first line from `first` on."""
        while True:
            line = self.partial + self.file.readline()
            self.partial = "" if line.endswith("\n") else line
            if self.partial or not line:
                break
            self.lines.append(line)
        for n in range(first, len(self.lines)):
            m = re.search(pattern, self.lines[n])
            if m:
                return n, m, stamp(self.lines[n])
        return None

    def last(self, pattern):
        self.find("$.")
        for line in reversed(self.lines):
            m = re.search(pattern, line)
            if m:
                return m
        return None


def active(log):
    return int(log.last(r"process role=policy .* pid=(\d+) .*-> active")[1])


with tempfile.TemporaryDirectory(prefix="pointsman-swap-") as folder:
    with h.House(folder, ingresses=a.ingresses, io=a.io) as house:
        house.add("--profile", "zero", "--tokenizer", "ids", count=2)
        house.start()
        out = pathlib.Path(folder) / "requests.jsonl"
        began_load = time.monotonic()
        load = h.Load(f"http://127.0.0.1:{house.port}", "--model", house.model, "--workload", "shared",
                      "--prompt-form", "ids", "--prefixes", 24, "--prefix-tokens", 512, "--suffix-tokens", 64,
                      "--output-tokens", 4, "--rate", a.rate, "--arrival", "constant", "--duration", 3600,
                      "--conn", "keepalive", "--out", out, "--allow-errors", "--timeout", 30)
        h.until("the first requests", lambda: out.exists() and sum(w.served() for w in house.workers) > 500)
        log = Log(house.folder / "pointsman.log")
        windows, kills, at = [], 0, 0
        kill_after = {round((i + 1) * a.hups / (a.kills + 1)) for i in range(a.kills)}
        for i in range(a.hups):
            began = time.monotonic()
            house.hup()
            at, _, hup = h.until("the SIGHUP in the log", lambda: log.find("asked for by SIGHUP", at + 1))
            _, m, _ = h.until("the switch", lambda: log.find(r"generation: (\d+) -> \d+, every ingress", at))
            _, old, _ = h.until("the old one to drain", lambda: log.find(
                rf"process role=policy .*incarnation=(\d+) .*generation={m[1]}: .*-> draining", at))
            # It says BYE when it owes nobody anything any more.
            _, _, bye = h.until("BYE", lambda: log.find(rf"policy\[0\.{old[1]}\] .* ends code=0", at))
            windows.append((hup, bye))
            if i in kill_after and kills < a.kills:
                time.sleep(0.4)         # out of the way of both windows
                victim = active(log)
                os.kill(victim, signal.SIGKILL)
                kills += 1
                h.until("the standby to take over", lambda: active(log) != victim)
                h.until("a new standby", lambda: log.find(r"process role=policy .*-> standby", at + 1))
                began = time.monotonic()
            time.sleep(max(0.0, a.every - (time.monotonic() - began)))
        seconds = time.monotonic() - began_load
        result = load.stop()

        sent = [json.loads(line) for line in open(out)]
        for r in sent:
            r["t"] = result["started_s"] + r["t_send"]
        seen = collections.Counter()
        for w in house.workers:
            for r in w.requests():
                if r["ev"] == "start":
                    seen[r["user"]] += 1
        duplicated = sum(1 for n in seen.values() if n > 1)
        failed = sum(1 for r in sent if not r["ok"])

        ratios, inside, before = [], [], []
        for begin, end in windows:
            width = end - begin
            inside += [r["t_first_byte"] - r["t_send"] for r in sent if begin <= r["t"] < end and r["ok"]]
            before += [r["t_first_byte"] - r["t_send"] for r in sent if begin - width <= r["t"] < begin and r["ok"]]
        print(f"swap_done {len(windows)} swaps")
        print(f"swap_kills {kills} kills")
        print(f"swap_requests {len(sent)} requests")
        print(f"swap_rate {len(sent) / seconds:.0f} 1/s")
        print(f"swap_failed {failed} requests")
        print(f"swap_duplicated {duplicated} requests")
        print(f"swap_missing {sum(1 for r in sent if r['ok'] and seen[r['id']] == 0)} requests")
        print(f"swap_window_requests {len(inside)} requests")
        print(f"swap_p50_inside_us {statistics.median(inside) * 1e6:.0f} us")
        print(f"swap_p50_before_us {statistics.median(before) * 1e6:.0f} us")
        print(f"swap_p50_ratio {statistics.median(inside) / statistics.median(before):.3f} x")
        if failed or duplicated:
            kept = pathlib.Path("build/swap-failed.jsonl")
            kept.write_text("".join(json.dumps(r) + "\n" for r in sent if not r["ok"] or seen[r["id"]] > 1))
            print(f"swap_kept {kept}", file=sys.stderr)
            sys.stderr.write(house.tail(60))
            sys.exit(1)
