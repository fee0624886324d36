"""Every page of an engine that was recorded or reported is decoded as written down, with the lines that said so.

    decode_metrics.py [--write]     --write: write it down anew, to be looked at before it is kept
"""
import json, os, subprocess, sys

import house as h

DATA = h.ROOT / "tests/data"
PAGES = sorted([*(DATA / "metrics").iterdir(), *(DATA / "cases/mx").glob("*.prom"), *DATA.glob("vllm-*/*.prom")])


def decode(*args):
    return subprocess.run([h.BIN / "pointsctl", "decode", "metrics", *map(str, args)], capture_output=True, text=True,
                          cwd=DATA)


assert len(PAGES) >= 12, PAGES
for page in PAGES:
    text = ""
    for ranks in (1, 2) if "engine=\"1\"" in page.read_text() else (1,):
        r = decode("--ranks", ranks, page.relative_to(DATA))
        bad = "not readable" in r.stdout
        assert r.returncode == bad and not r.stderr, (page, r)
        text += r.stdout
    golden = DATA / "golden/metrics" / f"{page.name}.txt"
    if "--write" in sys.argv:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text)
    assert golden.read_text() == text, f"{page.name} is not decoded as in {golden}:\n{text}"

# The engine may be said: another's page then says nothing of use.
r = decode("--engine", "vllm", "metrics/sglang_2026-07.prom")
assert r.returncode == 0 and "no-series" in r.stdout and "waiting       unknown" in r.stdout, r
r = decode("--output", "json", "cases/mx/mx02_engines.prom")
rows = json.loads(r.stdout)["rows"]
assert rows[0]["waiting"] == {"value": 12, "lines": [1, 2]} and rows[0]["num_blocks"]["value"] is None, rows
for args, code, said in ((["--engine", "sgl", "x"], 2, "sgl"), (["--ranks", "0", "x"], 2, "--ranks"),
                         (["no/such/page"], 1, "No such file")):
    r = decode(*args)
    assert r.returncode == code and said in r.stderr, r
# Half a page: what was cut is unknown, what was said whole counts.
whole = (DATA / "metrics/vllm_main_2026-08.prom").read_bytes()
cut = whole.index(b'vllm:num_requests_waiting{') + 30
r = subprocess.run([h.BIN / "pointsctl", "decode", "metrics", "-"], input=whole[:cut], capture_output=True)
assert b"running       6" in r.stdout and b"waiting       unknown" in r.stdout and b"in-part" in r.stdout, r
print(f"{len(PAGES)} pages decoded as written down")
