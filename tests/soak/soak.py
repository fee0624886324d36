"""Mixed load, random kills and reloads: every request has exactly one status, and at the end nothing is held.

soak.py [--io io_uring|epoll] [--seed N] [--seconds S] [--every S]: a seed is drawn and printed if none is given.
"""
import argparse, asyncio, collections, json, pathlib, random, re, signal, subprocess, sys, time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "scenario")]   # its clients, not the scenario of that name
import books, clients, faults, house as h, state

MIB = 1 << 20
BODY_LIMIT = 4 * MIB
# Heap that a process may keep over what a fresh one has (the supervisor: over its own at the start).  Ingress frees
# into its heap (HEAP_SPARE of ingress.c): buffers of 40 clients.
KEEPS = {"ingress": 16 * MIB, "policy": 16 * MIB, "kvevents": 16 * MIB, "metrics": 8 * MIB, "admin": 8 * MIB,
         "supervisor": 4 * MIB}
WORKERS = 4
# Kinds of descriptors whose number is not always the same at rest, and the most of them.  metrics and policy:
# kept connections of curl to workers (metrics has 5 kinds of probes, each on one at a time).  admin: the dead that
# may still be asked about (PM_VIEW_GONE_KEPT of view.h), and the living.
MAY_HOLD = {"metrics": {"tcp": 5 * WORKERS}, "policy": {"tcp": 2 * WORKERS},
            "admin": {"/memfd:pointsman-process": 16 + 9}}
# Counters that stay 0, whatever happens.
NEVER = ("answer_holes", "messages_unknown", "ledger_underflows", "ledger_disagreements", "ledger_charges_left",
         "slots_leaked", "arena_leaked")
UNNEEDED = "because it is no longer needed"
TROUBLE = re.compile(r"panic| fatal |Sanitizer|runtime error:")
SANITIZED = b"__asan_init" in (h.BIN / "pointsman-ingress").read_bytes()        # keeps freed memory for a while

GATEWAY = f"""\
  limits: {{bodyBytes: {BODY_LIMIT // MIB}MiB, slots: 1024, arenaBytes: 256MiB, streamBufferBytes: 32KiB}}
  timeouts: {{firstByte: 6s, interChunk: 4s, writeStall: 10s, drain: 20s}}
  index: {{blocks: 100000}}
  policyProcess: {{probation: 1s}}
"""


class Soak:
    def __init__(self, house, options):
        self.house, self.options, self.wrong = house, options, []
        house.add("--profile", "zero", "--t-o", 0.004, "--max-model-len", 4096, "--num-gpu-blocks", 2000, count=WORKERS)
        self.every = list(house.workers)
        house.write()
        house.start()
        self.faults = faults.Faults(house, options)
        self.faults.good = house.config.read_text()
        self.load = clients.Load(house.port, house.model, options.seed, BODY_LIMIT)

    def check(self, fact, text):
        if not fact:
            self.wrong.append(text)

    def rest(self):
        # A new generation: what the old policy processes held is gone with them.
        self.house.ctl("reload")
        return state.Rest(self.house, self.every)

    def drive(self):
        """Load while faults happen; then the clients finish what they began, against workers that are well."""
        async def main():
            run = asyncio.create_task(self.load.run())
            end = time.monotonic() + self.options.seconds
            while time.monotonic() < end and not run.done() and self.faults.is_alive():
                await asyncio.sleep(0.1)
            await asyncio.to_thread(self.faults.finish)
            self.load.stopping = True
            await run

        self.faults.start()
        asyncio.run(main())

    def renew(self):
        """Every process but the supervisor is a fresh one."""
        for role, n in (("kvevents", 1), ("metrics", 1), ("admin", 1), ("ingress", 2)):
            for index in range(n):
                p = h.until(f"{role} {index}", lambda: self.faults.process(role, index=index), 30)
                self.faults.kill(p)
                self.faults.reborn(role, p["pid"], n)
        asyncio.run(self.load.run(clients=4, requests=20))

    def succeed(self, before):
        """The supervisor is killed; its successor replaces the set, and that of the dead one is gone."""
        self.house.supervisor.kill()
        self.house.supervisor.wait()
        self.house.start()
        old = [pid for pid in before.children if state.runs(pid)]
        self.check(not old, f"processes of the dead supervisor are left: {old}")
        begun = len(self.load.records)
        asyncio.run(self.load.run(clients=4, requests=10))
        for r in self.load.records[begun:]:
            self.check(r.outcome == clients.LEFT or r.outcome == clients.WHOLE and r.status in r.expect, r.say())
        after = state.Rest(self.house, self.every)
        self.check(after.shape() == before.shape(), f"run directory: {before.files} -> {after.files}")

    # --- what is compared ---

    def compare(self, first, last, fresh):
        self.check(last.shape() == first.shape() == fresh.shape(),
                   f"run directory: {first.files} -> {last.files} -> {fresh.files}")
        for rest in (last, fresh):
            named = {(int(a), int(b)) for a, b in re.findall(r"policy\.(\d+)\.(\d+)\.sock", " ".join(rest.files))}
            self.check(named == rest.incarnations, f"policy sockets {named} of ingresses {rest.incarnations}")
            dead = [c for c in rest.children.items() if c[1][1] in "ZX"]
            self.check(not dead, f"zombies: {dead}")
            # One that is unborn is kept; it has no seat.
            self.check(len(rest.children) == len(rest.seats), f"children {rest.children}, seats {rest.seats}")
        supervisor = "supervisor", 0
        for seat, (pid, now, bytes_now) in last.seats.items():
            _, was, bytes_was = fresh.seats[seat]
            name = f"{seat[0]} {seat[1]}"
            # The supervisor lives on: it is measured against its own beginning.
            if seat == supervisor:
                was, bytes_was = first.seats[seat][1:]
            found = state.more(was, now, MAY_HOLD.get(seat[0], {}))
            self.check(not found, f"{name} pid {pid}: descriptors, against a fresh one: {found}")
            print(f"  {name}: {bytes_now / MIB:.1f} MiB of its own, at first {bytes_was / MIB:.1f}")
            keeps = KEEPS[seat[0]]
            self.check(SANITIZED or bytes_now <= bytes_was + keeps, f"{name}: {bytes_now / MIB:.0f} MiB of its own, a "
                       f"fresh one {bytes_was / MIB:.0f} and it may keep {keeps / MIB:.0f} more")

    def check_counters(self):
        page = state.Page(self.house)
        for index in map(str, range(self.house.ingresses)):
            ours = {"process": "ingress", "index": index}
            ends = {k: page.sum(k, **ours) for k in ("requests_ok", "requests_client_error", "requests_failed",
                                                     "requests_cancelled")}
            # What was under way in one that was killed has no end.
            died = len([f for f in self.faults.done if f.what == "kill ingress" and int(index) == self.faults.mortal])
            lost = page.sum("requests", **ours) - sum(ends.values())
            self.check(0 <= lost <= died * clients.CLIENTS,
                       f"ingress {index}, killed {died} times: {page.sum('requests', **ours)} requests, ends {ends}")
        for never in NEVER:
            self.check(page.values(never) and page.sum(never) == 0, f"{never}: {page.values(never)}")

    def check_log(self):
        """Nobody died, panicked or was killed by its supervisor but those we killed."""
        dead = 0
        for line in open(self.house.folder / "pointsman.log", errors="replace"):
            died = re.search(r"pid=(\d+) generation=\d+: died", line)
            if died and int(died[1]) in self.faults.killed:
                dead += 1
            elif UNNEEDED in line:      # loading, and overtaken by the next reload
                continue
            elif died or ": killing, because it" in line or TROUBLE.search(line):
                self.check(False, f"log: {line.strip()}")
        return dead

    # --- the whole of it ---

    def run(self):
        seconds = counted = 0
        recorder = subprocess.Popen([str(h.BIN / "pointsctl"), "-r", str(self.house.run), "journal", "record",
                                     str(self.house.folder / "journal")], stdout=subprocess.DEVNULL,
                                    stderr=open(self.house.folder / "recorder.log", "wb"))
        try:
            asyncio.run(self.load.run(clients=4, requests=20))
            first = self.rest()
            begun, before = time.monotonic(), len(self.load.records)
            self.drive()
            seconds, counted = time.monotonic() - begun, len(self.load.records) - before
            last = self.rest()
            self.check_counters()
        except h.Late as e:             # what was held may be explained by the books
            last = None
            self.wrong.append(str(e))
        finally:
            recorder.send_signal(signal.SIGINT)
            recorder.wait(30)
            journaled = len(self.load.records)
        if last:
            self.renew()
            fresh = self.rest()
            self.compare(first, last, fresh)
        journal = books.read_journal(self.house, self.house.folder / "journal")
        b = books.Books(self.load, self.faults, self.every, journal, journaled)
        self.wrong += b.check()
        if last:
            self.succeed(fresh)         # behind the books: it numbers requests from the beginning
        pids = list(state.children(self.house.supervisor.pid))
        self.house.stop()
        self.check(not [p for p in pids if state.runs(p)], "processes are left after the stop")
        self.report(b, counted, seconds, self.check_log())

    def report(self, b, counted, seconds, dead):
        f = self.faults
        print(f"{counted} requests in {seconds:.0f} s, {b.outcomes} outcomes in the journal; {len(f.done)} faults: "
              f"{dead} processes killed, {f.count('reload', 'hup', 'kill in reload', 'worker removed')} reloads, "
              f"{f.count('refused')} refused, {f.count('replace')} replacements of ingress, "
              f"{f.count('worker down')} workers restarted")
        for reason, n in b.reasons.most_common():
            print(f"  {n:7} {reason}")
        for kind, n in sorted(collections.Counter(x.what for x in f.done).items()):
            print(f"  fault {n:5} {kind}")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--io", default="auto", choices=["auto", "io_uring", "epoll"])
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--every", type=float, default=0.4, help="mean seconds between faults")
    options = p.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 31)
    print(f"soak --io {options.io} --seed {options.seed} --seconds {options.seconds:g}", flush=True)
    with h.House(ingresses=2, io=options.io, gateway=GATEWAY) as house:
        soak = Soak(house, options)
        soak.run()
        for text in soak.wrong[:30]:
            print("WRONG", text)
        if len(soak.wrong) > 30:
            print(f"and {len(soak.wrong) - 30} more")
        assert not soak.wrong, f"{len(soak.wrong)} wrong, seed {options.seed}"


main()
