#!/usr/bin/env python3
"""summary.py [--absent PRESET]... FILE... - results of ctest for presets (build/PRESET.xml): tests that failed, tests that skipped
something and why, presets that could not be built, which count as one skipped test; the tests that used the processors most;
how long each preset was compiled and tested (build/PRESET.compiled and .tested, if tests/run has left them); and, in the last
line, the numbers of tests. Exit status: 1 when a test failed, or none ran."""

import os
import re
import sys
import xml.etree.ElementTree as xml


def outcome(case):
    if case.get("status") == "run":
        return "passed"
    return "skipped" if case.get("status") in ("notrun", "disabled") and skipped_itself(case) else "failed"


def skipped_itself(case):
    """As against a test whose program is not there."""
    return case.find("skipped") is not None and case.find("skipped").get("message") == "SKIP_RETURN_CODE=77"


def reasons(case):
    found = re.findall(r"# SKIP (.*)", case.findtext("system-out") or "")
    return "; ".join(dict.fromkeys(found))


def summed(times):
    """The seconds of TIMES, as a shell's `times` prints them."""
    return sum(60 * int(m) + float(s) for m, s in re.findall(r"(\d+)m([\d.]+)s", times))


def computed(case):
    """The seconds of the processors that tests/tap has printed for the test; 0: none."""
    found = re.search(r"^# user and system time: (.*)", case.findtext("system-out") or "", re.M)
    return summed(found[1]) if found else 0


def seconds(path):
    """Returns the elapsed and the CPU's seconds that tests/run has written to PATH."""
    try:
        with open(path) as file:
            elapsed, _, children = file.read().splitlines()
    except (FileNotFoundError, ValueError):  # nothing, or a part of it
        return "-", "-"
    return elapsed, round(summed(children))


SHOWN = 20  # tests that used the processors most
counts = {"passed": 0, "failed": 0, "skipped": 0}
arguments = sys.argv[1:]
while arguments and arguments[0] == "--absent":
    print(f"skipped: preset {arguments[1]}: what it is built with is not here")
    counts["skipped"] += 1
    arguments = arguments[2:]
rows, longest = [], []
for path in arguments:
    build = os.path.splitext(path)[0]
    preset = os.path.basename(build)
    rows.append((preset, *seconds(build + ".compiled"), *seconds(build + ".tested")))
    for case in xml.parse(path).getroot().iter("testcase"):
        result = outcome(case)
        counts[result] += 1
        longest.append((computed(case), f"{preset} {case.get('name')}"))
        if result == "skipped":
            print(f"skipped under {preset}: {case.get('name')}: {reasons(case)}")
        elif result == "failed":
            print(f"failed under {preset}: {case.get('name')}")
for cpu, name in sorted(longest, reverse=True)[:SHOWN]:
    if cpu > 0:
        print(f"{cpu:>11.1f} s of CPU: {name}")
if any(row[1:] != ("-",) * 4 for row in rows):
    for row in [("seconds", "compiling", "of CPU", "testing", "of CPU"), *rows]:
        print("".join(f"{cell:>11}" for cell in row))
print(", ".join(f"{count} {result}" for result, count in counts.items()))
sys.exit(counts["failed"] > 0 or counts["passed"] == 0)
