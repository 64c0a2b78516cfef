"""Debian's kernel for the machines: fetched once, unpacked in the cache, never installed; and an initramfs of it.

There are two: this Debian's, and a newer one out of the next release's backports. That is asked for by lists of packages of our own in
the cache, of which this machine's apt knows nothing; they are signed by Debian as its own are."""

import fcntl
import gzip
import lzma
import os
import platform
import re
import shutil
import subprocess
import tempfile

META = "linux-image-amd64"                      # depends on the kernel package of the day
BOOT_MODULES = ("virtio_pci", "virtio_net", "9pnet_virtio", "9p", "overlay")
BACKPORTS = "http://deb.debian.org/debian trixie-backports"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
TOOLS = ("qemu-system-x86_64", "busybox", "modprobe", "depmod", "rdma", "dpkg", "apt-get")


class CannotBeMade(Exception):
    """Why there can be no machine here; tests/expected_skips.txt knows these."""


def run(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600, **more).stdout


class Archive:
    """Debian's, by this machine's lists of packages; where they are to be kept in a folder, those of the backports."""

    def __init__(self, folder=None):
        self.apt = []
        if folder:
            self.apt = own_lists(folder)

    def depends(self, name, wanted):
        """Names among those that a package depends on."""
        return re.findall(rf"Depends: ({wanted})$", run("apt-cache", *self.apt, "depends", name), re.MULTILINE)

    def packages(self):
        """The kernel of the day. Newer ones are in pieces."""
        images = self.depends(META, r"linux-image-\S+-amd64")
        if not images:
            raise CannotBeMade("Debian's kernel package is not in the package lists")
        return images + self.depends(images[0], r"linux-(?:base|binary|modules)-\S+-amd64")

    def download(self, into):
        """Their files. Lists that are older than the archive name files that are gone: they are fetched once."""
        for attempt in range(2):
            try:
                run("apt-get", *self.apt, "download", "-q", *self.packages(), cwd=into)
                return [os.path.join(into, f) for f in os.listdir(into) if f.endswith(".deb")]
            except (subprocess.CalledProcessError, CannotBeMade) as why:
                if attempt or (os.geteuid() != 0 and not self.apt):
                    raise CannotBeMade("Debian's kernel package cannot be downloaded") from why
                subprocess.run(("apt-get", *self.apt, "update", "-q"), check=False, capture_output=True, timeout=600)
        return None


def own_lists(folder):
    """Options for apt that has its lists and all it writes in the folder."""
    if not os.path.exists(KEYRING):
        raise CannotBeMade("Debian's kernel package of the backports cannot be checked: no keys of the archive here")
    for part in ("state/lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(folder, part), exist_ok=True)
    with open(os.path.join(folder, "sources.list"), "w", encoding="ascii") as f:
        f.write(f"deb [signed-by={KEYRING}] {BACKPORTS} main\n")
    settings = {"Dir::Etc::sourcelist": os.path.join(folder, "sources.list"), "Dir::Etc::sourceparts": "-",
                "Dir::State": os.path.join(folder, "state"), "Dir::State::status": "/dev/null",
                "Dir::Cache": os.path.join(folder, "cache"), "Acquire::Languages": "none", "APT::Sandbox::User": "root"}
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def unpack(root, archive):
    """That directory, whole or not at all."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(root)) as new:
        tree = os.path.join(new, "kernel")
        for file in archive.download(new):
            run("dpkg", "-x", file, tree)
        if not os.path.isdir(os.path.join(tree, "lib")):        # newer packages have it where /lib leads to
            os.symlink("usr/lib", os.path.join(tree, "lib"))
        version, = os.listdir(os.path.join(tree, "lib", "modules"))
        run("depmod", "-b", tree, version)
        os.rename(tree, root)


def image(root):
    version, = os.listdir(os.path.join(root, "lib", "modules"))
    places = os.path.join(root, "boot", f"vmlinuz-{version}"), os.path.join(root, "lib", "modules", version, "vmlinuz")
    return next(p for p in places if os.path.exists(p))


def prepare(cache, newer=False):
    """(kernel image, directory with lib/modules), fetched if they are not in the cache."""
    if platform.machine() != "x86_64":
        raise CannotBeMade("not an x86_64 machine")
    os.environ["PATH"] += ":/usr/sbin:/sbin"    # of ordinary users, where modprobe is
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise CannotBeMade(f"not installed: {' '.join(missing)}")
    os.makedirs(cache, exist_ok=True)
    root = os.path.join(os.path.realpath(cache), "newer" if newer else "kernel")
    with open(os.path.join(cache, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(root):
            unpack(root, Archive(os.path.join(os.path.realpath(cache), "lists") if newer else None))
    return image(root), root


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


def make_initrd(root, init, inside, to):
    with tempfile.TemporaryDirectory() as tree:
        os.makedirs(os.path.join(tree, "modules"))
        shutil.copy(shutil.which("busybox"), os.path.join(tree, "busybox"))
        shutil.copy(init, os.path.join(tree, "init"))
        shutil.copy(inside, os.path.join(tree, "inside.sh"))
        os.chmod(os.path.join(tree, "init"), 0o755)
        for number, file in enumerate(modules_in_order(root)):
            name = os.path.join(tree, "modules", f"{number:02d}-{os.path.basename(file)}")
            with lzma.open(file) if file.endswith(".xz") else open(file, "rb") as module, open(name.removesuffix(".xz"), "wb") as out:
                shutil.copyfileobj(module, out)
        names = "\n".join(os.path.relpath(os.path.join(at, name), tree)
                          for at, dirs, files in os.walk(tree) for name in dirs + files)
        archive = subprocess.run(("busybox", "cpio", "-o", "-H", "newc"), cwd=tree, input=names.encode(), check=True,
                                 capture_output=True, timeout=60).stdout
        with gzip.open(to, "wb", compresslevel=1) as f:
            f.write(archive)
