#!/usr/bin/env python3
"""test_opcodes.py LIBRARY PROGRAMS [FOLDER] - each PTX instruction of the executor against the PTX ISA, on edges; then that
many random programs against an interpreter. LIBRARY is the executor; below FOLDER lies PTX of which each opcode must have a
case. SL_TEST_SEED=n repeats the programs of a seed. Prints TAP.
"""
import os
import pathlib
import sys
import time

import access
import programs
import run_single
import together
from device import Device, Points, text


def opcodes_of(path):
    """Opcodes of a PTX file; '' stands for a file of functions that are not inlined: no image of a program has one."""
    try:
        module = text.Module(path.read_text(encoding="utf-8"))
    except text.NotUnderstood:
        return set()
    return {".".join([s.name] + s.mods) for kernel in module.kernels for s in kernel.statements if isinstance(s, text.Instruction)}


def singles(device, points):
    program = device.program(run_single.source())
    wrong = {}
    for i, case in enumerate(run_single.CASES):
        why = run_single.check(program, "single_%d" % i, case)
        wrong[case.opcode] = wrong.get(case.opcode, "") + why
    for opcode, why in wrong.items():
        points.point(not why, opcode, why)
    return set(wrong)


def main():
    device, points = Device(sys.argv[1]), Points()
    tested = singles(device, points)
    for part in (access, together):
        for opcodes, name, why in part.run(device.program(part.source())):
            points.point(not why, name, why)
            tested |= opcodes
    seed = int(os.environ.get("SL_TEST_SEED", time.time_ns() // 1000 % 1000000))
    wrong = [why for why in programs.run(device, seed, int(sys.argv[2])) if why]
    points.point(not wrong, "%s random programs, SL_TEST_SEED=%d" % (sys.argv[2], seed), "".join(wrong[:1]))
    if len(sys.argv) > 3:
        paths = sorted(pathlib.Path(sys.argv[3]).glob("*/*.ptx"))
        there = set().union(*[opcodes_of(path) for path in paths])
        points.point(there and there <= tested, "each of the %d opcodes of %d files has a case" % (len(there), len(paths)), "\n".join(sorted(there - tested)))
    return points.plan()


if __name__ == "__main__":
    sys.exit(main())
