"""What is promised, and whether the figures of one run of bench/all keep it.

Each promise is a row: its words, what was aimed at, what was measured, and whether that is reached. The aims are for two processors
and more, a machine left alone, and programs of the sizes that the words name; bench/all with other sizes says which it had.
"""
import statistics

NEARLY_LINEAR = 1.2  # of n log n between the points of bench/scale, as an exponent


def median(values):
    return statistics.median(values)


def ratio(over, under):
    """The median of the ratios of two series that were measured in turn."""
    return median([a / b for a, b in zip(over, under)])


def row(words, aim, value, unit, met):
    return {"words": words, "aim": aim, "measured": f"{value:.3g}{unit}", "met": met}


def below(words, limit, value, unit):
    return row(words, f"less than {limit:g}{unit}", value, unit, value < limit)


def at_most(words, limit, value, unit=""):
    return row(words, f"at most {limit:g}{unit}", value, unit, round(value, 2) <= limit)


def of_stops(data, largest):
    """`largest`: the first snapshot of the largest program; none: there was no room for it."""
    for source, kind, limit in ((largest, "first", 30), (data, "a quarter written", 15), (data, "1 % written", 8)):
        rows = [r for r in source["rows"] if r["kind"] == kind and r["precopy"] == "on"] if source else []
        if rows:
            r = max(rows, key=lambda one: one["gib"])
            yield below(f"stop of {r['gib']:g} GiB, {kind}", limit, median(r["stall_ms"]), " ms")


def of_restores(sizes):
    for mib, r in ((data["mib"], r) for data in sizes for r in data["rows"]):
        words = f"restore of {mib / 1024:g} GiB, {r['kind']}" + (" in huge pages" if r["pages"] == "huge" else "")
        yield at_most(f"{words}, beside a plain read into fresh memory", 1.2, ratio(r["restore_s"], r["floor_s"]))
        if r["criu_s"]:
            yield at_most(f"{words}, beside CRIU", 0.8, ratio(r["restore_s"], r["criu_s"]))


def of_lazy_restores(sizes):
    for data in sizes:
        for r in data["rows"]:
            yield below(f"`restore --lazy` of {data['mib'] / 1024:g} GiB, {r['kind']}, until the program runs", 30, median(r["restore_s"]) * 1000, " ms")


def of_slowdown(data):
    for r in data["rows"]:
        busy = f"{r['threads']} of {data['processors']} processors busy"
        yield below(f"less work of the program until a snapshot is durable ({r['kind']}, {data['mib'] / 1024:g} GiB, {busy})", 5, median(r["lost_percent"]), " %")


def of_jobs(data):
    stalls = {(r["memory"], r["processes"], r["kind"]): median(r["stall_ms"]) for r in data["rows"]}
    most = max(processes for _, processes, _ in stalls)
    for memory in dict.fromkeys(memory for memory, _, _ in stalls):
        words = f"stop of {most} processes that share {data['mib'] / 1024:g} GiB " + ("(MAP_SHARED)" if memory == "shared" else "by fork")
        for kind in ("first", "next"):
            yield at_most(f"{words}, beside one with as much ({kind})", 1.5, stalls[memory, most, kind] / stalls[memory, 1, kind])


def of_growth(data):
    """Of each kind the figure that is nearest to its limit, or farthest beyond it."""
    for kind, of in data["kinds"].items():
        exponents = {name: e for name, e in of["exponents"].items() if e is not None and name.endswith("_ms")}
        machine = exponents.pop("machine_ms", 0)
        limits = {name: max(NEARLY_LINEAR, machine) if name == "restore_ms" else NEARLY_LINEAR for name in exponents}
        if not exponents:
            continue
        worst = max(exponents, key=lambda name: exponents[name] - limits[name])
        aim = "not worse than n log n" + (f", or than the machine's memory alone ({machine:.2f})" if limits[worst] > NEARLY_LINEAR else "")
        yield row(f"growth with {kind}: the exponent of the {worst[:-3].replace('_', ' ')}", aim, exponents[worst], "", exponents[worst] <= limits[worst])


def table(rows):
    text = ["| promise | aim | measured | reached |", "|---|---|---|---|"]
    for r in rows:
        text.append(f"| {r['words']} | {r['aim']} | {r['measured']} | {'yes' if r['met'] else '**no**'} |")
    return text
