"""What scenes between two machines share (tests/vm/vm --hosts 2 PROGRAM BUILD [SCENE...]): unmodified programs under `unet run` on
both, machine a serves, b calls. A scene is two functions, NAME_a and NAME_b.

BUILD may be one with sanitizers (build/asan): what they find in any program, daemons too, fails the scene.
"""

import glob
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

BUILD = os.path.realpath(sys.argv[1])          # daemons are started from elsewhere
OUT, HOST, ADDR, PEER = (os.environ[k] for k in ("VM_OUT", "VM_HOST", "VM_ADDR", "VM_PEER"))
UNET = os.path.join(BUILD, "tools", "unet")
PORT = 7000
PATIENCE = 600                                  # seconds; the machines are slow, and so may be the one that they are on
EXACT, STARTER = (os.path.join(BUILD, "tests", "vm", name) for name in ("exact", "rounds"))
STILL = 0.4                                     # seconds that a sleep may be late
FINDINGS = os.path.join(OUT, f"sanitizer.{HOST}")

# ---- builds with sanitizers ----

def sanitizer():
    """The library that has to be in a program before our shim, or nothing."""
    done = subprocess.run(("ldd", os.path.join(BUILD, "sock", "shim", "libunet_preload.so")), capture_output=True, text=True, check=False)
    found = re.search(r"lib[at]san\.so\S* => (\S+)", done.stdout)
    return found[1] if found else None


def daemons_sanitized(env):
    """Where the daemons are to be started from: they begin with an empty environment."""
    path = "/tmp/libexec"
    os.makedirs(path, exist_ok=True)
    for name in ("unetd", "unet-keeper"):
        with open(os.path.join(path, name), "w", encoding="ascii") as f:
            f.write("#!/bin/sh\n" + "".join(f"export {k}='{v}'\n" for k, v in env.items()) + f'exec {BUILD}/unetd/{name} "$@"\n')
        os.chmod(f.name, 0o755)
    return path


def sanitized():
    """Environment for what has our shim (`unet run`, `unet why`); and where daemons are. Unmodified programs leak, and end with it;
    ASan would limit core dumps before its memory is there, by our setrlimit()."""
    library = sanitizer()
    if library is None:
        return {}, os.path.join(BUILD, "unetd")
    told = f"log_path={FINDINGS}:verify_asan_link_order=0:detect_leaks=0:disable_coredump=0"
    env = {f"{kind}SAN_OPTIONS": told for kind in ("A", "UB", "T")}
    os.environ.update(env)
    return {"LD_PRELOAD": library}, daemons_sanitized(env)


def findings():
    """Whether a sanitizer has found something, which is shown."""
    paths = glob.glob(FINDINGS + "*")
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as f:
            print(f.read(), flush=True)
    return paths != []


SHIMMED, LIBEXEC = sanitized()

# ---- programs ----

def sh(*argv, ok=True):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if ok and done.returncode != 0:
        raise AssertionError(f"{' '.join(argv)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def until(true_of, what, patience=PATIENCE, instead=lambda: ""):
    """`instead` says what there is instead when it never becomes true."""
    end = time.monotonic() + patience
    while not true_of():
        if time.monotonic() > end:
            raise AssertionError(f"never: {what} {instead()}")
        time.sleep(0.05)


def barrier(name, patience=PATIENCE):
    """Both machines have come here; one alone does not wait."""
    if os.environ["VM_HOSTS"] == "1":
        return
    open(os.path.join(OUT, f"{name}.{HOST}"), "w", encoding="ascii").close()
    other = "b" if HOST == "a" else "a"
    until(lambda: os.path.exists(os.path.join(OUT, f"{name}.{other}")) or os.path.exists(os.path.join(OUT, f"failed.{other}")),
          f"the other machine at {name}", patience)
    assert not os.path.exists(os.path.join(OUT, f"failed.{other}")), f"the other machine failed before {name}"


def configure(domain, **more):
    lines = [f"[interface rxe0]\nprovider = verbs\naddress = {ADDR}/24\n"] + [f"{k} = {v}\n" for k, v in more.items()]
    path = f"/tmp/{domain}.conf"
    with open(path, "w", encoding="ascii") as f:
        f.writelines(lines)
    os.environ.update(UNET_CONFIG=path, UNET_DOMAIN=domain, UNET_LIBEXEC=LIBEXEC)


def settle(domain, **more):
    """Other settings from now on, for daemons of another domain: the last one's agent leaves its place first."""
    if subprocess.run((UNET, "status"), capture_output=True, timeout=PATIENCE, check=False).returncode == 0:
        until(lambda: status()["stacks"] == [], "nothing is left to finish")
        os.kill(status()["daemon"][0]["pid"], signal.SIGKILL)
    configure(domain, **more)


class Program:
    """One under `unet run`."""

    def __init__(self, *argv):
        self.argv = argv
        self.child = subprocess.Popen((UNET, "run", *argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True, start_new_session=True, env=dict(os.environ, **SHIMMED))

    def pid(self):
        """Of the program itself, the first of its kind."""
        return int(sh("pgrep", "-o", "-g", str(self.child.pid), os.path.basename(self.argv[0])).split()[0])

    def over_verbs(self, packets):
        """Its own stack has sent more than that; to be asked while it runs: counters go with the stack."""
        def seen():
            assert self.runs(), f"{self.argv[:2]} ended before it was seen to send {packets} packets over verbs"
            return self.sent() > packets

        until(seen, "it goes over verbs")

    def sent(self):
        """Packets by its own stack so far."""
        mine = [str(s["stack"]) for s in status()["stacks"] if s["pid"] == self.pid()]
        return counted("counters", "NI_TX_MSGS", "--stack", mine[0]) if mine else 0

    def runs(self):
        return self.child.poll() is None

    def line(self):
        text = self.child.stdout.readline()
        if not text:
            raise AssertionError(f"{self.argv[:2]} ended with {self.child.wait(PATIENCE)}")
        return text.strip()

    def says(self, text):
        line = self.line()
        if line != text:
            raise AssertionError(f"{self.argv[:2]} says {line!r} and not {text!r}: {self.end(None)}")

    def say(self):
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    def end(self, status=0, patience=PATIENCE):
        try:
            text = self.child.communicate(timeout=patience)[0]
        except subprocess.TimeoutExpired:
            os.killpg(self.child.pid, signal.SIGKILL)
            raise AssertionError(f"{self.argv[:2]}: did not end\n{self.child.communicate()[0]}") from None
        if status is not None and self.child.returncode != status:
            raise AssertionError(f"{self.argv[:2]}: status {self.child.returncode}\n{text}")
        return text.strip()


def python(text, *args):
    return Program(sys.executable, "-c", text, *(str(a) for a in args))


def counted(kind, name, *of):
    """Of all stacks here, summed, or of one ("--stack", its number); kind: counters or drops."""
    done = subprocess.run((UNET, "stat", "--json", *of), capture_output=True, text=True, timeout=PATIENCE, check=False)
    return json.loads(done.stdout)[kind][name] if done.returncode == 0 else 0


def status():
    """Patient with a unetd that has died and is not followed by another one yet."""
    until(lambda: subprocess.run((UNET, "status"), capture_output=True, timeout=PATIENCE, check=False).returncode == 0, "a unetd")
    return json.loads(sh(UNET, "status", "--json"))


def serve(text, *args):
    s = python(text, PORT, *args)
    s.says("ready")
    return s


def serve_exact(connections, port=PORT):
    """Each of them read to its end and compared."""
    s = Program(EXACT, "serve", str(port), str(connections))
    s.says("ready")
    return s


def serve_iperf(*more):
    s = Program("iperf3", "-s", "--forceflush", *more)
    until(lambda: "listening" in s.line(), "iperf3 listens")
    return s


class Caller(Program):
    """Sends so many bytes and has so many sent back, in each of so many connections at once; all are compared."""

    def __init__(self, up, down=0, streams=1, how=None):
        self.sends = f"{up} up, {down} down"
        self.packets = (up // 3 if how == "part" else up) * streams // 10000
        super().__init__(EXACT, "call", PEER, str(PORT), str(up), str(down), str(streams), *([how] if how else []))

    def part(self):
        """A third has gone, over the queue pairs."""
        self.says("part")
        self.over_verbs(self.packets)

    def all(self, patience=PATIENCE):
        """Waits until all is there; how many milliseconds it waited at the most for the next bytes."""
        text = self.end(0, patience)
        found = re.fullmatch(self.sends + r", silent (\d+) ms", text)
        assert found, text
        return int(found[1])


def write(name, what):
    """For the other machine to read(), after a barrier."""
    path = os.path.join(OUT, name)
    with open(path + ".new", "w", encoding="ascii") as f:
        json.dump(what, f)
    os.rename(path + ".new", path)


def read(name):
    with open(os.path.join(OUT, name), encoding="ascii") as f:
        return json.load(f)


def daemon():
    return status()["daemon"][0]["pid"]


def keeper():
    return status()["keepers"][0]["pid"]


def devices():
    """What the RDMA device has: queue pairs, memory regions and so on."""
    return {k: int(v) for k, v in re.findall(r"(\w+) (\d+)", sh("rdma", "res", "show").split(":", 2)[2])}


def bad_wire(*how):
    """What leaves this machine from now on is treated so (tc-netem(8)), RDMA's packets like all."""
    sh("modprobe", "sch_netem")
    sh("tc", "qdisc", "add", "dev", "eth0", "root", "netem", "limit", "10000", *how)


def good_wire():
    sh("tc", "qdisc", "del", "dev", "eth0", "root")


TRACING = "/sys/kernel/tracing"


def count_handles():
    """From now on address handles are counted, which no command shows."""
    if not os.path.exists(f"{TRACING}/kprobe_events"):
        sh("mount", "-t", "tracefs", "tracefs", TRACING)
    for what in ("create", "destroy"):
        sh("sh", "-c", f"echo p:unet/{what} rxe_{what}_ah >>{TRACING}/kprobe_events; echo 1 >{TRACING}/events/unet/{what}/enable")


def handles():
    """Those that have been made since, and are there still."""
    with open(f"{TRACING}/kprobe_profile", encoding="ascii") as f:
        hits = {line.split()[0]: int(line.split()[1]) for line in f}
    return hits["create"] - hits["destroy"]


def descriptors():
    """Of both daemons, together."""
    now = status()
    return sum(len(os.listdir(f"/proc/{now[kind][0]['pid']}/fd")) for kind in ("daemon", "keepers"))


class Standstill:
    """How long the machine has stood still: what is late in here may have had no processor out there, and waited for nothing."""

    def __init__(self):
        self.seconds = 0
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        last = time.monotonic()
        while True:
            time.sleep(0.05)
            last, late = time.monotonic(), time.monotonic() - last
            if late > STILL:
                self.seconds += late


STANDSTILL = Standstill()


def stood():
    """For how many seconds, so far."""
    return STANDSTILL.seconds


def play(scenes, names):
    """All of them, or those that are named on the command line; `scenes` is the program's globals()."""
    for name in [a for a in sys.argv[2:] if a in names] or names:
        began, before = time.monotonic(), stood()
        barrier(f"before-{name}")
        try:
            scenes[f"{name}_{HOST}"]()
            assert not findings(), "a sanitizer has found something"
        except BaseException:
            print(f"{name}: the machine stood still for {stood() - before:.0f} s", flush=True)
            findings()
            open(os.path.join(OUT, f"failed.{HOST}"), "w", encoding="ascii").close()
            raise
        still = stood() - before
        print(f"{name}: {time.monotonic() - began:.0f} s" + (f", the machine stood still for {still:.0f} of them" if still else ""),
              flush=True)
