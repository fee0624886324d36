"""prompt -- from a request to its token ids: how fast, beside Hugging Face's tokenizers and jinja2 in the same run.

    tests/bench/run prompt [--model qwen3|demo] [--turns 3] [--only files,text,long,render,turn] [--quick]

One core (taskset), CPU time, the best of 3; ours and theirs in turns.  The texts are corpus.py's, 8 MB each; each is
read once by a tokenizer that has seen nothing, in documents of 8,000 bytes.  Behind a figure in brackets: how many
pieces (of the model's expression) had not come before in that text, how many were not in the word cache.
    prompt_mixed_mb_s      a third English, code, JSON, Markdown, twelve languages;  _english_ and _cjk_ alike
    prompt_new_mb_s        words of which hardly any comes twice: what our tables are of no use for
    prompt_worst_mb_s      the slowest of six strings of 1 MB without spaces
    prompt_vs_hf_ratio     mixed text, beside Hugging Face's tokenizers (npm @anush008/tokenizers)
    prompt_load_ms         opening a compiled tokenizer; _compile_ms making it, _size_mb
    prompt_render_us       31 messages, 26 kB, by Qwen3's template; _worst_us by the slowest of all templates at hand
    prompt_vs_jinja_ratio  the same conversation by Qwen3's template, beside python3-jinja2
    prompt_turn_100k_ms    request to match: a conversation of 400 kB that went on by 200 tokens
    prompt_cold_16k_ms     request to match: 62 kB that nobody has seen

Models are those of ../shared/data/tokenizers (PM_TOKENIZERS); where they are not, the demo model is measured, and said.
--quick: small texts, no peers, no limits: that all of it still runs.
"""
import argparse, json, lzma, os, pathlib, shutil, statistics, subprocess, sys, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tests/conformance/hf"), str(ROOT / "tests/data/demo")]
import corpus, peer

LIMITS = {      # name: (value, at most?)
    "mixed_mb_s": (60, False), "english_mb_s": (150, False), "cjk_mb_s": (30, False), "worst_mb_s": (5, False),
    "vs_hf_ratio": (12, False), "load_ms": (5, True), "compile_ms": (500, True), "size_mb": (40, True),
    "render_us": (50, True), "render_worst_us": (200, True), "vs_jinja_ratio": (8, False),
    "turn_100k_ms": (1, True), "cold_16k_ms": (2.5, True),
}
PARTS = ["files", "text", "long", "render", "turn"]

p = argparse.ArgumentParser()
p.add_argument("--model")
p.add_argument("--turns", type=int, default=3)
p.add_argument("--only", default=",".join(PARTS))
p.add_argument("--quick", action="store_true")
p.add_argument("--bin", default=str(ROOT / "build/release/bin"))
p.add_argument("--jinja", nargs=3, help=argparse.SUPPRESS)
a = p.parse_args()
only = a.only.split(",")
if wrong := set(only) - set(PARTS):
    p.error(f"no such part: {', '.join(sorted(wrong))}")
if a.quick:
    a.turns = 1
TOKENIZERS = pathlib.Path(os.environ.get("PM_TOKENIZERS") or ROOT / "../shared/data/tokenizers")
CORE = ["taskset", "-c", str(max(os.sched_getaffinity(0)))]


def jinja_best_us(template, context, print_it):
    """In a process of its own (--jinja): the best batch, or the text itself."""
    import record
    environment = record.environment()
    environment.globals["strftime_now"] = lambda form: time.strftime(form, time.gmtime(0))
    compiled = environment.from_string(pathlib.Path(template).read_text())
    context = json.loads(pathlib.Path(context).read_text())
    if print_it == "text":
        sys.stdout.write(compiled.render(**context))
        return
    best = None
    for _ in range(9):
        start = time.thread_time()
        for _ in range(20):
            compiled.render(**context)
        us = (time.thread_time() - start) / 20 * 1e6
        best = us if best is None else min(best, us)
    print(best)


if a.jinja:
    jinja_best_us(*a.jinja)
    sys.exit(0)


def say(name, value, unit, beside=""):
    limit, most = LIMITS.get(name, (None, False))
    notes = []
    if limit is not None and not a.quick:
        over = value > limit if most else value < limit
        notes.append(f"limit {'<=' if most else '>='} {limit}{' over' if over else ''}")
    if beside:
        notes.append(beside)
    digits = 0 if value >= 1000 else 1 if value >= 100 else 2 if value >= 1 else 4
    print(f"prompt_{name} {value:.{digits}f} {unit}" + (f" ({'; '.join(notes)})" if notes else ""), flush=True)


def ours(*args):
    r = try_ours(*args)
    if r.returncode:
        sys.exit(f"{args[0]}: {r.stderr.strip() or r.returncode}")
    return r.stdout


def try_ours(*args):
    program = "bench_tokens" if args[0] in ("files", "encode", "whole") else "bench_request"
    return subprocess.run([*CORE, f"{a.bin}/{program}", *map(str, args)], capture_output=True, text=True)


def rows(text):
    return [[float(x) for x in line.split()] for line in text.splitlines()]


def model_folder(name, place):
    """The model's files as a folder of Hugging Face's layout."""
    if name == "demo":
        return ROOT / "etc/models/demo"
    source = TOKENIZERS / "tokenizers" / name
    folder = place / name
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "tokenizer.json").exists():
        (folder / "new").write_bytes(lzma.decompress((source / "tokenizer.json.xz").read_bytes()))
        (folder / "new").rename(folder / "tokenizer.json")
    for file in source.glob("*.json"):
        shutil.copy(file, folder)
    template = TOKENIZERS / "templates" / f"{name}.jinja"
    if template.exists():
        shutil.copy(template, folder / "chat_template.jinja")
    return folder


def texts(place):
    size = 1 / 16 if a.quick else 8
    key = f"{size} {hash_of(pathlib.Path(corpus.__file__), corpus.MODEL / 'corpus.txt.xz', corpus.MODEL / 'languages.txt')}"
    made = place / "made"
    if not made.exists() or made.read_text() != key:
        corpus.write(place, int(size * (1 << 20)))
        made.write_text(key)
    return place


def hash_of(*files):
    import hashlib
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()


def hugging_face(model, text):
    r = subprocess.run([*CORE, "node", "speed.mjs", str(model / "tokenizer.json"), str(text)], cwd=peer.PLACE,
                       capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"speed.mjs: {r.stderr.strip()}")
    return json.loads(r.stdout)


def measure_text(model, place, theirs):
    names = ["mixed", "english", "cjk", "new"]
    best, hf = {}, {}
    for _ in range(a.turns):
        for name, row in zip(names, rows(ours("encode", model, *(place / f"{n}.txt" for n in names)))):
            if name not in best or row[0] < best[name][0]:
                best[name] = row
        if theirs:
            for name in names[:3]:
                got = hugging_face(model, place / f"{name}.txt")
                if name not in hf or got["seconds"] < hf[name]["seconds"]:
                    hf[name] = got
    for name in names:
        seconds, size, tokens, pieces, new, cached = best[name]
        beside = f"{size / 1e6:.1f} MB, {tokens:.0f} tokens, {pieces:.0f} pieces, {100 * new:.0f} % new, " \
                 f"{100 * (1 - cached):.0f} % not in the word cache"
        if name in hf:
            # Their text has the same documents but for where a cut falls: the same tokens to a few.
            assert abs(hf[name]["tokens"] - tokens) < tokens / 1000, f"{name}: {tokens} tokens, Hugging Face {hf[name]['tokens']}"
            beside += f"; Hugging Face {size / 1e6 / hf[name]['seconds']:.2f} MB/s"
        say(f"{name}_mb_s", size / 1e6 / seconds, "MB/s", beside)
    if "mixed" in hf:
        say("vs_hf_ratio", hf["mixed"]["seconds"] / best["mixed"][0], "x", ", ".join(
            f"{n} {hf[n]['seconds'] / best[n][0]:.1f}" for n in names[1:3]))


def measure_long(model, place):
    paths = sorted((place / "long").glob("*.txt"))
    best = {}
    for _ in range(a.turns):
        for path, row in zip(paths, rows(ours("whole", model, *paths))):
            speed = row[1] / 1e6 / row[0]
            best[path.stem] = max(best.get(path.stem, 0), speed)
    name, speed = min(best.items(), key=lambda x: x[1])
    say("worst_mb_s", speed, "MB/s", f"{name}; " + ", ".join(f"{n} {s:.0f}" for n, s in best.items() if n != name))


def measure_files(model):
    compile_ms, load_ms, size = (min(x) for x in zip(*(rows(ours("files", model))[0] for _ in range(a.turns))))
    say("compile_ms", compile_ms, "ms")
    say("load_ms", load_ms, "ms", "checked whole")
    say("size_mb", size / 1e6, "MB")


def jinja_run(template, context, print_it="time"):
    return subprocess.run([*CORE, sys.executable, __file__, "--jinja", str(template), str(context), print_it],
                          capture_output=True, text=True)


def measure_render(model, place, have_jinja):
    own = model / "chat_template.jinja"
    renders = 2 if a.quick else 200
    templates = sorted((TOKENIZERS / "templates").glob("*.jinja")) or [own]
    talk = place / "talk.json"
    if have_jinja:
        expected = jinja_run(own, talk, "text").stdout
        assert expected and ours("render", own, talk, 0) == expected, "the text is not jinja2's"
    us, theirs = [], []
    for _ in range(a.turns):
        us.append(float(ours("render", own, talk, renders).split()[0]))
        if have_jinja:
            theirs.append(float(jinja_run(own, talk).stdout))
    say("render_us", min(us), "us", f"{own.parent.name}, 31 messages, 26 kB")
    worst = {}
    for template in templates:
        for context in (talk, place / "talk_tools.json"):
            r = try_ours("render", template, context, renders)
            if r.returncode:
                if have_jinja and jinja_run(template, context, "text").returncode == 0:
                    sys.exit(f"{template.name}: {r.stderr.strip()}")
                continue            # a template that refuses such a conversation
            worst[f"{template.stem}{', functions' if context != talk else ''}"] = float(r.stdout.split()[0])
    name, value = max(worst.items(), key=lambda x: x[1])
    say("render_worst_us", value, "us", f"{name}; {len(worst)} renders by {len(templates)} templates, median "
        f"{statistics.median(worst.values()):.0f}")
    if theirs:
        say("vs_jinja_ratio", min(theirs) / min(us), "x", f"python3-jinja2 {min(theirs):.0f} us")


def measure_turn(model, place):
    for what, name in (("turn", "turn_100k_ms"), ("cold", "cold_16k_ms")):
        files = sorted(place.glob(f"{what}-*.json"))
        best = min(rows(ours(what, model, *files))[0] for _ in range(a.turns))
        say(name, best[0], "ms", f"{best[1]:.0f} tokens" + (f", {best[2]:.0f} blocks held" if what == "turn" else ""))


def main():
    place = ROOT / "build/bench" / ("quick" if a.quick else "prompt")
    place.mkdir(parents=True, exist_ok=True)
    name = a.model or ("demo" if a.quick else "qwen3")
    if name != "demo" and not (TOKENIZERS / "tokenizers" / name).is_dir():
        print(f"SKIPPED: {name} is not in {TOKENIZERS}; these are the demo model's figures, which has 6,144 tokens")
        name = "demo"
    theirs, have_jinja = not a.quick, True
    if theirs:
        try:
            peer.install()
        except peer.NoPeer as error:
            print(f"SKIPPED: Hugging Face's tokenizers: {error}")
            theirs = False
    try:
        import jinja2
    except ImportError as error:
        print(f"SKIPPED: jinja2: {error}")
        have_jinja = False
    model = model_folder(name, place)
    texts(place)
    if "text" in only:
        measure_text(model, place, theirs)
    if "long" in only:
        measure_long(model, place)
    if "files" in only:
        measure_files(model)
    if "render" in only:
        measure_render(model, place, have_jinja)
    if "turn" in only:
        measure_turn(model, place)


main()
