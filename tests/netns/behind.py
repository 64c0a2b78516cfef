"""The programs that hang behind an interface's driver (tcx) in this network namespace, as the kernel tells; as root."""

import ctypes
import errno
import os
import socket
import struct

SYS_BPF = {"x86_64": 321, "aarch64": 280}
PROG_GET_FD_BY_ID, OBJ_GET_INFO_BY_FD, PROG_QUERY = 13, 15, 16
TCX_INGRESS, TCX_EGRESS = 46, 47
MOST = 64


def bpf(command, attr):
    """The attributes as the kernel leaves them, and what it returns."""
    buf = ctypes.create_string_buffer(attr, 128)
    ret = ctypes.CDLL(None, use_errno=True).syscall(SYS_BPF[os.uname().machine], command, buf, len(buf))
    if ret < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return buf.raw, ret


def name_of(prog_id):
    _, fd = bpf(PROG_GET_FD_BY_ID, struct.pack("I", prog_id))
    info = ctypes.create_string_buffer(96)
    bpf(OBJ_GET_INFO_BY_FD, struct.pack("IIQ", fd, len(info), ctypes.addressof(info)))
    os.close(fd)
    return info.raw[64:80].split(b"\0")[0].decode()       # struct bpf_prog_info: name


def names(interface, where="in"):
    """`where`: of what comes in, or goes "out"."""
    ids = (ctypes.c_uint32 * MOST)()
    place = TCX_EGRESS if where == "out" else TCX_INGRESS
    asked = struct.pack("IIIIQI", socket.if_nametoindex(interface), place, 0, 0, ctypes.addressof(ids), MOST)
    try:
        answer, _ = bpf(PROG_QUERY, asked)
    except OSError as why:
        if why.errno == errno.EINVAL:           # a kernel before 6.6 has no such place
            return []
        raise
    return [name_of(ids[i]) for i in range(struct.unpack_from("I", answer, 24)[0])]
