"""What a Pointsman at rest holds: descriptors by kind, memory, charges, slots, bytes, sockets, children."""
import collections, json, os, pathlib, re

import house as h

LISTEN = "0A"
LEDGER = ("pending_tokens", "prefilling", "context_tokens", "decoding")
GAUGES = ("slots_used", "arena_used", "connections_open")


def tcp():
    """inode -> (local port, remote port, state) of this machine's TCP sockets."""
    found = {}
    for table in ("tcp", "tcp6"):
        try:
            lines = pathlib.Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            w = line.split()
            found[w[9]] = (int(w[1].rsplit(":", 1)[1], 16), int(w[2].rsplit(":", 1)[1], 16), w[3])
    return found


def unix():
    """inodes of this machine's unix sockets."""
    return {line.split()[6] for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]}


def links(pid):
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    return found


def inodes(pid):
    return {link[8:-1] for link in links(pid) if link.startswith("socket:[")}


def descriptors(pid):
    """Kind -> number.  Sockets that went while we looked belong to nobody."""
    found, held = collections.Counter(), links(pid)
    tcps, unixes = tcp(), unix()
    for link in held:
        if link.startswith("socket:["):
            at = tcps.get(link[8:-1])
            if at:
                found["tcp listening" if at[2] == LISTEN else "tcp"] += 1
            elif link[8:-1] in unixes:
                found["unix"] += 1
        elif link.startswith(("anon_inode:", "/memfd:")):
            found[link.removesuffix(" (deleted)")] += 1
        else:
            found["pipe" if link.startswith("pipe:") else "file"] += 1
    return found


def towards(pid, ports):
    """TCP connections of that process to one of these ports, in any state."""
    held = inodes(pid)
    return [at for inode, at in tcp().items() if inode in held and at[1] in ports]


def memory(pid):
    """Bytes that are its own alone (no shared memory, no files)."""
    found = re.search(r"^RssAnon:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(found[1]) * 1024


def children(pid):
    """pid -> (name, state) of all children."""
    found = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if int(parent) == pid:
            found[int(stat.parent.name)] = (head.split("(", 1)[1], state)
    return found


def runs(pid):
    """A zombie does not: its parent, who may be no one of ours, has yet to hear of its end."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Page:
    """The operators' page, parsed."""

    def __init__(self, house):
        status, text, _ = h.request(house.admin, "GET", "/metrics")
        assert status == 200, status
        self.rows = []
        for line in text.splitlines():
            found = re.fullmatch(r"pointsman_(\w+)\{([^}]*)\} (\S+)", line)
            if found:
                self.rows.append((found[1], dict(re.findall(r'(\w+)="([^"]*)"', found[2])), float(found[3])))

    def values(self, name, **labels):
        return [v for n, l, v in self.rows
                if n in (name, name + "_total") and all(l.get(k) == x for k, x in labels.items())]

    def sum(self, name, **labels):
        return sum(self.values(name, **labels))


def workers(house):
    return json.loads(house.ctl("workers", "--output", "json").stdout)["workers"]


def segments(house):
    """Exact sums over every shared segment."""
    return json.loads(house.ctl("stat", "--segments", "--output", "json").stdout)


def held(said, ingresses):
    """What the segments hold that nobody should at rest, as texts."""
    found = [f"{k}={n}" for k, n in said["sum"].items()
             if n and k not in ("segments", "size_bytes", "touched_bytes", "slots_capacity", "poison_live")]
    for s in said["segments"]:
        if s["writer_alive"] is False and not s.get("kept_of_the_dead"):
            found.append(f"{s['kind']} segment of {s['role']} {s['index']}.{s['incarnation']}: its writer is dead")
    for kind in ("column", "slots", "arena"):
        n = sum(s["kind"] == kind for s in said["segments"])
        if n != ingresses:
            found.append(f"{n} {kind} segments of {ingresses} ingresses")
    return found


def busy(house, every):
    """What is not at rest, as text; empty: all of it is."""
    found, page = [], Page(house)
    for gauge in GAUGES:
        if page.sum(gauge):
            found.append(f"{gauge}={page.sum(gauge):.0f}")
    for w in workers(house):
        found += [f"{w['worker']} {k}={w[k]}" for k in LEDGER if w[k]]
    found += held(segments(house), house.ingresses)
    live = json.loads(house.ctl("requests", "--output", "json").stdout)["live"]
    if live:
        found.append(f"requests={live}")
    ports = {w.port for w in every}
    for p in house.stat()["processes"]:
        if p["role"] == "ingress":
            n = len(towards(p["pid"], ports))
            if n:
                found.append(f"ingress {p['index']}: connections to workers={n}")
    for w in every:
        s = w.state()
        found += [f"{w.name} {k}={s[k]}" for k in ("running", "waiting") if s[k]]
    return found


def settled(house):
    """Both ingresses, one policy process that is asked, one at hand, one unborn, nothing of a reload under way."""
    s = house.stat()
    here = collections.Counter((p["role"], p["state"]) for p in s["processes"])
    unborn = len(children(house.supervisor.pid)) - (len(s["processes"]) - 1)
    return s["reload"] == "idle" and unborn == 1 and here == {
        ("supervisor", "ready"): 1, ("ingress", "ready"): house.ingresses, ("policy", "active"): 1,
        ("policy", "standby"): 1, ("kvevents", "ready"): 1, ("metrics", "ready"): 1, ("admin", "ready"): 1}


class Rest:
    """A snapshot at rest."""

    def __init__(self, house, every):
        h.until("every process to be there", lambda: settled(house), 60)
        said = []

        def at_rest():
            said[:] = busy(house, every)
            return not said

        try:
            h.until("rest", at_rest, 60)
        except h.Late as e:
            raise h.Late(f"{e}: {', '.join(said)}") from e
        self.seats = {}
        for p in house.stat()["processes"]:
            seat = p["role"], p["state"] if p["role"] == "policy" else p["index"]
            self.seats[seat] = (p["pid"], descriptors(p["pid"]), memory(p["pid"]))
        self.children = children(house.supervisor.pid)
        self.files = sorted(str(f.relative_to(house.run)) for f in house.run.rglob("*"))
        self.incarnations = {(p["index"], p["incarnation"])
                             for p in house.stat()["processes"] if p["role"] == "ingress"}

    def shape(self):
        """Files of the run directory with incarnations left out."""
        return [re.sub(r"(policy\.\d+)\.\d+\.sock$", r"\1.N.sock", f) for f in self.files]


def more(was, now, most):
    """What `now` has more of, or less, as text; of the kinds in `most`, only what is beyond it."""
    return ", ".join(f"{kind}: {was[kind]} -> {now[kind]}" for kind in sorted({*was, *now})
                     if (now[kind] > most[kind] if kind in most else now[kind] != was[kind]))
