#!/usr/bin/env python3
"""Jobs of active messages over verbs, `unet am run --hosts` (tests/vm/vm): am.py BUILD [SCENE...]

One machine is several hosts, a rank each: all messages go over its RDMA device. Of two machines b has an sshd, and a starts the job.
"""

import os
import re
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from scene import ADDR, BUILD, HOST, OUT, PATIENCE, PEER, UNET, barrier, play, sh, until  # noqa: E402

TWO = os.environ["VM_HOSTS"] == "2"
SSH = ("ssh -i /tmp/key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "
       "-o ControlMaster=auto -o ControlPath=/tmp/master -o ControlPersist=yes")
LAUNCH = f"""[ "$1" != {ADDR} ] || exec sh -c "$2"
exec {SSH} "$@"
"""                                             # machine a has no sshd
RUNS = [("mm", "--size", "32"), ("cc", "--size", "16"), ("cg", "--size", "12"), ("em3d", "--size", "24", "--variant", "get"),
        ("em3d", "--size", "24", "--variant", "store"),
        *[(sort, "--size", "600", "--variant", v) for sort in ("ssort", "rsort") for v in ("small", "bulk")]]
STOPPED = 10                                    # seconds


def program(name):
    return os.path.join(BUILD, "examples", "splitc", "splitc_" + name)


def hosts(ranks):
    return f"{ADDR},{PEER}" if TWO else ",".join([ADDR] * ranks)


def job(ranks, *command):
    return subprocess.Popen((UNET, "am", "run", "-n", str(ranks), "--label", "--at", ADDR, "--hosts", hosts(ranks), "--launch",
                             "sh /tmp/launch", *command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def finish(child):
    try:
        return child.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        raise AssertionError(f"the job does not end: {child.communicate()}") from None


def right(ranks, run):
    began = time.monotonic()
    child = job(ranks, program(run[0]), *run[1:])
    out, err = finish(child)
    said = f"{ranks} processors, {' '.join(run)}: {out}{err}"
    assert child.returncode == 0, said
    assert out.count("\n") == 1 and out.startswith("[0] ") and out.rstrip().endswith(" right"), said
    print(f"{ranks} processors, {' '.join(run)}: {time.monotonic() - began:.1f} s", flush=True)


def programs(ranks, runs=RUNS):
    for run in runs:
        right(ranks, run)


def every_call(ranks):
    """GAM's, Split-C's, and with a timer that interrupts them."""
    for command, said in (("am_gam_prog",), ranks), (("am_splitc_prog",), 1), (("am_odd", "signals"), ranks):
        child = job(ranks, os.path.join(BUILD, "tests", "am", command[0]), *command[1:])
        out, err = finish(child)
        assert child.returncode == 0 and len(re.findall("right", out)) == said, f"{command}: {out}{err}"
        print(f"{ranks} processors, {' '.join(command)}: right", flush=True)


# ---- ranks that talk until they are told to end ----

ENOUGH = "/tmp/enough"                          # rank 0 sees it: it is of machine a


def talk(ranks, rounds, until_told=False):
    """The launcher, when all ranks have joined, and their process numbers."""
    sh("rm", "-f", ENOUGH)
    child = job(ranks, os.path.join(BUILD, "tests", "vm", "am_rounds"), str(rounds), *([ENOUGH] if until_told else []))
    pids = {}
    while len(pids) < ranks:
        line = child.stdout.readline()
        assert line, finish(child)
        rank, word, pid = line.split()
        assert word == "joined", line
        pids[rank] = pid
    return child, pids


def ends_right(child):
    """How many messages were sent again."""
    out, err = finish(child)
    found = re.fullmatch(r"\[0\] \d+ rounds right, (\d+) messages sent again\n", out)
    assert child.returncode == 0 and found, f"status {child.returncode}: {out}{err}"
    print(out.strip(), flush=True)
    return int(found[1])


def there(command):
    """On the machine that rank 1 is on, in one go: a call to machine b takes seconds."""
    return sh(*(SSH.split() + [PEER] if TWO else ["sh", "-c"]), command)


def killed_a():
    child, pids = talk(2, 1, until_told=True)
    there(f"kill -KILL {pids['[1]']}")
    began = time.monotonic()
    err = finish(child)[1]
    assert child.returncode == 1, err
    assert "rank 1 was killed: Killed" in err or "rank 0 ended with status 1" in err, err
    print(f"rank 1 killed, {time.monotonic() - began:.1f} s later: {err.strip()}", flush=True)
    until(lambda: "am_rounds" not in sh("rdma", "res", "show", "qp"), "no rank is left here")


def stopped_a():
    """Longer than any timeout of a retransmission; nothing is lost, nobody is given up."""
    child, pids = talk(2, 1, until_told=True)
    there(f"kill -STOP {pids['[1]']}; sleep {STOPPED}; kill -CONT {pids['[1]']}")
    assert child.poll() is None, child.communicate()
    sh("touch", ENOUGH)
    assert ends_right(child) > 0, "what rank 0 sent meanwhile was sent once"


# ---- wires that lose, copy, overtake, delay, spoil ----

WIRES = {"loses": ("loss", "3%"), "loses bursts": ("loss", "gemodel", "2%", "30%"), "copies": ("duplicate", "10%"),
         "overtakes": ("delay", "2ms", "reorder", "25%", "50%"), "delays": ("delay", "3ms", "2ms"), "spoils": ("corrupt", "2%"),
         "all": ("loss", "2%", "duplicate", "2%", "corrupt", "1%", "delay", "1ms", "1ms", "reorder", "25%")}
LOSING = ("loses", "loses bursts", "spoils", "all")
ROUNDS = 30                                     # of some hundred messages


def over_wire(name, rounds, runs):
    """Each machine treats what it sends. One machine's ranks have one device, and no wire between them."""
    sh("modprobe", "sch_netem")
    sh("tc", "qdisc", "replace", "dev", "eth0", "root", "netem", "limit", "10000", *WIRES[name])
    barrier(f"wire {name}")
    if HOST == "a":
        print(f"a wire that {name}:", flush=True)
        again = ends_right(talk(2, rounds)[0])
        assert again > 0 or name not in LOSING, "nothing was lost"
        programs(2, runs)
    barrier(f"wire {name} done")


def wire_a():
    over_wire("all", ROUNDS // 3, RUNS[1:2])


def wires_a():
    for name in WIRES:
        over_wire(name, ROUNDS, RUNS[::2] if name == "all" else ())


# ---- one machine ----

def one_a():
    for ranks in (1, 2, 4, 8):
        programs(ranks)
    every_call(2)
    every_call(3)


# ---- two ----

def sshd():
    os.makedirs("/run/sshd", exist_ok=True)
    sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/tmp/host")
    sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/tmp/key")
    sh("cp", "/tmp/key.pub", "/tmp/keys")
    sh("/usr/sbin/sshd", "-f", "/dev/null", "-h", "/tmp/host", "-o", "AuthorizedKeysFile=/tmp/keys", "-o", "StrictModes=no", "-o",
       "PermitRootLogin=yes", "-o", "MaxStartups=100", "-o", "UseDNS=no")
    sh("cp", "/tmp/key", f"{OUT}/key.new")
    os.rename(f"{OUT}/key.new", f"{OUT}/key")


def set_up():
    with open("/tmp/launch", "w", encoding="ascii") as f:
        f.write(LAUNCH)
    if not TWO:
        return
    if HOST == "b":
        sshd()
    else:
        until(lambda: os.path.exists(f"{OUT}/key"), "b has an sshd")
        sh("cp", f"{OUT}/key", "/tmp/key")
        os.chmod("/tmp/key", 0o600)
        until(lambda: subprocess.run((*SSH.split(), PEER, "true"), check=False, capture_output=True, timeout=PATIENCE).returncode == 0,
              "ssh to b works")


def two_a():
    programs(2)
    programs(4, RUNS[::3])


def nothing():
    """What machine b does meanwhile: it has the sshd."""


two_b = killed_b = stopped_b = nothing
wire_b, wires_b = wire_a, wires_a
SCENES = ("two", "killed", "stopped", "wire", "wires") if TWO else ("one", "killed", "stopped")

if __name__ == "__main__":
    set_up()
    play(globals(), SCENES)
    barrier("end")
