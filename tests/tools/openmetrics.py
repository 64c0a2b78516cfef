"""A strict reader of OpenMetrics 1.0 text, for the types that unet metrics has: counter, gauge, info."""

import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
SUFFIX = {"counter": "_total", "gauge": "", "info": "_info"}


def labels_of(text):
    """{a="b"} without its braces, as a dict."""
    out, at = {}, 0
    while at < len(text):
        m = LABEL.match(text, at)
        assert m, f"no label: {text[at:]}"
        assert m[1] not in out, f"label twice: {m[1]}"
        assert not (m[3] == "," and m.end() == len(text)), f"a comma at the end: {text}"
        out[m[1]] = re.sub(r"\\(.)", lambda e: "\n" if e[1] == "n" else e[1], m[2])
        at = m.end()
    return out


def parse(text):
    """{(sample's name, frozenset of labels): value}, and {family: {"type":, "unit":, "help":}}. AssertionError where it is wrong."""
    assert text.endswith("\n# EOF\n"), "does not end with # EOF"
    families, samples, family = {}, {}, None
    for line in text[:-len("# EOF\n")].split("\n")[:-1]:
        said = re.fullmatch(rf"# (TYPE|UNIT|HELP) ({NAME}) (.*)", line)
        if said:
            kind, name, value = said.groups()
            if name != family:
                assert name not in families, f"a family in two places: {name}"
                family = name
                families[name] = {"samples": 0}
            about = families[name]
            assert about["samples"] == 0, f"{kind} behind samples of {name}"
            assert kind.lower() not in about, f"{kind} of {name} twice"
            about[kind.lower()] = value
            assert kind != "TYPE" or value in SUFFIX, f"type {value}"
            assert kind != "UNIT" or name.endswith("_" + value), f"unit {value} of {name}"
            assert kind != "HELP" or not re.search(r'\\[^\\n"]|\\$', value), f"escapes of {value}"
            continue
        sample = re.fullmatch(rf"({NAME})(?:\{{(.*)\}})? (\S+)", line)
        assert sample, f"neither about a family nor a sample: {line!r}"
        about = families[family]
        assert sample[1] == family + SUFFIX[about["type"]], f"{sample[1]} among samples of {family}"
        key = (sample[1], frozenset(labels_of(sample[2] or "").items()))
        assert key not in samples, f"a sample twice: {line}"
        value = float(sample[3])
        assert about["type"] == "gauge" or value >= 0, line
        assert about["type"] != "info" or value == 1, line
        samples[key] = value
        about["samples"] += 1
    for name, about in families.items():
        assert about.get("help"), f"no help of {name}"
        assert not any(other != name and other in (name + "_total", name + "_info") for other in families), name
    return samples, families
