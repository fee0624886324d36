"""deploy/get-tokenizer puts a model's files where it is told, whole, never over others, and says what is wrong.
With npm's registry out of reach only the refusals are tried, and the rest is skipped."""
import os, pathlib, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PM_BIN", ROOT / "build/release/bin"))


def get(*args, **kw):
    return subprocess.run([ROOT / "deploy/get-tokenizer", *args], capture_output=True, text=True, timeout=200, **kw)


with tempfile.TemporaryDirectory(prefix="pointsman-get-") as tmp:
    r = get("../evil", f"{tmp}/a")
    assert r.returncode == 1 and "not a name" in r.stderr, r
    r = get()
    assert r.returncode == 2 and "get-tokenizer NAME" in r.stderr, r
    there = pathlib.Path(tmp, "there")
    there.mkdir()
    (there / "tokenizer.json").write_text("mine")
    r = get("llama2", there)
    assert r.returncode == 1 and "already" in r.stderr and (there / "tokenizer.json").read_text() == "mine", r
    r = get("llama2", f"{tmp}/b")
    if r.returncode:
        assert "npm did not give" in r.stderr and not pathlib.Path(tmp, "b").exists(), r
        print("SKIPPED but for its refusals: " + r.stderr.strip())
        sys.exit(77)
    assert {p.name for p in pathlib.Path(tmp, "b").iterdir()} == {"tokenizer.json", "tokenizer_config.json"}, r
    r2 = subprocess.run([BIN / "pointsctl", "tokenize", "--model", f"{tmp}/b"], input="Hello world", capture_output=True, text=True)
    assert r2.returncode == 0 and r2.stdout.split() == ["22557", "1526"], r2       # as Hugging Face says of this file
    assert "licence" in r.stderr and len(r.stdout.splitlines()) == 2, r
