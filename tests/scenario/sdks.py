"""The official OpenAI and Anthropic Node SDKs work through the real processes: streaming and not, tools, what is
stored, audio, errors, abort.  sdks.py BACKEND"""
import os, pathlib, shutil, subprocess, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

place = h.ROOT / "build/conformance"
place.mkdir(parents=True, exist_ok=True)
for name in ("package.json", "proves.mjs", "openai.mjs", "anthropic.mjs"):
    shutil.copy(h.ROOT / "tests/conformance" / name, place)
if not shutil.which("node") or not shutil.which("npm"):
    print("SKIPPED: no node or npm")
    sys.exit(77)
if not all((place / "node_modules" / name).exists() for name in ("openai", "@anthropic-ai/sdk")):
    r = subprocess.run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], cwd=place,
                       capture_output=True, text=True, timeout=300)
    if r.returncode != 0:
        print("SKIPPED: the npm registry did not give the SDKs:\n" + r.stderr[-500:])
        sys.exit(77)

with h.House(ingresses=2, io=sys.argv[1]) as house:
    # None ends by itself before it has said all that was asked for.
    house.add("--time-scale", 50, "--mean-output", 1e9, count=2)
    house.start()
    for sdk, path in (("openai", "/v1"), ("anthropic", "")):
        r = subprocess.run(["node", f"{sdk}.mjs"], cwd=place, text=True, timeout=120, capture_output=True,
                           env={**os.environ, "BASE_URL": f"http://127.0.0.1:{house.port}{path}", "MODEL": house.model})
        print(f"{sdk}\n{r.stdout}{r.stderr}")
        if r.returncode != 0:
            raise SystemExit(r.returncode)
        # What was aborted is over at the workers too.
        h.until("the aborted request to end", lambda: all(w.state()["running"] == 0 for w in house.workers))
