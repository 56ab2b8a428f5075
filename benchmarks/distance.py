"""distance - sorts runs of two coordinates by the distance between their cores; takes medians over runs.

A host may move a virtual machine's cores while it runs. A cache line travels four times as fast between cores that share a
cache as between others. Between distant cores, messages take longer, but the two caches hold more.
"""

import statistics

FARTHER = 1.5  # a line that takes this many times as long as in the nearest run comes from another distance


def by_distance(lines):
    """Returns the LINES that have a distance, in lists from the nearest to the farthest, and the number of runs during which
    the cores moved."""
    told = [line for line in lines if "line_ns" in line]
    steady = [line for line in told if max(line["line_ns"]) <= FARTHER * min(line["line_ns"])]
    groups = []
    for line in sorted(steady, key=lambda line: line["line_ns"][0]):
        if not groups or line["line_ns"][0] > FARTHER * groups[-1][0]["line_ns"][0]:
            groups.append([])
        groups[-1].append(line)
    return groups, len(told) - len(steady)


def middle(lines, name):
    return statistics.median(line[name] for line in lines) if lines else None


def summary(lines):
    """Returns a row for each distance."""
    groups, moved = by_distance(lines)
    rows = []
    for group in groups:
        sums = [line for line in group if line["operation"] == "psum_gradients"]
        hands = {count: [line for line in group if line.get("messages") == count] for count in (1, 2)}
        row = {"line_ns": middle([{"ns": line["line_ns"][0]} for line in group], "ns"), "sums": len(sums)}
        row |= {f"hand_over_{count}_us": middle(hands[count], "us") for count in hands}
        row |= {name: middle(sums, name) for name in ("us", "share", "loops_share", "cold_share")}
        rows.append(row)
    return {"rows": rows, "moved": moved}


def print_summary(told, print_table):
    def us(value):
        return "" if value is None else f"{value:.3g}"

    def percent(value):
        return "" if value is None else f"{100 * value:.0f} %"

    rows = [["cores are apart", "us: 16 KB, one message", "two", "psum of all gradients", "of the bandwidth", "cold", "of two loops", "runs"]]
    for row in told["rows"]:
        hands = us(row["hand_over_1_us"]), us(row["hand_over_2_us"])
        shares = map(percent, (row["share"], row["cold_share"], row["loops_share"]))
        rows.append([f"{row['line_ns']:.0f} ns", *hands, us(row["us"]), *shares, str(row["sums"])])
    print()
    print_table(rows, 1)
    if told["moved"]:
        print(f"left out: {told['moved']} measurements, while which cores came nearer or went farther apart")


def median_calls(runs):
    """Returns for each call the line with the median time. RUNS: lists of lines about the same calls in the same order."""
    calls = []
    for lines in zip(*filter(None, runs)):
        call = dict(sorted(lines, key=lambda line: line["us"])[len(lines) // 2])
        call["us_min"] = min(line["us_min"] for line in lines)
        call["us_max"] = max(line["us_max"] for line in lines)
        calls.append(call)
    return calls


def find_call(calls, operation, size, count):
    """Returns the line of OPERATION on COUNT bytes over SIZE members; None if it was not measured."""
    wanted = (operation, size, count)
    return next((call for call in calls if (call["operation"], call["group"], call["bytes"]) == wanted), None)


def call_ms(call):
    """Returns the times of CALL in milliseconds."""
    return {name.replace("us", "ms"): call[name] / 1e3 for name in ("us", "us_min", "us_max")}
