"""The official OpenAI Node SDK works through the real processes: streaming and not, tools, errors, abort."""
import os, pathlib, shutil, subprocess, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

place = h.ROOT / "build/conformance"
place.mkdir(parents=True, exist_ok=True)
for name in ("package.json", "openai.mjs"):
    shutil.copy(h.ROOT / "tests/conformance" / name, place)
if not shutil.which("node") or not shutil.which("npm"):
    print("SKIPPED: no node or npm")
    sys.exit(77)
if not (place / "node_modules/openai").exists():
    r = subprocess.run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], cwd=place,
                       capture_output=True, text=True, timeout=300)
    if r.returncode != 0:
        print("SKIPPED: the npm registry did not give the SDK:\n" + r.stderr[-500:])
        sys.exit(77)

with h.House(ingresses=2) as house:
    house.add("--time-scale", 50, count=2)
    house.start()
    r = subprocess.run(["node", "openai.mjs"], cwd=place, text=True, timeout=120, capture_output=True,
                       env={**os.environ, "BASE_URL": f"http://127.0.0.1:{house.port}/v1", "MODEL": house.model})
    print(r.stdout + r.stderr)
    if r.returncode != 0:
        raise SystemExit(r.returncode)
    # What was aborted is over at the workers too.
    h.until("the aborted request to end", lambda: all(w.state()["running"] == 0 for w in house.workers))
