"""What goes wrong, at random and from one seed; each fault is written down with its time, so that what clients
saw can be explained by it.  One at a time, in a thread of its own."""
import contextlib, json, os, random, signal, subprocess, threading, time

import house as h

KINDS = ("429", "500", "503", "reset", "truncate", "event", "stall")


class Fault:
    __slots__ = ("begun", "ended", "what", "who")

    def __init__(self, what, who=None):
        self.begun, self.ended, self.what, self.who = time.monotonic(), float("inf"), what, who


class Faults(threading.Thread):
    def __init__(self, house, options):
        super().__init__(daemon=True)
        self.house, self.options = house, options
        self.rng = random.Random(f"{options.seed} faults")
        self.every = list(house.workers)
        self.good = None
        self.done, self.killed, self.error = [], set(), None
        self.enough = threading.Event()
        # One ingress is killed only by SIGUSR2, and early: what leaks has the rest of the time to do so.
        self.mortal = options.seed % 2
        self.replaced_until = time.monotonic() + options.seconds / 4

    # --- tools ---

    @contextlib.contextmanager
    def fault(self, what, who=None):
        f = Fault(what, who)
        self.done.append(f)
        try:
            yield f
        finally:
            f.ended = time.monotonic()

    def nap(self, least, most):
        self.enough.wait(self.rng.uniform(least, most))

    def process(self, role, state="ready", index=None):
        for p in self.house.stat()["processes"]:
            if p["role"] == role and p["state"] == state and p["pid"] and index in (None, p["index"]):
                return p
        return None

    def kill(self, p):
        self.killed.add(p["pid"])       # before: who looks at the log must know
        os.kill(p["pid"], signal.SIGKILL)

    def reborn(self, role, pid, n):
        def look():
            live = [p for p in self.house.stat()["processes"] if p["role"] == role and p["state"] == "ready"]
            return len(live) == n and pid not in [p["pid"] for p in live]

        h.until(f"{role} to be reborn", look, 30)

    def stop_for(self, p, least, most):
        with self.fault(f"stop {p['role']}", p["incarnation"]):
            os.kill(p["pid"], signal.SIGSTOP)
            try:
                self.nap(least, most)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(p["pid"], signal.SIGCONT)

    # --- faults ---

    def kill_single(self):
        role = self.rng.choice(["kvevents", "metrics", "admin"])
        p = self.process(role)
        if p:
            with self.fault(f"kill {role}", p["incarnation"]):
                self.kill(p)
                self.reborn(role, p["pid"], 1)

    def kill_ingress(self):
        p = self.process("ingress", index=self.mortal)
        if p and self.process("ingress", index=1 - self.mortal):
            with self.fault("kill ingress", p["incarnation"]):
                self.kill(p)
            self.reborn("ingress", p["pid"], 2)

    def kill_active(self):
        # One death at a time is what is promised to cost nothing.
        p, spare = self.process("policy", "active"), self.process("policy", "standby")
        if p and spare:
            with self.fault("kill active", p["incarnation"]):
                self.kill(p)
                h.until("another policy process to be active",
                        lambda: (self.process("policy", "active") or p)["pid"] != p["pid"], 30)

    def kill_both(self):
        """Both that could be asked, at once: nobody is there for a while."""
        both = [self.process("policy", "active"), self.process("policy", "standby")]
        self.rng.shuffle(both)
        if all(both):
            with self.fault("kill both"):
                for p in both:
                    self.kill(p)
                gone = {p["pid"] for p in both}
                h.until("another policy process to be active",
                        lambda: (self.process("policy", "active") or both[0])["pid"] not in gone, 30)

    def kill_in_reload(self):
        """One of the policy processes, old or new, while a generation replaces another."""
        with self.fault("kill in reload"):
            self.configure()
            self.house.hup()
            self.nap(0.02, 0.2)
            here = [p for p in self.house.stat()["processes"] if p["role"] == "policy" and p["pid"]]
            if here:
                with contextlib.suppress(ProcessLookupError):
                    self.kill(self.rng.choice(here))
        h.until("a policy process to be active", lambda: self.process("policy", "active"), 30)

    def kill_standby(self):
        p = self.process("policy", "standby")
        if p:
            with self.fault("kill standby", p["incarnation"]):
                self.kill(p)

    def kill_unborn(self):
        known = {p["pid"] for p in self.house.stat()["processes"]}
        pids = subprocess.run(["pgrep", "-P", str(self.house.supervisor.pid), "-f", "^pointsman-policy"],
                              capture_output=True, text=True).stdout.split()
        known |= {p["pid"] for p in self.house.stat()["processes"]}     # born meanwhile
        for pid in map(int, pids):
            if pid not in known:
                with self.fault("kill unborn", pid):
                    self.killed.add(pid)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def replace(self):
        """SIGUSR2: both ingresses get successors."""
        if time.monotonic() > self.replaced_until:
            return
        def ready():
            return {p["incarnation"] for p in self.house.stat()["processes"]
                    if p["role"] == "ingress" and p["state"] == "ready"}

        with self.fault("replace"):
            before = ready()
            self.house.supervisor.send_signal(signal.SIGUSR2)
            h.until("the successors of both ingresses", lambda: len(ready() - before) == 2, 30)

    def stop_policy(self):              # hung is 2 s
        p = self.process("policy", self.rng.choice(["active", "active", "standby"]))
        if p:
            self.stop_for(p, 0.05, 1.0)

    def stop_ingress(self):             # an acknowledgement is late after 2 s
        p = self.process("ingress", index=self.rng.randrange(2))
        if p:
            self.stop_for(p, 0.05, 0.8)

    def stop_single(self):              # hung is 15 s
        p = self.process(self.rng.choice(["kvevents", "metrics", "admin"]))
        if p:
            self.stop_for(p, 0.1, 3.0)

    def configure(self):
        text = self.good.replace("minimize: PredictedTTFT", "minimize: " + self.rng.choice(
            ["PredictedTTFT", "PredictedTTFT", "RoundRobin", "LeastPrefill", "LeastRequests"]))
        self.house.write(text)

    def reload(self):
        with self.fault("reload"):
            self.configure()
            self.house.ctl("reload")

    def refused(self):
        with self.fault("refused reload"):
            text = self.house.config.read_text()
            self.house.write(self.rng.choice([text.replace("minimize:", "minimise:"), text[:len(text) // 2], "\n",
                                              text.replace("pool: all", "pool: none")]))
            assert self.house.ctl("reload", check=False).returncode != 0
            self.house.write(text)

    def hup(self):
        with self.fault("hup"):
            self.configure()
            self.house.hup()

    def storm(self):
        with self.fault("hup storm"):
            for _ in range(self.rng.randrange(5, 25)):
                self.house.hup()
                self.nap(0.001, 0.06)

    def restart_worker(self):
        w = self.rng.choice(self.every)
        with self.fault("worker down", w.name):
            w.stop(signal.SIGKILL)
            self.nap(0, 0.5)
            w.start()
            h.until(f"{w.name} to be called up", lambda: self.state_of(w) in ("up", None), 30)

    def state_of(self, w):
        """None: not in the configuration now."""
        for row in json.loads(self.house.ctl("workers", "--output", "json").stdout)["workers"]:
            if row["worker"] == w.name:
                return row["state"]
        return None

    def crash_engine(self):
        w = self.rng.choice(self.every)
        with self.fault("worker down", w.name):
            w.get("/emu/restart", {})
            h.until(f"{w.name} to listen again", lambda: self.answers(w), 30)
            h.until(f"{w.name} to be called up", lambda: self.state_of(w) in ("up", None), 30)

    @staticmethod
    def answers(w):
        try:
            return w.state()
        except OSError:
            return None

    def leave_and_come_back(self):
        w = self.rng.choice(self.every)
        with self.fault("worker removed", w.name):
            self.house.workers = [x for x in self.every if x is not w]
            self.house.write()
            self.house.ctl("reload")
            self.nap(0, 1.0)
            self.house.workers = self.every
            self.house.write()
            if self.rng.random() < 0.5:
                self.house.hup()
            self.house.ctl("reload")
            h.until(f"{w.name} to be called up", lambda: self.state_of(w) == "up", 30)

    def engine_faults(self):
        w, kind = self.rng.choice(self.every), self.rng.choice(KINDS)
        with self.fault(f"engine {kind}", w.name):
            w.get("/emu/config", {"fail-rate": self.rng.choice([0.05, 0.2, 1]), "fail-kind": kind,
                                  "fail-at": self.rng.choice([0, 0, 1, 5, 20])})
            self.nap(0.2, 1.0)
            w.get("/emu/config", {"fail-rate": 0})

    def forget_cache(self):
        w = self.rng.choice(self.every)
        with self.fault("cache reset", w.name):
            w.get("/reset_prefix_cache", {})

    def lose_events(self):
        w = self.rng.choice(self.every)
        with self.fault("events lost", w.name):
            w.get("/emu/config", {"drop-events": 0.2})
            self.nap(0.2, 1.0)
            w.get("/emu/config", {"drop-events": 0})

    MENU = [(kill_single, 4), (kill_ingress, 2), (kill_active, 4), (kill_in_reload, 3), (kill_both, 1),
            (kill_standby, 1), (kill_unborn, 1), (stop_policy, 2), (stop_ingress, 1), (stop_single, 1), (replace, 3),
            (reload, 4), (refused, 1), (hup, 3), (storm, 1), (restart_worker, 2), (crash_engine, 1),
            (leave_and_come_back, 2), (engine_faults, 5), (forget_cache, 1), (lose_events, 1)]

    def run(self):
        cards = [fault for fault, n in self.MENU for _ in range(n)]
        deck = [Faults.replace]         # early: see above
        try:
            while not self.enough.wait(self.rng.expovariate(1 / self.options.every)):
                if not deck:            # every fault comes before any comes too often
                    deck = self.rng.sample(cards, len(cards))
                deck.pop()(self)
        except BaseException as e:      # told by the main thread
            self.error = e

    def finish(self):
        """Everything that was done is undone."""
        self.enough.set()
        self.join(120)
        if self.is_alive():
            raise h.Late("waited 120 s for the last fault to end")
        if self.error:
            raise self.error
        self.house.write(self.good)
        self.house.ctl("reload")

    def count(self, *what):
        return sum(f.what.startswith(what) for f in self.done)

    def within(self, what, begun, ended, slack=0.5):
        """Faults of that kind between the two times, or so near that nobody can say."""
        return [f for f in self.done
                if f.what.startswith(what) and f.begun - slack <= ended and f.ended + slack >= begun]
