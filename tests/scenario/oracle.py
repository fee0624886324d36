"""What the index says beside what the workers hold: every block, every holder, both ways.

`compare(house)` asks each emulated worker for its true cache (/emu/state: blocks with their tokens) and Pointsman for
the holders of the same blocks (admin's verb `index_prompt`), and lists

    false     (worker, rank, tier, block): an exact holder that does not hold it
    missing   the same: it is held there, and no exact holder says so
    uncounted (worker, rank): so many exact blocks there that nobody holds, of chains that no worker has any more
    maybe     (worker, rank, tier, block): speculative or demoted holders that do not hold it; they end with their lease

`equal` waits for both to be the same.  Only the first cache group counts, as it does for the index.  A block whose beginning no worker holds any more, and which
was not seen before either, cannot be named; `unnamed` counts those.

oracle.py RUN_DIR MODEL NAME=PORT...: the same by hand, of a house that runs.
"""
import collections, json, pathlib, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h
import zmq

BLOCKS_A_QUESTION = 256         # show_index.h
TIERS = {"GPU": "gpu", "CPU": "offload"}
Hold = collections.namedtuple("Hold", "worker rank tier block")


class Admin:
    """One conversation with admin.sock."""

    def __init__(self, run):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.REQ)
        self.socket.linger = 0
        self.socket.connect(f"ipc://{run}/admin.sock")

    def ask(self, verb, **arguments):
        self.socket.send(json.dumps({"v": 1, "verb": verb, **arguments}).encode())
        if not self.socket.poll(20000):
            raise h.Late(f"waited 20 s for admin to answer {verb}")
        said = json.loads(self.socket.recv())
        if not said["ok"]:
            raise RuntimeError(f"{verb}: {said}")
        return said["result"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.context.term()


class Tree:
    """Chains of blocks, by their tokens; names of engines lead into it, also those seen earlier."""

    def __init__(self):
        self.named = {}         # engine's hash: path
        self.paths = {}         # path id: (parent path id or None, tokens, adapter, salt)
        self.ids = {}

    def path(self, parent, tokens, adapter, salt):
        key = (parent, tokens, adapter, salt)
        if key not in self.ids:
            self.ids[key] = len(self.ids)
            self.paths[self.ids[key]] = key
        return self.ids[key]

    def learn(self, blocks):
        """Blocks of one worker; returns those whose beginning nobody knows."""
        left = [b for b in blocks if b["hash"] not in self.named]
        while left:
            unknown = []
            for b in left:
                if b["parent"] is not None and b["parent"] not in self.named:
                    unknown.append(b)
                    continue
                parent = None if b["parent"] is None else self.named[b["parent"]]
                self.named[b["hash"]] = self.path(parent, tuple(b["token_ids"]), b["lora"], b["salt"])
            if len(unknown) == len(left):
                return unknown
            left = unknown
        return []

    def chains(self, paths):
        """The longest chains that these lie on: lists of path ids from the root."""
        wanted, inner = set(paths), set()
        for p in list(wanted):
            up = self.paths[p][0]
            while up is not None:
                inner.add(up)
                wanted.add(up)
                up = self.paths[up][0]
        for leaf in wanted - inner:
            chain = []
            while leaf is not None:
                chain.append(leaf)
                leaf = self.paths[leaf][0]
            yield chain[::-1]


class Oracle:
    """Remembers the names of blocks from one comparison to the next."""

    def __init__(self, run, model, workers):
        self.run, self.model, self.workers, self.tree = run, model, workers, Tree()
        self.unnamed, self.exact = 0, set()

    def truth(self):
        """{path: {(worker, rank, tier)}} of all that the workers hold."""
        held = collections.defaultdict(set)
        self.unnamed = 0
        for w in self.workers():
            try:
                state = h.request(w.port, "GET", "/emu/state?hashes=1&tokens=1")[1]
            except OSError:
                continue                # not there: it holds nothing
            cached = [b for b in state["cached"] if b["group"] == 0]
            unknown = {b["hash"] for b in self.tree.learn(cached)}
            self.unnamed += len(unknown)
            for b in cached:
                if b["hash"] not in unknown:
                    held[self.tree.named[b["hash"]]].add((w.name, b["rank"], TIERS[b["tier"]]))
        return held

    def claims(self, admin, paths):
        """({path: {(worker, rank, tier, role)}}, {(worker, rank): exact blocks in all})."""
        overview = admin.ask("index")["workers"]
        ranks = {w["row"]: (w["worker"], w["rank"]) for w in overview}
        count = collections.Counter()
        for w in overview:
            count[w["worker"], w["rank"]] += w["exact_gpu"] + w["exact_offload"]
        said = collections.defaultdict(set)
        for chain in self.tree.chains(paths):
            parent = None
            for at in range(0, len(chain), BLOCKS_A_QUESTION):
                part = chain[at:at + BLOCKS_A_QUESTION]
                _, _, adapter, salt = self.tree.paths[chain[0]]
                more = {"adapter": adapter, "salt": salt, "parent": parent}
                got = admin.ask("index_prompt", model=self.model, block_tokens=len(self.tree.paths[part[0]][1]),
                                tokens=[t for p in part for t in self.tree.paths[p][1]],
                                **{k: v for k, v in more.items() if v is not None})
                slots = {s["slot"]: s for s in got["slots"]}
                for path, block in zip(part, got["blocks"]):
                    for s in (slots[i] for i in block["slots"]):
                        if s["state"] == "live" and s["row"] in ranks:
                            said[path].add((*ranks[s["row"]], s["tier"], s["role"]))
                parent = got["blocks"][-1]["hash"]
        self.exact = {(w["worker"], w["rank"]) for w in overview if w["cache"] == "exact"}
        return said, count

    def compare(self):
        """{"false": [Hold], "missing": .., "maybe": .., "uncounted": {..}, "blocks": n}"""
        truth = self.truth()
        with Admin(self.run) as admin:
            said, count = self.claims(admin, self.tree.paths)   # also those that nobody holds any more
        out = {"false": [], "missing": [], "maybe": [], "blocks": sum(len(v) for v in truth.values())}
        matched = collections.Counter()
        for path in set(truth) | set(said):
            exact = {(w, r, t) for w, r, t, role in said[path] if role == "exact"}
            for w, r, t in exact:
                matched[w, r] += 1
            out["false"] += [Hold(*x, path) for x in exact - truth[path]]
            out["missing"] += [Hold(*x, path) for x in truth[path] - exact]
            out["maybe"] += [Hold(w, r, t, path) for w, r, t, role in said[path]
                             if role != "exact" and (w, r, t) not in truth[path]]
        out["uncounted"] = {k: n - matched[k] for k, n in count.items() if n != matched[k]}
        return out

    def equal(self, what, where="all", limit_s=15):
        """Waits until index and caches are equal, and returns the comparison; AssertionError with the differences when the time
        is up.  where="exact": of workers whose cache state is another, only that nothing false is claimed."""
        last = {}

        def same():
            last.clear()
            last.update(self.compare())
            return (not last["false"] and not last["uncounted"] and not self.unnamed and
                    not [m for m in last["missing"] if where == "all" or (m.worker, m.rank) in self.exact])

        try:
            h.until(what, same, limit_s)
        except h.Late as late:
            raise AssertionError(f"{late}: {show(last)}") from None
        return last


def show(c):
    """The differences, some lines."""
    lines = [f"{c['blocks']} blocks held"]
    for kind in ("false", "missing", "maybe"):
        by = collections.Counter((x.worker, x.rank, x.tier) for x in c[kind])
        lines += [f"{kind}: {n} at {w}:{r} {t}" for (w, r, t), n in sorted(by.items())]
    lines += [f"uncounted: {n} at {w}:{r}" for (w, r), n in sorted(c["uncounted"].items())]
    return "; ".join(lines)


def of(house):
    return Oracle(house.run, house.model, lambda: [w for w in house.workers if w.process and w.process.poll() is None])


if __name__ == "__main__":
    class Named:
        def __init__(self, text):
            self.name, port = text.split("=")
            self.port = int(port)

    everybody = [Named(a) for a in sys.argv[3:]]
    said = Oracle(sys.argv[1], sys.argv[2], lambda: everybody).compare()
    print(show(said))
    sys.exit(bool(said["false"] or said["missing"] or said["uncounted"]))
