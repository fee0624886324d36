"""The demo model's files are what its script makes; Hugging Face and jinja2 make of it what is recorded.
Usage: demo_model.py files|peers"""
import filecmp, importlib, json, pathlib, subprocess, sys, tempfile

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


{"files": files, "peers": peers}[sys.argv[1]]()
