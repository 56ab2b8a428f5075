#!/usr/bin/env python3
"""test_checker.py LIBRARY - the executor's checker finds each kind of fault and its place, and passes cases that come near to
one. LIBRARY is the executor. Prints TAP.
"""
import ctypes
import re
import struct
import sys

import faults
from device import FAULT, Device, Points, outcome

SEEDS = range(4)
KEPT = []  # memory of a launch, until its process ends


def memory(device, given):
    how, what, kind = given
    if how == "number":
        return what
    made = device.memory(what if how == "none" else len(what), what if how in ("data", "freed") else None, kind)
    if how == "untold":
        made.put(what, told=False)
    if how == "freed":
        made.free()
    KEPT.append(made)
    return made.at


def launch(device, case):
    program = device.program(faults.source(case), {"kernel": case.registers})
    parameters = struct.pack("<QQ", memory(device, case.a), memory(device, case.b))
    program.launch("kernel", parameters, case.blocks, case.threads, case.dynamic)
    return "passed"


def judge(case, seed, status, said, result):
    """The error, or ''."""
    if case.said is None:
        return "" if (status, said, result) == (0, "", "passed") else "seed %d: status %d\n%s" % (seed, status, said)
    lines = [line for line in said.splitlines() if not line.startswith("not understood")] + [""] * 4
    wanted = [(r"ptx: (thread \d+ of block \d+ )?.*(%s)" % case.said, lines[0])]
    if case.who:
        wanted.append(("ptx: thread %d of block %d " % case.who, lines[0]))
    if not lines[0].startswith("ptx: kernel: "):
        wanted += [("ptx:   kernel, %d blocks of %d threads$" % (case.blocks, case.threads), lines[1]), ("ptx:   SL_PTX_SEED=%d$" % seed, "\n".join(lines[2:]).strip().split("\n")[-1])]
    if "! " in case.body:
        wanted.append((r"ptx:   source\.c:%d: " % faults.LINE, lines[2]))
    missing = [pattern for pattern, line in wanted if not re.match(pattern, line)]
    return "" if status == FAULT and not missing else "seed %d: status %d, not as %r\n%s" % (seed, status, missing, said)


# Threads of a block take tickets, in the order that the executor has drawn for warps and blocks.
TICKETS = """
.visible .entry tickets(.param .u64 tickets_0, .param .u64 tickets_1) {
    .reg .b64 %a, %b, %c; .reg .b32 %i, %n, %x; .reg .pred %p;
    ld.param.u64 %a, [tickets_0]; ld.param.u64 %b, [tickets_1]; mov.u32 %i, %tid.x; mov.u32 %n, %ctaid.x; mad.lo.s32 %n, %n, 128, %i;
    mul.wide.u32 %c, %n, 4; add.s64 %b, %b, %c; atom.global.add.u32 %x, [%a], 1; st.global.u32 [%b], %x;
    ret;
}
.visible .entry sums(.param .u64 sums_0, .param .u64 sums_1) {
    .shared .align 4 .b8 words[512];
    .reg .b64 %a, %b, %c, %d; .reg .b32 %i, %n, %x, %y, %k; .reg .pred %p;
    ld.param.u64 %a, [sums_0]; ld.param.u64 %b, [sums_1]; mov.u32 %i, %tid.x; mov.u32 %n, %ctaid.x; mul.wide.u32 %c, %i, 4; mov.u64 %d, words; add.s64 %d, %d, %c;
    add.s32 %x, %i, %n; st.shared.u32 [%d], %x; mov.u32 %k, 64;
LOOP:
    bar.sync 0; setp.ge.u32 %p, %i, %k; @%p bra NEXT;
    mul.wide.u32 %c, %k, 4; add.s64 %c, %d, %c; ld.shared.u32 %y, [%c]; ld.shared.u32 %x, [%d]; mad.lo.s32 %x, %x, 3, %y; st.shared.u32 [%d], %x;
NEXT:
    shr.u32 %k, %k, 1; setp.ne.s32 %p, %k, 0; @%p bra LOOP;
    setp.ne.s32 %p, %i, 0; @%p ret;
    mul.wide.u32 %c, %n, 4; add.s64 %b, %b, %c; ld.shared.u32 %x, [words]; st.global.u32 [%b], %x;
    ret;
}
"""


def run(device, kernel):
    def action():
        program = device.program(TICKETS)
        counter, out = device.memory(4, bytes(4)), device.memory(4 * 128 * 6, bytes(4 * 128 * 6))
        program.launch(kernel, struct.pack("<QQ", counter.at, out.at), blocks=6, threads=128)
        return out.bytes().hex()
    return action


def orders(device, points):
    tickets = [outcome(run(device, "tickets"), seed)[2] for seed in (1, 2, 3, 1, 2, 3)]
    points.point(None not in tickets and tickets[:3] == tickets[3:], "SL_PTX_SEED repeats the order of warps and blocks")
    points.point(len(set(tickets)) == 3, "seeds have different orders")
    sums = [outcome(run(device, "sums"), seed)[2] for seed in range(8)]
    points.point(sums[0] and len(set(sums)) == 1, "a kernel's result is the same by each seed", sums)


def library(device, points):
    """Reads by libraries, which the executor does not run."""
    def reads(size, data, count):
        def action():
            made = device.memory(size, None if data == "copy" else data)
            if data == "copy":
                source = device.memory(size)
                source.put(bytes(8))
                device.library.ptx_memory_copied(ctypes.c_void_p(made.at), ctypes.c_void_p(source.at), ctypes.c_size_t(size))
            device.library.ptx_memory_read(ctypes.c_void_p(made.at), ctypes.c_size_t(count))
            return "passed"
        return action
    rows = (("unwritten", 64, None, 8, "nobody has written"), ("beyond the end", 64, bytes(64), 65, "beyond the end"), ("written", 64, bytes(64), 64, None),
            ("a copy of what is written", 64, "copy", 8, None), ("a copy of what nobody has written", 64, "copy", 9, "nobody has written"))
    for name, size, data, count, said in rows:
        status, words, result = outcome(reads(size, data, count))
        good = (status == FAULT and said in words) if said else result == "passed"
        points.point(good, "a library reads: " + name, words)


def main():
    device, points = Device(sys.argv[1]), Points()
    for case in faults.CASES:
        wrong = [judge(case, seed, *outcome(lambda c=case: launch(device, c), seed)) for seed in SEEDS]
        points.point(not any(wrong), case.name, "".join(wrong))
    orders(device, points)
    library(device, points)
    return points.plan()


if __name__ == "__main__":
    sys.exit(main())
