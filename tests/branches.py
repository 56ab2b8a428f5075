#!/usr/bin/env python3
"""branches.py REASONS GROUP=EXPORT... - for tests/coverage: a table of each GROUP, with its EXPORT in the format of llvm-cov
export: the branches of its files that tests take, those that are left with a reason, and the others, which are
listed after the tables. Exit status: 1 if fewer than 95 % of a group's branches without a reason are taken, or a line
of REASONS is of no source line. A branch that has a reason may be taken now and then.

A line of REASONS is

    FILE :: TEXT :: WHICH :: REASON

FILE may be *, TEXT is a part of a source line, and WHICH is true, false or both, or N.true: of the N-th condition
on that line alone."""

import json
import os
import sys

WANTED = 95


class Reason:
    def __init__(self, line):
        self.file, self.text, self.which, self.why = (part.strip() for part in line.split(" :: "))
        number, _, self.which = self.which.rpartition(".")
        self.number = int(number) if number else 0
        self.found = False
        if self.which not in ("true", "false", "both"):
            raise ValueError(f"{self.which} is neither true, false nor both")

    def holds(self, file, line, number, outcome):
        if self.file not in ("*", file) or self.text not in line:
            return False
        self.found = True
        return self.number in (0, number) and self.which in ("both", outcome)


def read_reasons(path):
    reasons = []
    with open(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip() and not line.startswith("#"):
                try:
                    reasons.append(Reason(line))
                except ValueError as wrong:
                    sys.exit(f"{path}:{number}: {wrong}")
    return reasons


def conditions(file):
    """Yields (line, number on it, taken true, taken false) for each condition. Conditions of a macro are on the line that uses
    it. Several programs may have the same condition."""
    found = {}

    def add(line, column, place, true, false):
        before = found.get((line, column, place), (0, 0))
        found[line, column, place] = before[0] + true, before[1] + false

    for line, column, end, last, true, false, *_ in file["branches"]:
        add(line, column, (end, last), true, false)
    for macro in file["expansions"]:
        for *place, true, false, _, _, _ in macro["branches"]:
            add(*macro["source_region"][:2], tuple(place), true, false)
    numbers = {}
    for (line, *_), (true, false) in sorted(found.items()):
        numbers[line] = numbers.get(line, 0) + 1
        yield line, numbers[line], true, false


def main(path, groups):
    reasons = read_reasons(path)
    failed, left = False, []
    for name, export in (group.split("=", 1) for group in groups):
        with open(export) as file:
            files = json.load(file)["data"][0]["files"]
        print(name)
        sums = [0, 0, 0]
        for file in sorted(files, key=lambda one: one["filename"]):
            shown = os.path.relpath(file["filename"])
            with open(shown) as source:
                lines = source.read().splitlines()
            taken = explained = unexplained = 0
            for line, number, true, false in conditions(file):
                text = lines[line - 1]
                for outcome, count in (("true", true), ("false", false)):
                    has_reason = any([one.holds(shown, text, number, outcome) for one in reasons])
                    taken += bool(count)
                    if has_reason and not count:
                        explained += 1
                    elif not count:
                        unexplained += 1
                        left.append(f"{shown}:{line}: condition {number} is never {outcome}: {text.strip()}")
            show(shown, taken, explained, unexplained)
            sums = [a + b for a, b in zip(sums, (taken, explained, unexplained))]
        show("all", *sums)
        if 100 * sums[0] < WANTED * (sums[0] + sums[2]):
            failed = True
            print(f"  fewer than {WANTED} % of the branches without a reason are taken")
    print("\n".join(left))
    for one in reasons:
        if not one.found:
            failed = True
            print(f"of no use: {one.file} :: {one.text}: there is no such line")
    return failed


def show(name, taken, explained, unexplained):
    every = taken + explained + unexplained
    share = 100 * taken / every if every else 100
    print(f"  {name:42} {taken:5} of {every:5} branches  {share:6.1f} %, {explained:4} with a reason, {unexplained:4} without")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
