"""events -- blocks of KV events that pointsman-kvevents applies a second, and how soon they are seen.

    tests/bench/run events [--workers 8] [--seconds 5] [--paced 10]

A whole Pointsman whose workers only publish events: bench_events is all of them.  See bench_events.c for the
figures and what is verified.  No HTTP worker answers, so the rows stay unproven; nothing is routed.
"""
import argparse, pathlib, subprocess, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scenario"))
import house as h

p = argparse.ArgumentParser()
p.add_argument("--workers", type=int, default=8)
p.add_argument("--seconds", type=int, default=5)
p.add_argument("--paced", type=int, default=10)
a = p.parse_args()


class Publisher:
    """A member of which only the event port exists."""

    def __init__(self, n):
        self.name, self.port, self.endpoint = f"w{n}", h.free_port(), f"tcp://127.0.0.1:{h.free_port()}"

    def member(self):
        return f"{{name: {self.name}, url: 'http://127.0.0.1:{self.port}', kvEvents: '{self.endpoint}'}}"

    def stop(self):
        pass


with h.House() as house:
    house.workers = [Publisher(n) for n in range(a.workers)]
    house.start()
    subprocess.run([h.BIN / "bench_events", house.run, *(w.endpoint for w in house.workers),
                    "--seconds", str(a.seconds), "--paced", str(a.paced)], check=True)
