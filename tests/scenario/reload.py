"""A broken configuration is refused with file:line:column and the old one serves on; a good one is taken."""
import os, pathlib, signal, subprocess, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

with h.House() as house:
    house.add("--profile", "zero")
    house.start()
    assert house.generation() == 1
    assert house.chat("hello")[0] == 200

    good = house.config.read_text()
    house.write(good.replace("minimize:", "minimise:"))
    r = house.ctl("reload", check=False)
    assert r.returncode != 0, r
    line = next(i for i, text in enumerate(house.config.read_text().splitlines(), 1) if "minimise" in text)
    assert f"pointsman.yaml:{line}:3" in r.stdout + r.stderr, r
    assert "minimize" in r.stdout + r.stderr, "the nearest valid name"
    assert house.generation() == 1
    assert house.chat("still here")[0] == 200
    house.hup()
    h.until("the refusal of SIGHUP to show", lambda: house.tail(200).count(": refused, generation 1 serves on") == 2)
    assert house.generation() == 1

    house.write(good.replace("minimize: PredictedTTFT", "minimize: RoundRobin"))
    house.ctl("reload")
    assert house.generation() == 2
    assert house.chat("new rules")[0] == 200

    # Another worker comes by reload alone, and the first one leaves.
    house.add("--profile", "zero")
    first, second = house.workers
    house.workers = [second]
    house.write()
    house.workers = [first, second]
    house.ctl("reload")
    before = second.served()
    for i in range(5):
        status, _, headers = house.chat(f"number {i}")
        assert status == 200 and headers["x-pointsman-worker"] == "w1", headers
    assert second.served() == before + 5
    # The policy program that is kept unborn may be killed like any other: the next reload starts one.
    def unborn():
        before = house.pids("policy")
        pids = subprocess.run(["pgrep", "-P", str(house.supervisor.pid), "-f", "^pointsman-policy"],
                              capture_output=True, text=True).stdout.split()
        known = {*before, *house.pids("policy")}
        return [int(p) for p in pids if int(p) not in known]

    first = h.until("one to be kept", unborn)
    os.kill(first[0], signal.SIGKILL)
    h.until("another", lambda: unborn() and unborn() != first)
    house.ctl("reload")
    assert house.generation() == 4
    assert house.chat("after all that")[0] == 200
    r = house.ctl("reload", "--dry-run")
    assert house.generation() == 4, r
