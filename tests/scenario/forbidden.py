"""Where io_uring is forbidden (EPERM, as containers do) or unknown (ENOSYS), ingress serves with epoll by itself and says so;
asked for by name it is an error that says why."""
import ctypes, errno, os, pathlib, struct, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

IO_URING_SETUP = 425                    # the same on every architecture


def forbid(error):
    """From here on, for us and our children, io_uring_setup fails so."""
    allow, fail = 0x7fff0000, 0x00050000 | error
    code = ((0x20, 0, 0, 0),            # load the system call's number
            (0x15, 0, 1, IO_URING_SETUP), (0x06, 0, 0, fail), (0x06, 0, 0, allow))
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *c) for c in code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters)))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((38, 1, 0, 0, 0), (22, 2, ctypes.addressof(program), 0, 0)):      # no new privileges; the filter
        if libc.prctl(*(ctypes.c_ulong(a) for a in call)) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if sys.argv[1:2] == ["--under"]:
    forbid(int(sys.argv[2]))
    os.execv(sys.argv[3], sys.argv[3:])

import house as h

for error in (errno.EPERM, errno.ENOSYS):
    under = [sys.executable, __file__, "--under", str(error)]
    with h.House(ingresses=2) as house:
        house.prefix = under
        house.add("--profile", "zero", count=2)
        house.start()
        said = [line for line in house.tail(1000).splitlines() if "io backend=epoll: " in line]
        assert len(said) >= 2, house.tail(1000)
        print(said[0].split(" ", 1)[1])
        for _ in range(8):
            assert house.chat("still")[0] == 200
    with h.House(io="io_uring") as house:
        house.prefix = under
        house.add("--profile", "zero")
        house.start(wait=False)
        said = h.until("the error", lambda: [line for line in house.tail(1000).splitlines() if "error" in line and "io_uring" in line])
        print(said[0].split(" ", 1)[1])
        assert not house.pids("ingress", "ready")
