#!/usr/bin/env python3
"""Jobs of active messages over verbs, `unet am run --hosts` (tests/vm/vm): am.py BUILD [SCENE...]

One machine is several hosts, a rank each: all messages go over its RDMA device. Of two machines b has an sshd, and a starts the job.
"""

import os
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from scene import ADDR, BUILD, HOST, OUT, PATIENCE, PEER, UNET, bad_wire, barrier, good_wire, play, sh, until  # noqa: E402

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


LONG = ("rsort", "--size", "15000", "--variant", "small")       # of two ranks: it is still at work when something happens to one


def begun():
    """A long program, when both its ranks are there: the launcher, and the rank that is to suffer."""
    child = job(2, "sh", "-c", 'echo $$; exec "$@"', "sh", program(LONG[0]), *LONG[1:])
    lines = [child.stdout.readline() for _ in range(2)]
    assert all(lines), finish(child)
    pids = dict(line.split() for line in lines)
    return child, int(pids["[1]"])


def suffers(pid, sig):
    """On whichever machine rank 1 is."""
    if TWO:
        sh(*SSH.split(), PEER, f"kill -{sig} {pid}")
    else:
        os.kill(pid, getattr(signal, f"SIG{sig}"))


def works(pid):
    """The rank has joined: its queue pair is there."""
    text = sh(*SSH.split(), PEER, "rdma res show qp") if TWO else sh("rdma", "res", "show", "qp")
    return f"pid {pid} " in text


# ---- one machine ----

def one_a():
    for ranks in (1, 2, 4, 8):
        programs(ranks)


def killed_a():
    child, pid = begun()
    until(lambda: works(pid), "rank 1 has joined")
    suffers(pid, "KILL")
    err = finish(child)[1]
    assert child.returncode == 1, err
    assert "rank 1 was killed: Killed" in err or "rank 0 ended with status 1" in err, err
    until(lambda: "splitc" not in sh("rdma", "res", "show", "qp"), "no rank is left here")


def stopped_a():
    """Longer than any timeout of a retransmission; nothing is lost, nobody is given up."""
    child, pid = begun()
    until(lambda: works(pid), "rank 1 has joined")
    suffers(pid, "STOP")
    time.sleep(STOPPED)
    assert child.poll() is None, child.communicate()
    suffers(pid, "CONT")
    out, err = finish(child)
    assert child.returncode == 0 and out.rstrip().endswith(" right"), out + err


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
    barrier("two-done")


def two_b():
    barrier("two-done")


def bad_wires(how):
    """Each machine spoils what it sends."""
    bad_wire(*how)
    barrier("bad")
    if HOST == "a":
        programs(2, RUNS[::2])
    barrier("bad-done")
    good_wire()


def lossy_a():
    bad_wires(("loss", "3%", "duplicate", "2%", "delay", "1ms", "1ms", "reorder", "25%"))


def meanwhile(name):
    """What machine b does while a's scene runs."""
    def wait():
        barrier(f"{name}-done")
    return wait


def two_killed_a():
    killed_a()
    barrier("two_killed-done")


def two_stopped_a():
    stopped_a()
    barrier("two_stopped-done")


lossy_b = lossy_a
two_killed_b, two_stopped_b = meanwhile("two_killed"), meanwhile("two_stopped")
SCENES = ("two", "lossy", "two_killed", "two_stopped") if TWO else ("one", "killed", "stopped")

if __name__ == "__main__":
    set_up()
    play(globals(), SCENES)
