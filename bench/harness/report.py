"""How results are shown: a table for people, JSON for programs, a plot for both."""

import math
import shutil
import statistics
import subprocess
import tempfile

from . import gates


def medians(runs):
    """{(measurement, side): {value: median over the runs}} of what is a number."""
    groups = {}
    for run in runs:
        for name, value in run["values"].items():
            if isinstance(value, (int, float)):
                groups.setdefault((run["measurement"], run["side"]), {}).setdefault(name, []).append(value)
    return {key: {name: statistics.median(v) for name, v in values.items()} for key, values in groups.items()}


def not_accelerated(runs):
    """Measurements whose U-Net side went through the kernel after all: (name, segments the kernel carried).

    A few segments are normal (a program's own control traffic to a name server, say); thousands are a fallback.
    """
    worst = {}
    for run in runs:
        segments = run["values"].get("kernel_segments", 0)
        if run["side"] != "kernel" and segments > 1000:
            worst[run["measurement"]] = max(worst.get(run["measurement"], 0), segments)
    return sorted(worst.items())


def udp_accounts(runs):
    """For each UDP run over U-Net: what was lost, and what `unet stat` has a reason for. They are to be equal."""
    return [{"measurement": run["measurement"], "run": run["run"], "sent": v["sent"], "delivered": v["delivered"],
             "lost": v["lost"], "named": v["drops"], "reasons": v["drops_by_reason"]}
            for run in runs for v in [run["values"]] if "drops_by_reason" in v]


def judged_rows(runs):
    """The rows whose measurements were made."""
    found = medians(runs)
    out = []
    for row in gates.rows():
        ours = found.get(row.ours[:2], {}).get(row.ours[2])
        ref = found.get(row.ref[:2], {}).get(row.ref[2]) if row.ref else None
        if ours is None or (row.ref and not ref) or (row.ref and not ours):
            continue
        ratio, verdict = gates.judge(row, ours, ref)
        out.append({"title": row.title, "unit": row.unit, "reference": ref, "reference_of": row.ref and row.ref[1],
                    "ours": ours, "ratio": ratio, "rule": row.rule, "at_least": row.least, "aim": row.aim,
                    "absolute": row.ref is None, "verdict": verdict})
    return out


def _number(value):
    if value is None:
        return "-"
    if value >= 10000:
        return f"{value:,.0f}"
    digits = max(0, 2 - int(math.floor(math.log10(abs(value))))) if value else 0
    return f"{value:.{min(digits, 3)}f}"


def _bound(row, value):
    if value is None:
        return "-"
    text = f"{value:,g}" if row["absolute"] else f"{value:g}x"
    return ("<= " if row["rule"] == "most" else "") + text


def table(rows):
    """The table of gate 5, as text."""
    head = ("", "reference", "U-Net", "", "ratio", "at least", "aim", "")
    lines = [head]
    for row in rows:
        ratio = "" if row["absolute"] else f"{_number(row['ratio'])}x"
        lines.append((row["title"], _number(row["reference"]), _number(row["ours"]), row["unit"], ratio,
                      _bound(row, row["at_least"]), _bound(row, row["aim"]), row["verdict"]))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    left = (0, 3, 7)
    return "\n".join("  ".join(cell.ljust(w) if i in left else cell.rjust(w)
                               for i, (cell, w) in enumerate(zip(line, widths))).rstrip() for line in lines)


def plot(rows, path):
    """Draws each row's ratio beside what is demanded. False when gnuplot is not there."""
    gnuplot = shutil.which("gnuplot")
    bars = [r for r in rows if r["reference_of"] == "kernel" and r["rule"] == "times"]
    if not gnuplot or not bars:
        return False
    terminal = "svg size 1000,560" if path.endswith(".svg") else "png size 1000,560"
    with tempfile.NamedTemporaryFile("w", suffix=".dat", encoding="utf-8") as data:
        for r in bars:
            data.write(f"\"{r['title']}\" {r['ratio']} {r['at_least']} {r['aim'] or r['at_least']}\n")
        data.flush()
        script = f"""
            set terminal {terminal}
            set output '{path}'
            set title 'U-Net against the kernel loopback (times better)'
            set style fill solid 0.7
            set boxwidth 0.6
            set logscale y
            set grid y
            set key top left
            set xtics rotate by -30
            set bmargin 11
            set rmargin 22
            plot '{data.name}' using 0:2:xtic(1) with boxes title 'measured', \\
                 '' using 0:3 with points pt 7 title 'at least', '' using 0:4 with points pt 6 title 'aim'
        """
        done = subprocess.run([gnuplot], input=script, text=True, timeout=30, check=False, stderr=subprocess.PIPE)
    return done.returncode == 0
