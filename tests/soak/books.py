"""The books: what clients saw, against what went wrong, the workers' own logs and the journal.

A request has one status.  Each answer that is not the expected one must be explained by a fault that was made at
that time to that process or worker; what is not explained is a line of the result.
"""
import collections, json

from clients import CUT, GARBAGE, LEFT, SILENT, UNSERVED, WHOLE

FAULT_ENDS = ("reset", "truncate", "event", "stall", "fault")


class Books:
    def __init__(self, load, faults, workers, journal, journaled):
        self.records, self.idle_ends, self.faults = load.records, load.idle_ends, faults
        self.wrong, self.reasons = [], collections.Counter()
        self.runs = collections.defaultdict(list)       # user -> [{worker, id, attempt, status, outcome}]
        self.lost_ingresses = {f.who: f for f in faults.done if f.what == "kill ingress"}
        self.journal, self.journaled = journal, journaled       # journaled: of the records, so many
        for w in workers:
            self.read_log(w)

    def fault(self, r, text):
        self.wrong.append(f"{text}: {r.say()} runs={self.runs.get(r.user)}")

    def read_log(self, w):
        started = {}
        for line in w.requests():
            key = line["x_request_id"]
            if line["ev"] == "start":
                run = {"worker": w.name, "id": key, "outcome": None, "status": None}
                if key in started:
                    self.wrong.append(f"{w.name} was sent {key} twice")
                started[key] = run
                self.runs[line["user"]].append(run)
            elif key in started:
                started[key].update(outcome=line["outcome"], status=line["status"])
            else:
                self.wrong.append(f"{w.name} ended what it never began: {line}")

    # --- explanations ---

    def died(self, r):
        """Its ingress was killed while it was under way."""
        if r.request_id:
            f = self.lost_ingresses.get(int(r.request_id, 16) >> 40)
            return f is not None and f.begun - 0.5 <= r.ended
        return bool(self.faults.within("kill ingress", r.begun, r.ended))

    def worker_down(self, r):
        return bool(self.faults.within("worker down", r.begun, r.ended))

    def run_failed(self, r):
        """The worker's own log says that it failed this request, or has no end of it because it was killed."""
        return [run for run in self.runs[r.user] if run["outcome"] in (*FAULT_ENDS, "restart") or
                run["outcome"] is None and self.worker_down(r)]

    def deaths_of_policy(self, r):
        """Deaths of processes that could be asked, from a little before (a seat may be empty yet)."""
        found = self.faults.within(("kill active", "kill in reload", "kill both"), r.begun - 10, r.ended)
        return sum(2 if f.what == "kill both" else 1 for f in found)

    # --- one by one ---

    def check(self):
        for r in self.records:
            getattr(self, r.outcome or "nothing")(r)
            self.reasons[self.reason(r)] += 1
            self.check_runs(r)
        for begun, ended in self.idle_ends:     # a replaced ingress closes what is idle, as long as it drains
            if not self.faults.within("kill ingress", begun, ended) and \
                    not self.faults.within("replace", begun - 25, ended):
                self.wrong.append(f"an idle connection ended without a reason, {ended - begun:.3f} s after its use")
        known = {r.user for r in self.records}
        for user in self.runs.keys() - known:
            self.wrong.append(f"workers were sent what no client asked: {user!r} {self.runs[user]}")
        self.check_journal()
        return self.wrong

    @staticmethod
    def reason(r):
        if r.outcome == WHOLE:
            told = " then an error event" if r.raised else ""
            return f"{r.status}{' ' + r.code if r.code else ''}{told}"
        return f"{r.outcome} {r.why or ''}".strip() if r.outcome != UNSERVED else "unserved behind close"

    def nothing(self, r):
        self.fault(r, "a request without an end")

    def silent(self, r):
        self.fault(r, "silence")

    def garbage(self, r):
        self.fault(r, "not an answer")

    def left(self, r):
        pass

    def unserved(self, r):
        if self.runs[r.user]:
            self.fault(r, "sent to a worker after an answer that said close")

    def whole(self, r):
        if r.status in r.expect:
            if r.status == 200 and r.inference:
                self.check_content(r)
            return
        if not r.inference:
            return self.fault(r, f"{r.status} instead of {r.expect}")
        if self.explained(r):
            return None
        return self.fault(r, f"status {r.status} {r.code} without a reason")

    def check_content(self, r):
        failed = self.run_failed(r)
        if r.sse and not r.done:
            return self.fault(r, "a clean end of a stream that was cut")
        if r.raised:
            if not any(run["outcome"] == "event" for run in failed):
                self.fault(r, "an error event that no engine sent, and a clean end")
            return None
        if r.words != r.max_tokens or r.tokens != r.max_tokens:
            return self.fault(r, f"{r.words} words, {r.tokens} tokens of {r.max_tokens}")
        if not any(run["outcome"] == "ok" and run["worker"] == r.worker and
                   run["id"] == f"{r.request_id}-{r.attempts}" for run in self.runs[r.user]):
            return self.fault(r, "an answer that its worker never gave")
        return None

    def explained(self, r):
        runs = self.runs[r.user]
        if r.status in (429, 500, 503) and r.worker:    # the worker's own answer, passed on
            return any(run["status"] == r.status and run["outcome"] == "fault" for run in runs)
        if r.code == "upstream_unreachable":
            return self.worker_down(r)
        if r.code == "upstream_failed":
            return bool(self.run_failed(r)) or self.worker_down(r)
        if r.code == "upstream_timeout":
            return any(run["outcome"] == "stall" for run in runs)
        if r.code in ("policy_crash", "policy_absent", "policy_timeout"):
            return self.deaths_of_policy(r) >= 2
        return False

    def cut(self, r):
        if self.died(r):
            return None
        if r.status is None:
            return self.fault(r, "no status, and its ingress lives")
        if not self.run_failed(r):
            return self.fault(r, "cut without a reason")
        if r.sse and r.chunked and r.raised != 1:
            return self.fault(r, "cut without an error event")
        if not r.chunked and r.minor == 0 and r.sse and not r.why.startswith("reset"):
            return self.fault(r, "cut like a clean end")
        return None

    def check_runs(self, r):
        """Not executed twice, except by the documented rule."""
        runs = self.runs[r.user]
        if len(runs) > 2 or len({run["id"] for run in runs}) != len(runs):
            return self.fault(r, f"{len(runs)} attempts")
        if runs and not r.sent and r.outcome != CUT:
            return self.fault(r, "a request that was never sent whole reached a worker")
        if len(runs) == 2:
            # Refused without work, or a pooled connection that broke before a byte came.
            first = min(runs, key=lambda run: run["id"])
            if first["status"] not in (429, 503) and first["outcome"] not in ("reset", "restart") and \
                    not (first["outcome"] in (None, "abort", "stall") and self.worker_down(r)):
                return self.fault(r, "executed twice")
        if r.outcome == WHOLE and r.attempts and len(runs) > r.attempts:
            return self.fault(r, "more attempts than the answer says")
        if any(run["outcome"] == "abort" for run in runs) and r.outcome not in (LEFT, SILENT) and not self.died(r) and \
                not self.worker_down(r):
            return self.fault(r, "given up by us though its client stayed")
        return None

    # --- the journal ---

    def check_journal(self):
        """One outcome a request; of ingresses that live, for every request."""
        told = collections.Counter()
        by_id = {}
        lost = False
        for line in self.journal:
            if line.get("record") == "outcome":
                told[line["request_id"]] += 1
                by_id[line["request_id"]] = line
            lost |= line.get("record") == "lost"
        for request, n in told.items():
            if n > 1:
                self.wrong.append(f"{n} outcomes of {request}")
        # An ingress numbers its requests: those whose clients left have their one outcome too.
        numbers = collections.defaultdict(set)
        for request in told:
            numbers[int(request, 16) >> 40].add(int(request, 16) & (1 << 40) - 1)
        for incarnation, have in numbers.items():
            missing = sorted(set(range(1, max(have) + 1)) - have)
            if missing and not lost and incarnation not in self.lost_ingresses:
                self.wrong.append(f"{len(missing)} requests of ingress incarnation {incarnation} without an outcome: "
                                  f"{missing[:10]}")
        for r in self.records[:self.journaled]:
            if r.outcome not in (WHOLE, CUT) or not r.request_id or self.died(r) or \
                    int(r.request_id, 16) >> 40 in self.lost_ingresses:
                continue
            o = by_id.get(r.request_id)
            if o is None:
                if not lost:
                    self.fault(r, "an answer without an outcome in the journal")
            elif o["status"] != r.status or o["cancelled"] or r.attempts and o["attempts"] != r.attempts:
                self.fault(r, f"the journal says {o['status']}, {o['attempts']} attempts, cancelled={o['cancelled']}")
        self.outcomes = len(told)


def read_journal(house, file):
    out = house.ctl("journal", "print", file, "--output", "json", limit_s=300).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]
