"""What is demanded: the plan of measurements, and the rows of the table with their thresholds."""

from dataclasses import dataclass
from functools import partial
from typing import Callable, Optional

from . import measure


@dataclass
class Measurement:
    name: str
    sides: tuple
    run: Callable                       # (bench, side) -> {value name: value}
    show: str                           # the value that the progress line shows
    once: bool = False                  # one run tells all
    needs: Optional[str] = None         # program of the build; without it the measurement is left out


def _iperf(name, *options, show="gbps", pairs=1):
    return Measurement(name, ("kernel", "unet"), partial(_run_iperf, options=options, pairs=pairs), show)


def _run_iperf(bench, side, options, pairs):
    return measure.iperf(bench, side, options, pairs)


def plan():
    return [
        _iperf("tcp"),
        _iperf("tcp-4", "-P", "4"),
        _iperf("tcp-reverse", "-R"),
        _iperf("tcp-bidir", "--bidir"),
        _iperf("tcp-1400", "-l", "1400"),
        _iperf("tcp-64", "-l", "64"),
        _iperf("udp-1400", "-u", "-b", "0", "-l", "1400"),
        _iperf("udp-64", "-u", "-b", "0", "-l", "64", show="kpps"),
        Measurement("ping-pong", ("kernel", "unet"), lambda b, s: measure.sockperf(b, s, False), "rtt_us"),
        Measurement("ping-pong-spinning", ("kernel",), lambda b, s: measure.sockperf(b, s, True), "rtt_us"),
        Measurement("rtt-native", ("native",), lambda b, s: measure.json_pair(b, s, "bench/rtt_native"), "rtt_us",
                    needs="bench/rtt_native"),
        Measurement("connections", ("kernel", "unet"), lambda b, s: measure.json_pair(b, s, "bench/conn_rate"),
                    "rate"),
        Measurement("connections-native", ("native",),
                    lambda b, s: measure.json_pair(b, s, "bench/conn_native"), "rate", needs="bench/conn_native"),
        _iperf("eight-pairs", pairs=8),
        Measurement("limit", ("limit",), lambda b, s: measure.json_alone(b, s, "bench/bare_ring", "0.2"), "gbps",
                    needs="bench/bare_ring"),
        Measurement("memory", ("unet",), lambda b, s: measure.memory(b, s, 10000), "bytes_per_connection", once=True),
        Measurement("idle", ("unet",), measure.idle, "cpu_ms", once=True),
    ]


@dataclass
class Row:
    """Ours against a reference.

    times: ours is to be so many times better than the reference (or that part of it, below 1).
    most:  ours is to be at most so many times the reference, or at most that value when there is none.
    """
    title: str
    unit: str
    ours: tuple                         # (measurement, side, value)
    ref: Optional[tuple]
    least: float
    aim: Optional[float]
    rule: str = "times"
    lower_is_better: bool = False


def _vs_kernel(title, name, least, aim, unit="Gb/s", value="gbps", **more):
    return Row(title, unit, (name, "unet", value), (name, "kernel", value), least, aim, **more)


def rows():
    return [
        _vs_kernel("iperf3 TCP, 1 stream, 128 KB writes", "tcp", 2, 5),
        Row("  of the bare ring", "Gb/s", ("tcp", "unet", "gbps"), ("limit", "limit", "gbps"), 0.5, 0.8),
        _vs_kernel("iperf3 TCP, 4 streams", "tcp-4", 2, 4),
        _vs_kernel("iperf3 TCP, reverse", "tcp-reverse", 2, 4),
        _vs_kernel("iperf3 TCP, --bidir, sum", "tcp-bidir", 2, 4),
        _vs_kernel("iperf3 TCP, -l 1400", "tcp-1400", 4, 10),
        _vs_kernel("iperf3 TCP, -l 64", "tcp-64", 8, 15),
        _vs_kernel("iperf3 UDP, -l 1400, delivered", "udp-1400", 5, 10),
        _vs_kernel("iperf3 UDP, -l 64, delivered", "udp-64", 8, 15),
        Row("sockperf ping-pong, kernel blocking", "µs", ("ping-pong", "unet", "rtt_us"),
            ("ping-pong", "kernel", "rtt_us"), 15, 40, lower_is_better=True),
        Row("sockperf ping-pong, kernel spinning", "µs", ("ping-pong", "unet", "rtt_us"),
            ("ping-pong-spinning", "kernel", "rtt_us"), 3, 6, lower_is_better=True),
        Row("native round trip, in cache-line trips", "µs", ("rtt-native", "native", "rtt_us"),
            ("limit", "limit", "line_rtt_us"), 12, 6, rule="most"),
        _vs_kernel("connections, shim", "connections", 3, 5, unit="/s", value="rate"),
        Row("connections, native", "/s", ("connections-native", "native", "rate"),
            ("connections", "kernel", "rate"), 8, 25),
        _vs_kernel("CPU seconds a gigabyte, 128 KB writes", "tcp", 1, 3, unit="s", value="cpu_s_per_gb",
                   lower_is_better=True),
        _vs_kernel("eight iperf3 pairs at once, sum", "eight-pairs", 1, None),
        Row("F-Stack over memif: stream", "Gb/s", ("tcp", "unet", "gbps"), None, 17.3, None),
        Row("F-Stack over memif: round trip", "µs", ("rtt-native", "native", "rtt_us"), None, 2.0, None,
            rule="most"),
        Row("F-Stack over memif: connections", "/s", ("connections-native", "native", "rate"), None, 88000, None),
        Row("memory a connection, of 10,000", "B", ("memory", "unet", "bytes_per_connection"), None, 8192, None,
            rule="most"),
        Row("CPU of an idle pair in 10 s", "ms", ("idle", "unet", "cpu_ms"), None, 1.0, None, rule="most"),
    ]


def judge(row, ours, ref):
    """(ratio as the rule states it, "aim" | "met" | "short")."""
    if row.rule == "most":
        ratio = ours / ref if ref else ours
        within = [ratio <= bound if bound is not None else None for bound in (row.least, row.aim)]
    else:
        ratio = ours if ref is None else (ref / ours if row.lower_is_better else ours / ref)
        within = [ratio >= bound if bound is not None else None for bound in (row.least, row.aim)]
    if not within[0]:
        return ratio, "short"
    return ratio, "aim" if within[1] else "met"
