#!/usr/bin/env python3
"""trace.py TRACE COORDINATES [METRICS] - checks a trace of Chrome's format for Perfetto; status 1 and a line if
something is missing. METRICS has the run's JSON lines; its first step is not recorded. Without METRICS steps and losses
are not checked."""
import json
import math
import sys

SLACK = 0.002  # microseconds: numbers are written with 12 digits


def require(condition, *what):
    if not condition:
        sys.exit("trace: " + " ".join(map(str, what)))


def inside(event, slices):
    """Returns the slices of the event's row that contain its time, the innermost one last."""
    return [s for s in slices[event["pid"], event["tid"]]
            if s["ts"] - SLACK <= event["ts"] <= s["ts"] + s["dur"] + SLACK]


def check_names(events, slices, coordinates):
    named = {kind: {} for kind in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")}
    for event in events:
        if event["ph"] == "M" and event["name"] in named:
            key = event["pid"] if event["name"].startswith("process") else (event["pid"], event["tid"])
            require(key not in named[event["name"]], "two names of", key)
            named[event["name"]][key] = event["args"]
    for pid, tid in slices:
        require(pid > 0 and tid > 0, "a process or row has the kernel's number 0:", pid, tid)
        require(pid in named["process_name"] and pid in named["process_sort_index"], "no name of process", pid)
        require((pid, tid) in named["thread_name"], "no name of row", tid)
        require((pid, tid) in named["thread_sort_index"], "no place of row", tid)
    rows = [args["name"] for args in named["thread_name"].values()]
    require(len(set(rows)) == len(rows), "two rows have one name")
    count = sum("=" in row and not row.startswith("concurrent work") for row in rows)
    require(count == coordinates, count, "coordinates have rows")


def check_rows(slices):
    """Two slices of a row do not overlap, or one contains the other."""
    for row, list_of_row in slices.items():
        open_ends = []
        for event in sorted(list_of_row, key=lambda s: (s["ts"], -s["dur"])):
            require(event["ts"] >= 0 and event["dur"] >= 0, "an event's time:", event)
            end = event["ts"] + event["dur"]
            while open_ends and open_ends[-1] <= event["ts"] + SLACK:
                open_ends.pop()
            require(not open_ends or end <= open_ends[-1] + SLACK, "row", row, "events overlap:", event)
            open_ends.append(end)


def check_arrows(events, slices):
    starts, ends = {}, {}
    for event in events:
        if event["ph"] in "sf":
            side = starts if event["ph"] == "s" else ends
            require(event["id"] not in side, "two ends of arrow", event["id"])
            side[event["id"]] = event
    require(starts.keys() == ends.keys(), "arrows with one end")
    used = set()
    for number, start in starts.items():
        end = ends[number]
        kind = start["name"]
        require(start["ts"] <= end["ts"], "arrow", number, "goes back in time")
        require(end["name"] == kind and start["cat"] == end["cat"] and end["bp"] == "e", "arrow", number, "is two")
        sends = [s for s in inside(start, slices) if s["name"] == "send " + kind]
        takes = [s for s in inside(end, slices) if s["name"] == "take " + kind]
        require(sends and takes, "arrow", number, "begins or ends in no event")
        send, take = sends[-1]["args"], takes[-1]["args"]
        require(send["step"] == take["step"] and send["microbatch"] == take["microbatch"], "arrow", number, send, take)
        require(take["stage"] - send["stage"] == (1 if kind == "activation" else -1), "arrow", number, send, take)
        require(send.get("pipeline", send["data"]) == take.get("pipeline", take["data"]), "arrow", number, send, take)
        used.add(id(sends[-1]))
    all_sends = sum(s["name"].startswith("send ") for row in slices.values() for s in row)
    require(len(used) == len(starts) == all_sends, len(starts), "arrows for", all_sends, "messages")
    return len(starts)


def check_steps(events, metrics):
    wanted = [(m["step"], m["loss"]) for m in metrics if "loss" in m][1:]
    steps = [e for e in events if e.get("cat") == "step"]
    require([e["args"]["step"] for e in steps] == [step for step, _ in wanted], "the steps are", steps)
    for event, (_, loss) in zip(steps, wanted):
        require(math.isclose(event["args"]["loss"], loss, rel_tol=1e-8), "the loss is", loss, event)
    for event in events:
        if event["ph"] != "X" or event in steps:
            continue
        of = [s for s in steps if s["args"]["step"] == event["args"]["step"]]
        require(len(of) == 1, "an event of no step:", event)
    for before, after in zip(steps, steps[1:]):
        require(before["ts"] + before["dur"] <= after["ts"] + SLACK, "steps overlap")


def check_pieces(slices):
    """If rows move in pieces, each piece of a forward but the last one moves while the next one is multiplied; each piece of an
    input gradient but the first one moves while the one before it is multiplied."""
    pieces = [s for row in slices.values() for s in row if s["cat"] in ("product", "move")]
    moves = [s for s in pieces if s["cat"] == "move"]
    for move in moves:
        kind, number = move["name"].split()
        require(kind in ("scatter", "gather"), "a move is called", move["name"])
        beside = int(number) + (1 if kind == "scatter" else -1)
        of = [s["name"] for s in pieces if s["cat"] == "product" and s["pid"] == move["pid"] and s["args"]["rank"] == move["args"]["rank"] and
              move["ts"] - SLACK <= s["ts"] and s["ts"] + s["dur"] <= move["ts"] + move["dur"] + SLACK]
        last = kind == "scatter" and not any(s["name"] == f"scatter {beside}" for s in moves)
        require(last or beside < 0 or f"multiply {beside}" in of, "beside no product:", move)
    return len(moves)


def main():
    path, coordinates, *metrics = sys.argv[1:]
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    slices = {}
    for event in events:
        if event["ph"] == "X":
            slices.setdefault((event["pid"], event["tid"]), []).append(event)
    check_names(events, slices, int(coordinates))
    check_rows(slices)
    arrows = check_arrows(events, slices)
    for name in metrics:
        with open(name) as file:
            check_steps(events, [json.loads(line) for line in file])
    print(f"{len(events)} events, {arrows} arrows, {check_pieces(slices)} pieces")


main()
