"""Hugging Face's tokenizers through npm, for tests and benches: install(), ids(), and NoPeer with the reason."""
import fcntl, json, pathlib, shutil, subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
HERE = pathlib.Path(__file__).resolve().parent
PLACE = ROOT / "build/hf"


class NoPeer(Exception):
    """It cannot be had here; why."""


def install():
    """A folder where node finds the package; made once."""
    if not shutil.which("node") or not shutil.which("npm"):
        raise NoPeer("no node or npm")
    PLACE.mkdir(parents=True, exist_ok=True)
    with open(PLACE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for file in HERE.glob("*.mjs"):
            shutil.copy(file, PLACE)
        want = (HERE / "package.json").read_text()
        done = PLACE / "installed"
        if not done.exists() or done.read_text() != want:
            shutil.copy(HERE / "package.json", PLACE)
            r = subprocess.run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], cwd=PLACE,
                               capture_output=True, text=True, timeout=180)
            if r.returncode:
                raise NoPeer("npm did not give @anush008/tokenizers: " + r.stderr.strip()[-300:])
            done.write_text(want)
    return PLACE


def ids(tokenizer_json, texts, special=False):
    """The token ids of each text."""
    place = install()
    r = subprocess.run(["node", "ids.mjs", str(pathlib.Path(tokenizer_json).resolve()), *(["--special"] if special else [])],
                       cwd=place, input="".join(json.dumps(t) + "\n" for t in texts), capture_output=True, text=True)
    if r.returncode:
        raise NoPeer(f"node ids.mjs: {r.stderr.strip()[-300:]}")
    return [json.loads(line) for line in r.stdout.splitlines()]
