"""How bench/programs shows what it measured: rows, tables, a plot, JSON."""

import json
import shutil
import statistics
import subprocess
import tempfile

VALUES = ("rate", "p50_us", "p99_us", "cpu_us")

# What a row is to reach, of the kernel's rate. Processor time a request is never to be above the kernel's.
AT_LEAST = {("unet", "quiet"): 1.0, ("unet", "busy"): 0.95, ("kernel", "quiet"): 0.95, ("kernel", "busy"): 0.95}


def _pairs(runs, name, beside, side):
    """(the kernel's values, ours) of each round in which both were measured."""
    of = {(r["side"], r["run"]): r["values"] for r in runs if (r["measurement"], r["beside"]) == (name, beside)}
    return [(of["kernel", n], values) for (s, n), values in of.items() if s == side and ("kernel", n) in of]


def _medians(values):
    return {name: statistics.median(v[name] for v in values) for name in VALUES if all(name in v for v in values)}


def _row(name, beside, client, pairs):
    ratios = [ours["rate"] / kernel["rate"] for kernel, ours in pairs]
    row = {"name": name, "beside": beside, "client": client, "kernel": _medians([k for k, _ in pairs]),
           "unet": _medians([u for _, u in pairs]), "ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
    row["short"] = [what for what, is_short in (("rate", row["ratio"] < AT_LEAST[client, beside]),
                                                ("cpu", row["unet"]["cpu_us"] > row["kernel"]["cpu_us"])) if is_short]
    return row


def rows(runs):
    """A row for each measurement that both sides made: quiet and busy, with either client."""
    out = []
    for client, side in (("unet", "unet"), ("kernel", "ordinary")):
        for beside in ("quiet", "busy"):
            for name in dict.fromkeys(run["measurement"] for run in runs):
                pairs = _pairs(runs, name, beside, side)
                if pairs:
                    out.append(_row(name, beside, client, pairs))
    return out


def sections(found_rows):
    """(title, its rows) of each table."""
    for client, who in (("unet", "client and server over U-Net"), ("kernel", "server over U-Net, ordinary client")):
        for beside, what in (("quiet", "quiet"), ("busy", "beside a computing program on each processor")):
            found = [r for r in found_rows if (r["client"], r["beside"]) == (client, beside)]
            if found:
                yield f"{who}, {what}", found


WHAT = ("Requests a second; the time of half and of 99 of 100 requests, where the client tells it; processor time a request of all "
        "processes. Of a stream (MB) a request is 2^20 bytes. \"Short\" says what is worse than it is to be.")


def number(value):
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


HEAD = ("", "kernel/s", "U-Net/s", "ratio", "of", "p50, us", "U-Net", "p99, us", "U-Net", "CPU, us", "U-Net", "short")


def cells(row):
    """What a table shows of a row, as HEAD names it."""
    times = [number(row[side].get(name)) for name in VALUES[1:] for side in ("kernel", "unet")]
    return (row["name"], number(row["kernel"]["rate"]), number(row["unet"]["rate"]), f"{row['ratio']:.2f}",
            f"{row['least']:.2f} to {row['most']:.2f}", *times, ", ".join(row["short"]))


def table(found_rows):
    text = []
    for title, chosen in sections(found_rows):
        lines = [HEAD, *(cells(row) for row in chosen)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
        text += ["", title, ""]
        text += ["  ".join(cell.ljust(w) if i in (0, len(HEAD) - 1) else cell.rjust(w)
                           for i, (cell, w) in enumerate(zip(line, widths))).rstrip() for line in lines]
    return "\n".join(text)


def dump(result, file):
    """JSON, a run a line."""
    head = json.dumps({name: value for name, value in result.items() if name != "runs"}, indent=1)
    runs = ",\n".join("  " + json.dumps(run) for run in result["runs"])
    file.write(f'{head[:-2]},\n "runs": [\n{runs}\n ]\n}}\n')


def plot(found_rows, path):
    """Draws each row's ratio. False when gnuplot is not there."""
    gnuplot, titles = shutil.which("gnuplot"), [title for title, _ in sections(found_rows)]
    if not gnuplot or not titles:
        return False
    names = list(dict.fromkeys(r["name"] for r in found_rows))
    terminal = f"{'svg' if path.endswith('.svg') else 'png'} size 1400,700"
    with tempfile.NamedTemporaryFile("w", suffix=".dat", encoding="utf-8") as data:
        for title, chosen in sections(found_rows):
            data.write(f"# {title}\n")
            for r in chosen:
                data.write(f"\"{r['name']}\" {names.index(r['name'])} {r['ratio']} {r['least']} {r['most']}\n")
            data.write("\n\n")
        data.flush()
        curves = ", ".join(f"'{data.name}' index {i} using ($2 + {0.15 * i}):3:4:5{':xtic(1)' if i == 0 else ''} "
                           f"with yerrorbars pt {5 + i} title '{title}'" for i, title in enumerate(titles))
        script = f"""
            set terminal {terminal}
            set output '{path}'
            set title 'Requests a second over U-Net, kernel = 1'
            set grid
            set logscale y
            set xrange [-1:{len(names)}]
            set xtics rotate by -40
            set bmargin 12
            set rmargin 14
            set key top left
            plot {curves}, 1 notitle
        """
        done = subprocess.run([gnuplot], input=script, text=True, timeout=30, check=False, stderr=subprocess.PIPE)
    return done.returncode == 0
