"""Debian's kernel for the machines: fetched once, unpacked in the cache, never installed; and an initramfs of it."""

import fcntl
import gzip
import os
import platform
import re
import shutil
import subprocess
import tempfile

META = "linux-image-amd64"                      # depends on the kernel package of the day
BOOT_MODULES = ("virtio_pci", "virtio_net", "9pnet_virtio", "9p", "overlay")
TOOLS = ("qemu-system-x86_64", "busybox", "modprobe", "depmod", "rdma", "dpkg", "apt-get")


class CannotBeMade(Exception):
    """Why there can be no machine here; tests/expected_skips.txt knows these."""


def run(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600, **more).stdout


def package():
    found = re.search(r"Depends: (linux-image-\S+-amd64)$", run("apt-cache", "depends", META), re.MULTILINE)
    if not found:
        raise CannotBeMade("Debian's kernel package is not in the package lists")
    return found[1]


def download(into):
    """The package file. Lists that are older than the archive name files that are gone: they are fetched once."""
    for attempt in range(2):
        try:
            run("apt-get", "download", "-q", package(), cwd=into)
            return os.path.join(into, next(f for f in os.listdir(into) if f.endswith(".deb")))
        except (subprocess.CalledProcessError, CannotBeMade) as why:
            if attempt or os.geteuid() != 0:
                raise CannotBeMade("Debian's kernel package cannot be downloaded") from why
            subprocess.run(("apt-get", "update", "-q"), check=False, capture_output=True, timeout=600)
    return None


def unpack(cache):
    """A directory `kernel` in the cache, whole or not at all."""
    with tempfile.TemporaryDirectory(dir=cache) as new:
        root = os.path.join(new, "kernel")
        run("dpkg", "-x", download(new), root)
        version, = os.listdir(os.path.join(root, "lib", "modules"))
        run("depmod", "-b", root, version)
        os.rename(root, os.path.join(cache, "kernel"))


def prepare(cache):
    """(kernel image, directory with lib/modules), fetched if they are not in the cache."""
    if platform.machine() != "x86_64":
        raise CannotBeMade("not an x86_64 machine")
    os.environ["PATH"] += ":/usr/sbin:/sbin"    # of ordinary users, where modprobe is
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise CannotBeMade(f"not installed: {' '.join(missing)}")
    os.makedirs(cache, exist_ok=True)
    root = os.path.join(os.path.realpath(cache), "kernel")
    with open(os.path.join(cache, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(root):
            unpack(cache)
    version, = os.listdir(os.path.join(root, "lib", "modules"))
    return os.path.join(root, "boot", f"vmlinuz-{version}"), root


def modules_in_order(root):
    """Files to insert before the root file system is there."""
    version, = os.listdir(os.path.join(root, "lib", "modules"))
    files = []
    for name in BOOT_MODULES:
        for line in run("modprobe", "-d", root, "-S", version, "--show-depends", name).splitlines():
            file = line.removeprefix("insmod ").strip()
            if file not in files and not line.startswith("builtin"):
                files.append(file)
    return files


def make_initrd(root, init, inside, out):
    with tempfile.TemporaryDirectory() as tree:
        os.makedirs(os.path.join(tree, "modules"))
        shutil.copy(shutil.which("busybox"), os.path.join(tree, "busybox"))
        shutil.copy(init, os.path.join(tree, "init"))
        shutil.copy(inside, os.path.join(tree, "inside.sh"))
        os.chmod(os.path.join(tree, "init"), 0o755)
        for number, file in enumerate(modules_in_order(root)):
            shutil.copy(file, os.path.join(tree, "modules", f"{number:02d}-{os.path.basename(file)}"))
        names = "\n".join(os.path.relpath(os.path.join(at, name), tree)
                          for at, dirs, files in os.walk(tree) for name in dirs + files)
        archive = subprocess.run(("busybox", "cpio", "-o", "-H", "newc"), cwd=tree, input=names.encode(), check=True,
                                 capture_output=True, timeout=60).stdout
        with gzip.open(out, "wb", compresslevel=1) as f:
            f.write(archive)
