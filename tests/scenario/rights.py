"""A policy process that is taken over can write nothing a decision or another process relies on.

rights.py MODE: `uids,rights`, `uids`, `rights` as root (the latter two with one wall each), `user` (both walls asked
for by an ordinary user: rights alone stand), `bare` (by a root that may not set user ids, as in many containers: it
says so and goes on with rights alone), `unlocked` (by an ordinary user where the kernel has no Landlock), and `none`, an ordinary user without any: there the same attempts succeed,
or this test could not fail.
The intruder is born as a policy process beside real ones, by a reload, and tries each line of its list (intruder.c)."""
import os, pathlib, re, shutil, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

MODE = sys.argv[1]
NOBODY = 65534
ROOT = os.geteuid() == 0
if not ROOT and MODE not in ("user", "unlocked", "none"):
    print("skipped: needs root")
    sys.exit(77)
as_user = MODE in ("user", "unlocked", "none") and ROOT
protect = "uids,rights" if MODE in ("user", "bare", "unlocked") else MODE
# As a kernel without Landlock answers, and then the command.
UNLOCKED = """
import ctypes, os, sys
c = ctypes.CDLL("libseccomp.so.2")
c.seccomp_init.restype = ctypes.c_void_p
f = ctypes.c_void_p(c.seccomp_init(0x7fff0000))
assert c.seccomp_rule_add(f, 0x00050000 | 38, 444, 0) == 0 and c.seccomp_load(f) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
uids = ROOT and MODE in ("uids,rights", "uids")
rights = MODE not in ("uids", "none")

with h.House() as house:
    # A folder that anybody may enter: a checkout may lie where only root can.
    programs = pathlib.Path(tempfile.mkdtemp(prefix="pointsman-bin-"))
    try:
        programs.chmod(0o755)
        for f in h.BIN.iterdir():
            if f.name.startswith("pointsman") or f.name == "pointsctl":
                shutil.copy(f, programs / f.name)
        intruder = h.BIN / "intruder"
        h.BIN = programs
        house.options = ["--protect", protect]
        if as_user:
            house.prefix = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
            for p in (house.folder, house.run.parent):
                os.chown(p, NOBODY, NOBODY)
        if MODE == "unlocked":
            house.prefix += ["/usr/bin/python3", "-c", UNLOCKED]
        if MODE == "bare":
            house.prefix = ["setpriv", "--bounding-set", "-setuid,-chown,-dac_override,-setpcap,-sys_nice",
                            "--inh-caps", "-all"]
        house.add("--profile", "zero")
        house.start()
        log = house.folder / "pointsman.log"
        assert house.chat("one")[0] == 200
        read = lambda: log.read_text(errors="replace")
        assert ("CAP_SETUID is missing" in read()) == (MODE == "bare"), read()
        assert ("no Landlock" in read()) == ("landlock=0" in read()) == (MODE == "unlocked"), read()
        assert ("uids: one for each role" in read()) == uids, read()
        fds = f"/proc/{house.supervisor.pid}/fd"

        def counted(name, role):
            page = h.request(house.admin, "GET", "/metrics")[1]
            return sum(float(v) for k, v in re.findall(r'^(pointsman_\w+\{[^}]*\}) (\S+)$', page, re.M)
                       if k.startswith(f"pointsman_{name}_total{{") and f'process="{role}"' in k)

        applied = counted("routed_notes", "kvevents")
        os.unlink(programs / "pointsman-policy")
        shutil.copy(intruder, programs / "pointsman-policy")
        house.hup()
        h.until("the intruder to have tried everything", lambda: "intruder: tried everything" in read(), 40)
        # What it said to others came, had no effect, and was counted.
        h.until("its words to be counted", lambda: counted("messages_refused", "supervisor") >= 4)
        assert counted("descriptors_refused", "supervisor") >= 3
        h.until("forged names to be counted", lambda: counted("messages_unknown", "ingress") >= 2 or uids is None)
        if not uids:
            h.until("forged notes to be counted", lambda: counted("messages_refused", "kvevents") >= 2)
        assert not [x for x in os.listdir(fds) if "pointsman-rows" in os.readlink(f"{fds}/{x}")][2:]
        lines = re.findall(r"intruder (always|other|self|own) (.+?): (SUCCEEDED|refused)(.*)", read())
        assert len(lines) > 60, len(lines)
        for scope, what, how, why in sorted(set(lines)):
            print(f"{scope:6} {what}: {how}{why}")
        succeeded = {(scope, what) for scope, what, how, _ in lines if how == "SUCCEEDED"}
        refused = {(scope, what) for scope, what, how, _ in lines if how == "refused"}
        assert not [x for x in succeeded if x[0] == "always"], succeeded
        own = [x for x in succeeded if x[0] == "own"]
        assert len(own) == 1 and not [x for x in refused if x[0] == "own"], own
        for scope, stands in (("other", uids or rights), ("self", rights)):
            if stands:
                assert not [x for x in succeeded if x[0] == scope], [x for x in succeeded if x[0] == scope]
        if MODE == "none":
            # The same attempts: nothing but the walls was in their way.
            assert not [x for x in refused if x[0] == "other"], [x for x in refused if x[0] == "other"]
            assert not [x for x in refused if x[0] == "self"], [x for x in refused if x[0] == "self"]
        print(f"{MODE}: {len(succeeded)} succeeded, {len(refused)} refused")
    finally:
        house.stop(None)
        shutil.rmtree(programs, ignore_errors=True)
