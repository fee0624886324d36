#!/usr/bin/python3
"""Expressions say here what they say in CEL: made-up ones over made-up facts, through lines.c and through @bufbuild/cel.

  compare.py BIN [--count N] [--seed S]     BIN: where expression_lines is
Unknown here is an error there; a number that is not known is NaN here.  Ends with the first differences, or none.
Skips (77) where there is no node or npm, or the registry does not give the package."""
import argparse, collections, json, pathlib, random, re, shutil, subprocess, sys

HERE = pathlib.Path(__file__).resolve().parent
PLACE = HERE.parents[2] / "build/conformance-cel"

POOLS, TAGS = ["qwen-small", "qwen-large"], ["pii", "simple", "code"]
CHOICES = {"candidate.kind": ["Worker", "Provider"],
           "candidate.state": ["absent", "draining", "down", "suspect", "unproven", "up"],
           "candidate.cacheState": ["none", "exact", "gap", "replaying", "stale", "approximate"],
           "candidate.pool": ["", *POOLS], "candidate.provider": ["", "bedrock-us", "azure"],
           "request.tenant": ["", "acme", "initech"], "request.model": ["m", "standard-model"]}
FREE = ["request.path", "candidate.name", "candidate.model"]
INTS = ["request.promptTokens", "request.maxTokens", "request.messages", "request.tools", "request.priority",
        "candidate.cachedTokens", "candidate.waiting", "candidate.running", "candidate.pendingTokens",
        "candidate.scraped.waiting"]
DOUBLES = ["candidate.cachedShare", "candidate.kvUsage", "candidate.predictedTTFT", "candidate.cost"]
POOL_INTS, POOL_DOUBLES = ["ready", "waiting"], ["kvUsage"]
HEADERS, LABELS = ["x-team", "accept", "x-long-name"], ["zone", "rack"]
WORDS = ["", "a", "b", "abc", "/v1/chat", "äö", "😀x", "A", "w1", "it's", "a\\b", "line\nend", "\t", "m"]
PATTERNS = ["a", "^a", "b$", "^a.c$", "[a-c]+", "(a|b)c?", "^$", "x{2}", "\\\\d", "w[0-9]", "^/v1/.*t$", "ö|x"]
EDGES = [0, 1, 2, 3, 7, 64, 1000, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *of):
        return self.r.choice(of)

    def number(self):
        n = self.r.choice(EDGES) if self.r.random() < 0.4 else self.r.randrange(20)
        return n if self.r.random() < 0.8 else -n

    def facts(self):
        """What is left out is unknown."""
        out = {"request": {}, "candidate": {}, "pool": {}}

        def put(path, v):
            if self.r.random() < 0.15:
                return
            at = out
            for part in path.split(".")[:-1]:
                at = at.setdefault(part, {})
            at[path.split(".")[-1]] = v
        for name, choices in CHOICES.items():
            put(name, self.r.choice(choices))
        for name in FREE:
            put(name, self.r.choice(WORDS))
        for name in INTS:
            put(name, {"int": str(self.number())})
        for name in DOUBLES:
            put(name, {"double": repr(self.r.choice([0.0, 0.5, 1.0, 1.5, 1e300, self.r.random(), 3.0]))})
        put("request.stream", self.r.random() < 0.5)
        put("request.tags", [t for t in TAGS if self.r.random() < 0.5])
        put("request.headers", {h: self.r.choice(WORDS) for h in HEADERS if self.r.random() < 0.6})
        # labels are always known; one may not be there
        out["candidate"]["labels"] = {x: self.r.choice(WORDS) for x in LABELS if self.r.random() < 0.6}
        for pool in POOLS:
            out["pool"][pool] = {}
            for name in POOL_INTS:
                if self.r.random() < 0.8:
                    out["pool"][pool][name] = {"int": str(self.number())}
            for name in POOL_DOUBLES:
                if self.r.random() < 0.8:
                    out["pool"][pool][name] = {"double": repr(self.r.random())}
        out["candidate"].setdefault("scraped", {})
        return out

    def quoted(self, text):
        q = self.pick("'", '"')
        s = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace(q, "\\" + q)
        return q + s + q

    def blank(self):
        return self.pick("", "", " ", "  ", "\n", " // so\n") if self.r.random() < 0.2 else " "

    def binary(self, op, a, b):
        return f"{a}{self.blank()}{op}{self.blank()}{b}"

    def group(self, text):
        return f"({text})" if self.r.random() < 0.85 else text

    def string(self, d):
        k = self.r.randrange(8)
        if d > 0 and k == 0:
            return f"(({self.bool(d - 1)}) ? ({self.string(d - 1)}) : ({self.string(d - 1)}))"
        if k < 3:
            return self.quoted(self.r.choice(WORDS))
        if k == 3:
            h = self.r.choice(HEADERS)
            return f"request.headers[{self.quoted(h)}]" if "-" in h or self.r.random() < 0.5 else f"request.headers.{h}"
        if k == 4:
            return f"candidate.labels.{self.r.choice(LABELS)}"
        return self.r.choice(FREE)

    def pool(self):
        return f"pool[{self.pick(self.quoted(self.r.choice(POOLS)), 'candidate.pool')}]"

    def int(self, d):
        k = self.r.randrange(12)
        if d <= 0 or k < 4:
            n = self.number()
            return self.pick(str(n), self.r.choice(INTS), self.r.choice(INTS), f"{self.pool()}.{self.r.choice(POOL_INTS)}",
                             hex(n) if n >= 0 else str(n))
        if k < 9:
            return self.group(self.binary(self.pick("+", "-", "*", "/", "%"), self.group(self.int(d - 1)), self.group(self.int(d - 1))))
        if k == 9:
            return self.pick(f"size({self.string(d - 1)})", "size(request.tags)", f"size([{self.int(d - 1)}, {self.int(d - 1)}])",
                             f"int({self.double(d - 1)})", f"int({self.uint(d - 1)})")
        if k == 10:
            return f"-({self.int(d - 1)})"
        return self.pick(f"(({self.bool(d - 1)}) ? ({self.int(d - 1)}) : ({self.int(d - 1)}))",
                         f"[{self.int(d - 1)}, {self.int(d - 1)}, 7][{self.int(0)}]")

    def uint(self, d):
        k = self.r.randrange(6)
        if d <= 0 or k < 3:
            return f"{abs(self.number())}u"
        if k == 3:
            return f"uint({self.pick(self.int, self.double)(d - 1)})"
        return self.group(self.binary(self.pick("+", "-", "*", "/", "%"), self.group(self.uint(d - 1)), self.group(self.uint(d - 1))))

    def double(self, d):
        k = self.r.randrange(9)
        if d <= 0 or k < 4:
            return self.pick(self.r.choice(DOUBLES), self.r.choice(DOUBLES), f"{self.pool()}.kvUsage", "0.5", "1e3", "2.25",
                             "1.5e-3", ".5", "1e308", "9007199254740993.0")
        if k < 7:
            return self.group(self.binary(self.pick("+", "-", "*", "/"), self.group(self.double(d - 1)), self.group(self.double(d - 1))))
        if k == 7:
            return f"double({self.pick(self.int, self.uint)(d - 1)})"
        return f"-({self.double(d - 1)})"

    def duration(self, d):
        if d > 0 and self.r.random() < 0.4:
            return self.group(self.binary(self.pick("+", "-"), self.group(self.duration(d - 1)), self.group(self.duration(d - 1))))
        return f"duration({self.quoted(self.pick('2s', '1.5s', '250ms', '1m30s', '-3s', '0s', '1h', '10us', '7ns'))})"

    def named(self):
        name = self.r.choice(list(CHOICES))
        v = lambda: self.quoted(self.r.choice(CHOICES[name]))
        return self.pick(self.binary(self.pick("==", "!="), name, v()), self.binary(self.pick("==", "!="), v(), name),
                         f"{name} in [{v()}, {v()}]", f"{name}.startsWith({self.quoted(self.r.choice(WORDS))})")

    def bool(self, d):
        k = self.r.randrange(16)
        if d <= 0 or k == 0:
            return self.pick("true", "false", "request.stream", f"{self.quoted(self.r.choice(TAGS))} in request.tags",
                             self.named(), f"has({self.r.choice(INTS + DOUBLES + FREE)})",
                             f"has(request.headers.{self.pick('accept', 'other')})", f"has(candidate.labels.{self.r.choice(LABELS)})",
                             f"{self.quoted(self.r.choice(HEADERS))} in request.headers")
        if k < 6:
            return self.binary(self.pick("&&", "||"), self.group(self.bool(d - 1)), self.group(self.bool(d - 1)))
        if k == 6:
            return f"!({self.bool(d - 1)})"
        if k == 7:
            return self.group(f"({self.bool(d - 1)}) ? ({self.bool(d - 1)}) : ({self.bool(d - 1)})")
        if k < 12:
            kind = self.pick(self.int, self.double, self.uint, self.string, self.duration, "mixed", self.bool)
            a, b = (self.pick(self.int, self.double, self.uint), self.pick(self.int, self.double, self.uint)) if kind == "mixed" else (kind, kind)
            return self.binary(self.pick("==", "!=", "<", "<=", ">", ">="), f"({a(d - 1)})", f"({b(d - 1)})")
        if k == 12:
            kind = self.pick(self.int, self.double, self.string)
            return f"({kind(d - 1)}) in [{', '.join(kind(d - 1) for _ in range(self.r.randrange(4)))}]"
        if k == 13:
            s = self.string(d - 1)
            return f"({s}).{self.pick('startsWith', 'endsWith', 'contains')}({self.string(d - 1)})"
        if k == 14:
            return f"({self.string(d - 1)}).matches('{self.r.choice(PATTERNS)}')"
        return self.named()


def install():
    if not shutil.which("node") or not shutil.which("npm"):
        print("SKIPPED: no node or npm")
        sys.exit(77)
    PLACE.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "evaluate.mjs"):
        shutil.copy(HERE / name, PLACE)
    if not (PLACE / "node_modules/@bufbuild/cel").exists():
        r = subprocess.run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], cwd=PLACE,
                           capture_output=True, text=True, timeout=180)
        if r.returncode:
            print("SKIPPED: the npm registry did not give @bufbuild/cel:\n" + r.stderr[-500:])
            sys.exit(77)


def same(line, ours, theirs):
    if line["place"] == "test":
        return ours == ("unknown" if theirs.startswith("error") else theirs)
    if theirs.startswith("error") or theirs == "NaN":
        return ours in ("nan", "-nan")
    return float(ours) == float(theirs)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("bin")
    p.add_argument("--count", type=int, default=5000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--show", type=int, default=10)
    a = p.parse_args()
    install()
    m, lines = Maker(a.seed), []
    while len(lines) < a.count:
        number = m.r.random() < 0.2
        text = m.pick(m.int, m.double, m.uint)(m.r.randrange(1, 5)) if number else m.bool(m.r.randrange(1, 5))
        if len(text.encode()) <= 4096:
            lines.append({"place": "number" if number else "test", "text": text, "facts": m.facts()})
    given = "".join(json.dumps(x) + "\n" for x in lines)
    ours = subprocess.run([f"{a.bin}/expression_lines"], input=given, capture_output=True, text=True, check=True).stdout.splitlines()
    theirs = subprocess.run(["node", "evaluate.mjs"], cwd=PLACE, input=given, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(ours) == len(theirs) == len(lines), (len(ours), len(theirs), len(lines))
    differ = [(x, o, t) for x, o, t in zip(lines, ours, theirs) if not same(x, o, t)]
    for x, o, t in sorted(differ, key=lambda d: len(d[0]["text"]))[: a.show]:
        print(f"{x['text']}\n  here {o}\n  CEL  {t}\n  {json.dumps(x['facts'])}")
    errors = collections.Counter(re.sub(r"[^a-z ].*", "", t.removeprefix("error: ")).strip() for t in theirs if t.startswith("error"))
    print("errors there:", dict(errors.most_common(12)))
    kinds = {k: sum(o == k for o in ours) for k in ("true", "false", "unknown")}
    numbers = sum(x["place"] == "number" for x in lines)
    print(f"{len(lines)} expressions, {numbers} of them numbers; {kinds}; {len(differ)} differ from CEL")
    # a comparison in which nearly everything is one thing proves little
    assert min(kinds.values()) > a.count / 20, kinds
    return bool(differ)


sys.exit(main())
