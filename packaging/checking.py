"""What the checks of packages and of clients share.

A check is a script beside what it proves. `cargo xtask evidence NAME` builds the program, names it in SAMEHOST, and keeps what the
check writes to standard output in docs/evidence. A check that ends with another status than 0 has found a fault. The only word that
it may be given is the part to run. It fetches by pip and go, from wherever those are set up to look.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Where a second run finds what was built.
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
#: The part to run; all by default.
ONLY = sys.argv[1] if len(sys.argv) > 1 else None


def samehost():
    """The program that is looked at."""
    ensure("SAMEHOST" in os.environ, "SAMEHOST names no program: this is run by `cargo xtask evidence`")
    return os.environ["SAMEHOST"]


def tell(line):
    """Writes a finding, which is kept."""
    print(line, flush=True)


def progress(line):
    """Writes what is not kept."""
    print(line, file=sys.stderr, flush=True)


def ensure(holds, fault):
    """Ends the check with a fault if something does not hold."""
    if not holds:
        raise SystemExit(str(fault))


def need(programs):
    """Programs that have to be on this machine: from each path to its package in Debian."""
    missing = [package for path, package in programs.items() if not Path(path).exists()]
    ensure(not missing, f"this needs: apt-get install {' '.join(missing)}")


def text(*command, errors=False, statuses=(0,), **options):
    """What a command writes, on both outputs if `errors`. It has to end with one of the statuses."""
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    ensure(done.returncode in statuses, f"{command}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr if errors else done.stdout


def temporary(**options):
    """A folder that is removed at the end."""
    return tempfile.TemporaryDirectory(prefix="samehost-check-", **options)


def free_port():
    """A port of 127.0.0.1 that nobody has at present."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_until(what, look, limit=30, between=0.2):
    """Asks until an answer is neither None nor False, and returns it."""
    end = time.monotonic() + limit
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        ensure(time.monotonic() < end, f"{what}: not after {limit} s")
        time.sleep(between)


def connects(place):
    """Whether somebody listens: on a port of 127.0.0.1, or on the path of a Unix socket."""
    family, address = (socket.AF_INET, ("127.0.0.1", place)) if isinstance(place, int) else (socket.AF_UNIX, str(place))
    with socket.socket(family) as one:
        return one.connect_ex(address) == 0


class Running:
    """A program that is ended where its `with` ends. Its output is in a log, if it has one."""

    def __init__(self, *command, log=None, **options):
        self.log = log
        output = open(log, "w") if log else subprocess.DEVNULL
        command = [str(word) for word in command]
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # A master that is asked to end takes its workers with it, and one that is killed does not (nginx).
        self.child.terminate()
        try:
            self.child.wait(5)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def answers(self, look, limit=30):
        """Waits until it does what is asked of it, which it can only while it runs."""

        def alive():
            ensure(self.child.poll() is None, f"{self.child.args[0]} ended at once")
            return look()

        try:
            wait_until(self.child.args[0], alive, limit, 0.05)
        except SystemExit as fault:
            self.__exit__()
            raise SystemExit(f"{fault}: {self.said()}") from None
        return self

    def said(self):
        """The end of its log."""
        return Path(self.log).read_text()[-2000:] if self.log else ""


class Redis(Running):
    """A Redis on a port and a Unix socket, with its files in a folder."""

    def __init__(self, folder, *more):
        self.port, self.socket = free_port(), Path(folder) / "redis.sock"
        words = ["redis-server", "--bind", "127.0.0.1", "--port", self.port, "--save", "", "--appendonly", "no"]
        super().__init__(*words, "--dir", folder, "--unixsocket", self.socket, "--unixsocketperm", "700", *more)

    def __enter__(self):
        return self.answers(lambda: connects(self.socket))


class MariaDb(Running):
    """A MariaDB without a root password, with its files in a folder."""

    def __init__(self, folder):
        self.port, self.socket = free_port(), folder / "mysql.sock"
        user = ["--user=root"] if os.geteuid() == 0 else []
        words = ["--no-defaults", f"--datadir={folder}/data", *user]
        text("mariadb-install-db", *words, "--auth-root-authentication-method=normal", "--skip-test-db")
        words += ["--bind-address=127.0.0.1", "--skip-name-resolve", f"--port={self.port}", f"--socket={self.socket}"]
        words += ["--max-connections=300", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"]
        super().__init__("/usr/sbin/mariadbd", *words)

    def __enter__(self):
        return self.answers(lambda: connects(self.socket))

    def sql(self, sql):
        text("mariadb", "--no-defaults", "-uroot", "-S", self.socket, "-e", sql)


def build_go(module, version, programs, tags="", variables=(), beside=None):
    """Builds programs of a module that go fetches; returns the folder with them, and that of the module's sources.

    `variables` are (name, value) that the linker writes; `beside` is the version of the modules that this one has beside itself in
    its repository (`replace … => ./…`).
    """
    folder = TARGET / "go" / f"{module.rsplit('/', 1)[-1]}-{version}"
    cache = TARGET / "go" / "modules"
    sources = cache / f"{module}@{version}"
    if all((folder / Path(program).name).exists() for program in programs):
        return folder, sources
    folder.mkdir(parents=True, exist_ok=True)
    packages = [f"{module}/{program}" for program in programs]
    options = {"cwd": folder, "env": {**os.environ, "GOMODCACHE": str(cache), "GOFLAGS": "-modcacherw"}}
    # Imports make a program one that the module is asked for.
    imports = "".join(f'import _ "{package}"\n' for package in packages)
    (folder / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\n{imports}")
    (folder / "go.mod").write_text(f"module built\n\ngo 1.26.0\n\nrequire {module} {version}\n")
    if beside:
        text("go", "mod", "download", f"{module}@{version}", **options)
        lines = (sources / "go.mod").read_text().splitlines()
        replaced = [line.split(" => ./")[0].strip() for line in lines if " => ./" in line]
        with open(folder / "go.mod", "a") as file:
            file.writelines(f"replace {path} => {path} {beside}\n" for path in replaced)
    progress(f"building {module} {version}, once: some minutes (go 1.26 or later is needed: golang.org/dl)")
    flags = "-ldflags=-s -w" + "".join(f" -X {name}={value}" for name, value in variables)
    text("go", "build", "-mod=mod", "-tags", tags, flags, "-o", folder, *packages, **options)
    return folder, sources


def environment(name, *words):
    """An environment of Python below the target directory, into which pip installed something."""
    folder = TARGET / name
    text("python3", "-m", "venv", folder)
    text(folder / "bin/pip", "install", "--quiet", *words)
    return folder
