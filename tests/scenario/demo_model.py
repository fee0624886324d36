"""The demo model's files are what its script makes; Hugging Face and jinja2 make of it what is recorded.
An emulated engine of its folder makes those tokens of prompts and conversations, and counts them.
Usage: demo_model.py files|peers|engine|commands"""
import filecmp, importlib, json, os, pathlib, subprocess, sys, tempfile, urllib.error, urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "etc/models/demo"
DATA = ROOT / "tests/data/demo"


def files():
    with tempfile.TemporaryDirectory(prefix="pointsman-demo-") as folder:
        subprocess.run([MODEL / "train.py", folder], check=True)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            assert filecmp.cmp(f"{folder}/{name}", MODEL / name, shallow=False), \
                f"{name} is not what train.py makes: run it, then tests/data/demo/record.py"


def peers():
    sys.path[:0] = [str(DATA), str(ROOT / "tests/conformance/hf")]
    try:
        record, peer = importlib.import_module("record"), importlib.import_module("peer")
        rows = json.loads((DATA / "tokens.json").read_text())
        assert [r["text"] for r in rows] == record.strings(), "tokens.json is of other strings: run record.py"
        for row, ids in zip(rows, peer.ids(MODEL / "tokenizer.json", record.strings()), strict=True):
            assert row["ids"] == ids, f"{row['text']!r}: Hugging Face says {ids}, recorded is {row['ids']}"
    except ImportError as error:
        print(f"SKIPPED: {error}")
        sys.exit(77)
    except record.peer.NoPeer as error:
        print(f"SKIPPED: {error}")
        sys.exit(77)
    assert json.loads((DATA / "renders.json").read_text()) == list(record.renders()), "renders.json: run record.py"
    print(f"{len(rows)} strings, {len(record.CASES)} conversations")


def engine():
    binary = pathlib.Path(os.environ.get("PM_BIN", ROOT / "build/release/bin")) / "pointsman-emulator"
    emulator = subprocess.Popen([binary, "--port", "0", "--model", "m", "--model-dir", MODEL, "--profile", "zero",
                                 "--enable-kv-events", "0"], stdout=subprocess.PIPE, text=True)
    try:
        port = dict(w.split("=", 1) for w in emulator.stdout.readline().split()[1:])["port"]

        def ask(path, **body):
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps({"model": "m", **body}).encode())
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)
        for row in json.loads((DATA / "tokens.json").read_text()):
            if not row["text"]:
                continue        # an engine refuses an empty prompt
            status, got = ask("/tokenize", prompt=row["text"])
            assert status == 200 and got["tokens"] == row["ids"], (row, got)
        same = 0        # requests that vLLM gives to the template as they are
        for case in json.loads((DATA / "renders.json").read_text()):
            context = dict(case["context"])
            if case["case"] not in ("one question", "no new turn", "system turn first", "without thought", "control text in content"):
                continue
            kwargs = {"enable_thinking": context.pop("enable_thinking")} if "enable_thinking" in context else {}
            status, chat = ask("/tokenize", **context, chat_template_kwargs=kwargs)
            _, text = ask("/tokenize", prompt=case["rendered"])
            assert status == 200 and chat["tokens"] == text["tokens"], (case, chat, text)
            _, said = ask("/v1/chat/completions", **context, chat_template_kwargs=kwargs, max_tokens=1)
            assert said["usage"]["prompt_tokens"] == len(chat["tokens"]), (case, said)
            same += 1
        assert same == 5
        status, got = ask("/v1/chat/completions", messages=[{"role": "critic", "content": "No."}])
        assert status == 400 and "no such role: critic" in got["error"]["message"], got
        urllib.request.urlopen(f"http://127.0.0.1:{port}/emu/config", b'{"tokenize":0}').close()
        assert ask("/tokenize", prompt="x")[0] == 404
    finally:
        emulator.terminate()
        emulator.wait()


def commands():
    """What the commands say of requests that they make nothing of: which it is, and why."""
    binary = pathlib.Path(os.environ.get("PM_BIN", ROOT / "build/release/bin")) / "pointsctl"

    def says(command, body, *options):
        r = subprocess.run([binary, command, "--model", MODEL, *options], input=json.dumps(body), capture_output=True,
                           text=True, timeout=60)
        assert r.returncode == 1 and r.stdout == "", r
        return r.stderr
    blocks = ("--block-size", "16")
    assert "--route completions?" in says("blocks", {"prompt": "a"}, *blocks)
    assert "--route responses?" in says("render", {"input": "a"})
    assert "--route" not in says("blocks", {"prompt": "a"}, *blocks, "--route", "chat")
    assert "--route" not in says("blocks", {"messages": []}, *blocks)
    half = {"messages": [{"role": "user", "content": "a\ud83db"}]}
    assert "half a surrogate pair" in says("render", half) and "half a surrogate pair" in says("blocks", half, *blocks)
    assert "cache_salt" in says("blocks", {"messages": [{"role": "user", "content": "a"}], "cache_salt": "a/b"}, *blocks)


{"files": files, "peers": peers, "engine": engine, "commands": commands}[sys.argv[1]]()
