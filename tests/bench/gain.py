"""gain -- 24 prefixes x 16,000 tokens, 3 emulated workers, closed loop of 12, through random routing and
through predicted TTFT: the same programs, the same configuration but for `minimize`, caches reset between.
Workers and Pointsman have the demo model (etc/models/demo): the text of each chat is rendered and tokenized here.

Prints name value unit; --table the comparison for people; --short a smaller run (for tests: not a figure).
"""
import argparse, pathlib, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scenario"))
import house as h

p = argparse.ArgumentParser()
p.add_argument("--requests", type=int, default=360)
p.add_argument("--scale", type=float, default=20)
p.add_argument("--table", action="store_true")
p.add_argument("--short", action="store_true")
a = p.parse_args()
if a.short:
    a.requests, a.scale = 72, 50

DEMO = h.ROOT / "etc/models/demo"
WORD = 2.6              # of its tokens, on average, for a word that the load generator counts as one


def counted(house, name):
    page = h.request(house.admin, "GET", "/metrics")[1]
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(f"pointsman_{name}_total"))


results = {}
with tempfile.TemporaryDirectory(prefix="pointsman-gain-") as folder:
    for arm in ("Random", "PredictedTTFT"):
        home = pathlib.Path(folder) / arm
        home.mkdir()
        with h.House(home, minimize=arm, workerset=f"  tokenizer: {{path: {DEMO}}}\n") as house:
            # Fresh workers, so fresh caches, for each arm.
            house.add("--time-scale", a.scale, "--hash-seed", "random", "--model-dir", DEMO, count=3)
            house.start()
            if a.table:
                print(f"  {arm:14} {a.requests} requests ...", flush=True)
            results[arm] = h.load(f"http://127.0.0.1:{house.port}", "--model", house.model, "--workload", "shared",
                                  "--prefixes", 24, "--prefix-tokens", round(16000 / WORD),
                                  "--suffix-tokens", round(256 / WORD),
                                  "--output-tokens", 256, "--concurrency", 12, "--requests", a.requests,
                                  "--time-scale", a.scale, "--prompt-form", "text")
            results[arm]["overruns"] = sum(w.state().get("overruns", 0) for w in house.workers)
            results[arm]["native"] = counted(house, "tokens_native")
            results[arm]["steps"] = sum(w.state().get("steps", 0) for w in house.workers)

random, ours = results["Random"], results["PredictedTTFT"]
ratio = random["ttft_s"]["p50"] / ours["ttft_s"]["p50"]
if a.table:
    print()
    print(f"  {'':22}{'random':>12}{'Pointsman':>12}")
    for name, f in (("TTFT p50, s", lambda r: f"{r['ttft_s']['p50']:.2f}"),
                    ("TTFT p95, s", lambda r: f"{r['ttft_s']['p95']:.2f}"),
                    ("prompt from cache", lambda r: f"{100 * r['hit_share']:.0f} %"),
                    ("tokenized here", lambda r: f"{100 * r['native'] / a.requests:.0f} %"),
                    ("requests/min", lambda r: f"{r['req_per_min']:.0f}")):
        print(f"  {name:22}{f(random):>12}{f(ours):>12}")
    print(f"\n  The median first token came {ratio:.1f} times sooner.")
    late = max(r["overruns"] / max(1, r["steps"]) for r in (random, ours))
    if late > 0.01:
        print(f"  This machine was busy: {100 * late:.0f} % of the workers' steps ended late, so the times are too long.")
else:
    print(f"gain_requests {a.requests} requests/arm")
    for arm, r in (("random_", random), ("", ours)):
        print(f"gain_ttft_p50_{arm}s {r['ttft_s']['p50']:.3f} s")
        print(f"gain_ttft_p95_{arm}s {r['ttft_s']['p95']:.3f} s")
        print(f"gain_hit_share{'_random' if arm else ''} {r['hit_share']:.3f} 0..1")
        print(f"gain_native_share{'_random' if arm else ''} {r['native'] / a.requests:.3f} 0..1")
        print(f"gain_requests_per_min{'_random' if arm else ''} {r['req_per_min']:.1f} 1/min")
        print(f"gain_overrun_share{'_random' if arm else ''} {r['overruns'] / max(1, r['steps']):.4f} 0..1")
    print(f"gain_ttft_p50_ratio {ratio:.1f} x")
