"""SIGHUPs and kill -9 of the policy under load: 0 failed, 0 duplicated.  swap_storm.py BACKEND"""
import pathlib, subprocess, sys

here = pathlib.Path(__file__).resolve().parent
r = subprocess.run(["/usr/bin/python3", here.parent / "bench/swap.py", "--hups", "8", "--kills", "2", "--rate", "400",
                    "--ingresses", "2", "--every", "0.5", "--io", sys.argv[1]], text=True, capture_output=True, timeout=200)
print(r.stdout + r.stderr)
values = {line.split()[0]: line.split()[1] for line in r.stdout.splitlines() if len(line.split()) == 3}
assert r.returncode == 0
assert values["swap_done"] == "8" and values["swap_kills"] == "2", values
assert values["swap_failed"] == "0" and values["swap_duplicated"] == "0" and values["swap_missing"] == "0", values
