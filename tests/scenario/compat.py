"""Every version of every engine is used as far as it goes, and what is lost with it is what the compatibility table says.

One Pointsman before one emulated engine of each version, told nothing but engine and version (and to be small).  Each
cell of TABLE is tried and must come out as it says:
  events    the index holds what the engine holds, block for block and rank for rank
  replay    batches that were lost come back
  metrics   what runs and what waits is known for each rank
  tokenize  a text prompt is known in tokens
  rank      the rank that was chosen is the one that served
  usage     what was cached is proven by the answer
What is lost is told by `pointsctl workers --why`, but for what nobody can see: a header that an engine does not hear, salts
and adapters that its events leave out.
compat.py [VERSION...]; compat.py --table prints the table as deploy/README.md has it (which is checked too)
"""
import concurrent.futures, http.client, json, pathlib, re, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

COLUMNS = ("events", "replay", "metrics", "`/tokenize`", "rank header", "usage details")
BY_LOAD = "no: text prompts go by load"
ONE_RANK = "no: one rank a port"
NO_HEADER = "no: the engine chooses, what it holds is known"
# engine, versions tried, then a cell for each column: "yes", or "no" and what is lost
TABLE = (
    ("vllm", "0.9.0", "yes: no rank, signed hashes", "yes", "yes: `gpu_` names", "yes", NO_HEADER, "yes"),
    ("vllm", "0.9.2 0.10.0 0.10.1", "yes: signed hashes", "yes", "yes", "yes", NO_HEADER, "yes"),
    ("vllm", "0.10.2 0.11.0", "yes", "yes", "yes", "yes", NO_HEADER, "yes"),
    ("vllm", "0.11.1 0.12.0 0.13.0 0.14.0 0.15.0 0.16.0 0.17.0 0.18.0 0.19.0 0.20.0 0.21.0 0.22.0 0.23.0", "yes",
     "yes", "yes", "yes", "yes", "yes"),
    ("vllm", "0.24.0", "yes: maps", "yes", "yes", "yes", "yes", "yes"),
    ("vllm", "0.25.0 0.26.0 0.27.0 0.28.0 0.29.0 0.30.0 0.31.0", "yes: maps", "yes: with topic", "yes", "yes", "yes", "yes"),
    ("vllm, CPU tier", "0.11.1 0.16.0 0.22.0 0.26.0", "yes: both tiers", "yes", "yes", "yes", "yes", "yes"),
    ("vllm, CPU tier that describes itself", "0.24.0 0.31.0", "yes: both tiers", "yes", "yes", "yes", "yes", "yes"),
    ("vllm, hybrid", "0.20.0 0.23.0 0.31.0", "yes: of the full-attention group", "yes", "yes", "yes", "yes", "yes"),
    ("vllm, adapters", "0.13.0 0.16.0 0.19.0 0.23.0 0.31.0", "yes: never the base model's", "yes", "yes", "yes",
     "yes", "yes"),
    ("vllm, salted prompts", "0.13.0 0.16.0", "no: taken for prompts without", "yes", "yes", "yes", "yes", "yes"),
    ("vllm, salted prompts", "0.17.0 0.23.0 0.31.0", "yes", "yes", "yes", "yes", "yes", "yes"),
    ("vllm, hashes as bytes", "0.12.0 0.31.0", "yes", "yes", "yes", "yes", "yes", "yes"),
    ("vllm, a process for each rank", "0.31.0", "yes: maps", "yes: with topic", "yes", "yes", ONE_RANK, "yes"),
    ("vllm, usage details off", "0.31.0", "yes: maps", "yes: with topic", "yes", "yes", "yes", "no: hits are not proven"),
    ("vllm, Rust front end", "0.31.0", "yes: maps", "yes: with topic", "yes: OpenMetrics", "yes", "yes", "yes"),
    ("sglang", "0.4.7 0.5.9", "yes: pages", "yes", "yes", BY_LOAD, ONE_RANK, "yes"),
    ("sglang, adapters and salted prompts", "0.5.9", "no: taken for the base model's without",
     "yes", "yes", BY_LOAD, ONE_RANK, "yes"),
    ("trtllm", "1.2.0", "yes: maps", "yes: with topic", "yes: `/prometheus/metrics`", BY_LOAD, ONE_RANK, "yes"),
    ("trtllm, adapters and salted prompts", "1.2.0", "no: taken for the base model's without", "yes: with topic", "yes",
     BY_LOAD, ONE_RANK, "yes"),
)
NAMES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
ADAPTERS, SALT = [{"model": "a"}, {"model": "b"}], [{"cache_salt": "s"}]
# options, and requests whose prompts the base model does not have
VARIANTS = {
    "": ([], []),
    "a process for each rank": (["--data-parallel-rank", 1], []),
    "Rust front end": (["--frontend", "rust"], []),
    "CPU tier": (["--offload-blocks", 64], []),
    "CPU tier that describes itself": (["--offload-blocks", 64, "--offload-self-describing"], []),
    "usage details off": (["--enable-prompt-tokens-details", 0], []),
    "adapters": (["--lora", "a,b"], ADAPTERS),
    "salted prompts": ([], SALT),
    "adapters and salted prompts": (["--lora", "a,b"], ADAPTERS + SALT),
    "hashes as bytes": (["--kv-hash-format", "bytes"], []),
    "hybrid": (["--kv-groups", "sliding_window:64:32,mamba:0:64"], []),
}
SMALL = ("--profile", "zero", "--tokenizer", "ids", "--num-gpu-blocks", 256, "--max-model-len", 4000, "--max-num-seqs", 1,
         "--kv-replay-endpoint", "tcp://127.0.0.1:*")
PROMPT, BLOCK = 320, 16


def table():
    """As Markdown."""
    out = ["| engine | versions tried | " + " | ".join(COLUMNS) + " |", "|" + " --- |" * (len(COLUMNS) + 2)]
    for engine, versions, *cells in TABLE:
        kind, comma, variant = engine.partition(",")
        name = NAMES[kind] + comma + variant
        first, *_, last = versions.split() + [versions.split()[-1]]
        span = first if first == last else f"{first} to {last}, {len(versions.split())} of them"
        out.append(f"| {name} | {span} | " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


class Engine:
    """One emulated engine, the set it is, and what was sent there."""

    def __init__(self, house, row, version):
        self.kind, _, variant = row[0].partition(", ")
        variant, self.foreigners = VARIANTS[variant]
        self.foreign = []                                       # prompts of theirs
        self.want = dict(zip(COLUMNS, row[2:]))
        self.alone = "--data-parallel-rank" in variant
        self.ranks = 2 if self.kind == "vllm" and not self.alone else 1
        self.model = "-".join(re.findall(r"[a-zA-Z0-9]+", f"{row[0]} {version}")).lower()
        self.house, self.seed, self.sent = house, len(house.engines) * 100000, []
        options = ["--engine", self.kind, "--version", version, "--data-parallel-size", self.ranks, *variant]
        self.worker = h.Worker(house.folder, self.model, *options, *SMALL, model=self.model)
        house.workers.append(self.worker)

    def set(self):
        w = self.worker
        member = f"{{name: {self.model}, url: 'http://127.0.0.1:{w.port}', kvEvents: 'tcp://127.0.0.1:{w.kv_port}', " \
                 f"kvReplay: '{w.kv_replay}'}}"
        return f"""---
apiVersion: pointsman.io/v1alpha1
kind: InferenceWorkerSet
metadata: {{name: {self.model}}}
spec:
  {{engine: {self.kind}, model: {self.model}, dataParallelRanks: {self.ranks}, scrapeInterval: 200ms, members: [{member}]}}
"""

    def prompt(self):
        """A new one."""
        self.seed += 1000
        return [self.seed + i for i in range(PROMPT)]

    def ask(self, prompt, **more):
        """Through Pointsman: the answer, and which rank was meant."""
        status, body, headers = h.request(self.house.port, "POST", "/v1/completions",
                                          {"model": self.model, "prompt": prompt, "max_tokens": 2, **more})
        assert status == 200, (self.model, status, body)
        headers = {k.lower(): v for k, v in headers.items()}
        self.sent.append(headers)
        return body, headers

    def explain(self, headers):
        return json.loads(self.house.ctl("explain", headers["x-pointsman-request-id"], "--output", "json").stdout)

    def rows(self, all_rows):
        """Pointsman's rows of it, by rank."""
        return sorted((r for r in all_rows if r["worker"] == self.model), key=lambda r: r["rank"])

    # ---- what is asked ----

    def warm(self):
        """Prompts with and without anything cached; what the last of them brought back."""
        self.first = self.prompt()
        self.ask(self.first)
        for _ in range(3):
            self.ask(self.prompt())
        for more in self.foreigners:
            self.foreign.append(self.prompt())
            status, body, _ = self.worker.get("/v1/completions", {"prompt": self.foreign[-1], "max_tokens": 1, **more})
            assert status == 200, body
        for i in range(3):
            self.proof = self.ask(self.first + [i] * 8)

    def lose(self):
        """A batch is lost on each rank, and the next one shows it."""
        self.gaps = {r["rank"]: r["cache"]["gaps"] for r in self.rows(self.house.rows())}
        for drop in (1, 0):
            self.worker.get("/emu/config", {"drop-events": drop})
            before, tries = self.sequence(), 0
            while any(a == b for a, b in zip(before, self.sequence())):     # each rank says something
                tries += 1
                assert tries < 50, self.model
                status, body, _ = h.request(self.worker.port, "POST", "/v1/completions",
                                            {"model": self.model, "prompt": self.prompt(), "max_tokens": 2},
                                            {"X-data-parallel-rank": str(self.alone + tries % self.ranks)})
                assert status == 200, body

    def sequence(self):
        return [r["next_seq"] for r in self.worker.state()["ranks"]]

    # ---- what must have come of it ----

    def settled(self, all_rows):
        applied = [r["cache"]["sequence_applied"] for r in self.rows(all_rows)]
        return applied == [s - 1 if s > 0 else None for s in self.sequence()]

    def differences(self, index):
        """Between what the engine holds and what the index says, rank by rank."""
        state = self.worker.get("/emu/state?hashes=1&tokens=1")[1]
        assert state["cached_all_shown"]
        said = {r["rank"]: r for r in self.rows(index["workers"])}
        for rank in range(self.ranks):
            first = [b for b in state["cached"] if b["rank"] == rank + self.alone and b["group"] == 0]
            held, copied = ([b for b in first if b["tier"] == tier] for tier in ("GPU", "CPU"))
            row = said[rank]
            if (row["exact_gpu"], row["exact_offload"]) != (len(held), len(copied)) or held and row["cache"] != "exact":
                return f"rank {rank}: the engine holds {len(held)} and {len(copied)} copies, the index {row}"
            # the longest chain, asked for by its tokens
            by_hash = {b["hash"]: b for b in held}
            plain = [b for b in held if not b["lora"] and not b["salt"]]
            chain, leaf = [], max(plain, key=lambda b: b["start"], default=None)
            while leaf:
                chain[:0] = leaf["token_ids"]
                leaf = by_hash[leaf["parent"]] if leaf["parent"] else None
            got = self.depth(chain).get(rank, 0)
            if got != len(chain) // BLOCK:
                return f"rank {rank}: {len(chain) // BLOCK} blocks of a chain held, the index knows {got}"
        return None

    def mistaken(self):
        """Prompts of adapters or with a salt that are taken for others."""
        return [d for d in map(self.depth, self.foreign) if d]

    def depth(self, tokens):
        """How many blocks of these tokens the index knows on each of its ranks, without adapter and salt."""
        path = self.house.folder / f"{self.model}.json"
        path.write_text(json.dumps(tokens))
        told = self.house.ctl("index", "--tokens", path, "--model", self.model, "--output", "json") if tokens else None
        ranks = {r["row"]: r["rank"] for r in self.rows(self.house.rows())} if tokens else {}
        return {ranks[d["row"]]: d["any"] for d in json.loads(told.stdout)["depth"]} if tokens else {}

    def ranks_agree(self):
        """Of each request, the rank meant and the one that served."""
        served = {r["x_request_id"]: r["rank"] for r in self.worker.requests() if r["ev"] == "start"}
        meant = [(int(s["x-pointsman-worker"].rpartition(":")[2]), served[s["x-pointsman-request-id"] + "-1"])
                 for s in self.sent]
        assert len(meant) >= 7
        return all(a == b for a, b in meant) and {a for a, _ in meant} == {0, 1}

    def busy(self, all_rows):
        """Do Pointsman's readings say what each rank runs and lets wait, three in all?"""
        want = [(r["running"], r["waiting"]) for r in self.worker.state()["ranks"]]
        got = [(r["reading"].get("running"), r["reading"].get("waiting")) for r in self.rows(all_rows)]
        return sum(map(sum, want)) == 3 and got == want


class Compat(h.House):
    def __init__(self, only):
        super().__init__(model="none")
        self.only, self.engines = only, []

    def __enter__(self):
        try:
            self.open()
        except BaseException:
            for w in self.workers:
                w.stop()
            raise
        return self

    def open(self):
        for row in TABLE:
            for version in row[1].split():
                if not self.only or version in self.only:
                    self.engines.append(Engine(self, row, version))

    def rows(self):
        return json.loads(self.ctl("workers", "--output", "json").stdout)["workers"]

    def index(self):
        return json.loads(self.ctl("index", "--output", "json").stdout)

    def write(self, text=None):
        models = ", ".join(f"{{name: {e.model}, policy: standard}}" for e in self.engines)
        sets = ", ".join(e.model for e in self.engines)
        super().write(f"""apiVersion: pointsman.io/v1alpha1
kind: GatewayBackend
metadata: {{name: front}}
spec:
  listen: {json.dumps(self.listen)}
  admin: {{listen: "127.0.0.1:{self.admin}"}}
  models: [{models}]
{"".join(e.set() for e in self.engines)}---
apiVersion: pointsman.io/v1alpha1
kind: InferencePool
metadata: {{name: all}}
spec: {{workerSets: [{sets}]}}
---
apiVersion: pointsman.io/v1alpha1
kind: InferencePolicy
metadata: {{name: standard}}
spec: {{candidates: [{{pool: all}}], minimize: PredictedTTFT}}
""")

    def each(self, f):
        """f of every engine, several at a time."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            return dict(zip(self.engines, pool.map(f, self.engines)))

    def wait_settled(self, what, limit_s=20, exact=False):
        """Those of which Pointsman did not hear to the end; exact: or does not say that it met a gap and knows all."""
        late = []

        def done():
            rows = self.rows()
            late[:] = [e for e in self.engines if not e.settled(rows) or
                       exact and any(r["cache"]["state"] != "exact" or r["cache"]["gaps"] <= e.gaps[r["rank"]]
                                     for r in e.rows(rows))]
            return not late
        try:
            h.until(what, done, limit_s)
        except h.Late:
            print(f"{what}: not of {[e.model for e in late]}")
        return late

    def wait_busy(self):
        """Each engine works on three requests at once; those of which it was not known."""
        clients, late = [], set(self.engines)
        try:
            for e in self.engines:
                e.worker.get("/emu/config", {"t-o": 1})
                for _ in range(3):
                    c = http.client.HTTPConnection("127.0.0.1", e.worker.port, timeout=60)
                    c.request("POST", "/v1/completions", json.dumps({
                        "model": e.model, "prompt": e.prompt()[:BLOCK], "max_tokens": 20, "ignore_eos": True}),
                        {"Content-Type": "application/json"})
                    clients.append(c)

            def done():
                rows = self.rows()
                late.difference_update([e for e in late if e.busy(rows)])
                return not late
            try:
                h.until("what runs and waits to be known", done, 10)
            except h.Late as slow:
                print(f"{slow}: not of {[e.model for e in late]}")
        finally:
            for c in clients:
                c.close()
        return late


def check_readme():
    path = h.ROOT / "deploy/README.md"
    said = re.search(r"\n(\| engine \| versions tried .*?\n)(?!\|)", path.read_text(), re.S)
    assert said and said[1] == table(), f"{path}: its table is not what `compat.py --table` prints:\n{table()}"


if sys.argv[1:] == ["--table"]:
    print(table(), end="")
    sys.exit(0)
check_readme()
began = time.monotonic()
with Compat(sys.argv[1:]) as house:
    house.start()
    h.until("all workers to be up", lambda: all(r["state"] == "up" for r in house.rows()))
    engines, got = house.engines, {e: {} for e in house.engines}
    house.each(Engine.warm)
    late = house.wait_settled("all events to be in the index")
    index = house.index()
    for e, differs in house.each(lambda e: e.differences(index)).items():
        mistaken = e.mistaken()
        got[e]["events"] = differs is None and not mistaken and e not in late
        assert not mistaken or len(mistaken) == len(e.foreign), (e.model, mistaken)
        if differs:
            print(f"{e.model}: {differs}")
        got[e]["rank header"] = e.ranks > 1 and e.ranks_agree()

    def proven(e):
        body, headers = e.proof
        proof = body["usage"].get("prompt_tokens_details", {}).get("cached_tokens")
        outcome = e.explain(headers)["outcome"]
        text = e.ask(" ".join(map(str, e.prompt())))[1]
        source = e.explain(text)["decisions"][-1]
        return (proof is not None and outcome["cached_tokens"] == proof,
                source["prompt_tokens"] == PROMPT and source["blocks"] == PROMPT // BLOCK)
    for e, (usage, tokens) in house.each(proven).items():
        got[e]["usage details"], got[e]["`/tokenize`"] = usage, tokens
    house.wait_settled("the events of text prompts to be in the index")
    house.each(Engine.lose)
    late = house.wait_settled("what was lost to be replayed", exact=True)
    index, rows = house.index(), house.rows()
    for e, differs in house.each(lambda e: e.differences(index)).items():
        gaps = [r["cache"]["gaps"] > e.gaps[r["rank"]] for r in e.rows(rows)]
        got[e]["replay"] = differs is None and e not in late and all(gaps)
        if not got[e]["replay"]:
            print(f"{e.model}: gaps {gaps}, {differs}")
    # `workers --why` says what is lost
    why = {w["worker"]: w["why"] for w in json.loads(house.ctl("workers", "--why", "--output", "json").stdout)["workers"]}
    for e in engines:
        told = {(fact["about"], fact["reason"]) for fact in why[e.model]}
        assert got[e]["replay"] or ("cache", "sequence-hole") in told, (e.model, told)
        assert got[e]["`/tokenize`"] or ("tokens", "some-without") in told, (e.model, told)
    late = house.wait_busy()
    for e in engines:
        got[e]["metrics"] = e not in late
    wrong = [f"{e.model}: {column}: the table says '{e.want[column]}', and it is '{'yes' if got[e][column] else 'no'}'"
             for e in engines for column in COLUMNS if got[e][column] != e.want[column].startswith("yes")]
    assert not wrong, "\n".join(["", *wrong])
    print(f"{len(engines)} engines, {len(engines) * len(COLUMNS)} cells as the table says, {time.monotonic() - began:.1f} s")
