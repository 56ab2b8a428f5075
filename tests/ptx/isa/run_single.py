"""run_single.py - runs the cases of single.py: a kernel each, a thread for each row of operands.

An instruction runs twice: in all threads, and guarded in some; the others keep the old value of the register.
"""
import struct
from fractions import Fraction

from rounding import F16
from single import BITS, CASES, FLOATS

KEPT = 0x1122334455667788
DECLARED = {1: "pred", 16: "b16", 32: "b32", 64: "b64"}
KERNEL = """
.visible .entry {name}(.param .u64 {name}_0, .param .u64 {name}_1, .param .u32 {name}_2) {{
    .reg .pred %run, %more; .reg .b32 %t<6>; .reg .b64 %in, %out, %at;
    {registers}
    ld.param.u64 %in, [{name}_0]; ld.param.u64 %out, [{name}_1]; ld.param.u32 %t4, [{name}_2];
    mov.u32 %t0, %ctaid.x; mov.u32 %t1, %ntid.x; mov.u32 %t2, %tid.x;
    mad.lo.s32 %t3, %t0, %t1, %t2;
    setp.ge.u32 %more, %t3, %t4;
    @%more bra END;
    mul.wide.u32 %at, %t3, {in_bytes}; add.s64 %in, %in, %at;
    mul.wide.u32 %at, %t3, {out_bytes}; add.s64 %out, %out, %at;
    and.b32 %t5, %t3, 5; setp.ne.s32 %run, %t5, 1;
    {loads}
    {instruction};
    {stores}
    {old}
    @%run {instruction};
    {guarded}
END:
    ret;
}}
"""


def load(register, kind, address, offset):
    bits = BITS[kind]
    if bits == 1:
        return "ld.global.u32 %%t5, [%s+%d]; setp.ne.s32 %s, %%t5, 0;" % (address, offset, register)
    return "ld.global.%s %s, [%s+%d];" % (kind if kind in FLOATS else "u%d" % bits, register, address, offset)


def store(register, kind, address, offset):
    bits = BITS[kind]
    if bits == 1:
        return "selp.u32 %%t5, 1, 0, %s; st.global.u32 [%s+%d], %%t5;" % (register, address, offset)
    return "st.global.%s [%s+%d], %s;" % (kind if kind in FLOATS else "u%d" % bits, address, offset, register)


def kernel(name, case):
    results, operands = (["%%%s%d" % (letter, i) for i in range(len(kinds))] for letter, kinds in (("d", case.results), ("a", case.operands)))
    names = {register[1:]: register for register in results + operands}
    registers = ["%s.reg .%s %s;" % ("", kind if kind in FLOATS else DECLARED[BITS[kind]], register)
                 for register, kind in zip(results + operands, case.results + case.operands)]

    def each(function, places, kinds, address, first):
        return " ".join(function(p, k, address, first + 8 * i) for i, (p, k) in enumerate(zip(places, kinds)))
    behind = 8 * len(results)
    return KERNEL.format(
        name=name, registers=" ".join(registers), in_bytes=8 * len(operands), out_bytes=2 * behind,
        loads=each(load, operands, case.operands, "%in", 0), instruction=case.opcode + " " + case.shape.format(**names),
        stores=each(store, results, case.results, "%out", 0), old=each(load, results, case.results, "%out", behind),
        guarded=each(store, results, case.results, "%out", behind))


def run(program, name, case):
    """Bits of the results of each row, and of the guarded ones."""
    rows, count = case.values, len(case.results)
    given = program.device.memory(8 * len(case.operands) * len(rows), b"".join(struct.pack("<%dQ" % len(row), *row) for row in rows))
    out = program.device.memory(16 * count * len(rows), struct.pack("<Q", KEPT) * (2 * count * len(rows)))
    program.launch(name, struct.pack("<QQI", given.at, out.at, len(rows)), blocks=(len(rows) + 95) // 96, threads=96)
    found = [x & ((1 << max(BITS[kind], 32 * (BITS[kind] == 1))) - 1)
             for x, kind in zip(struct.unpack("<%dQ" % (2 * count * len(rows)), out.bytes()), case.results * (2 * len(rows)))]
    for memory in (given, out):
        memory.free()
    return [(tuple(found[2 * count * i:][:count]), tuple(found[2 * count * i + count:][:count])) for i in range(len(rows))]


def allowed(case, kind, want, got):
    f = F16 if kind == "f16" else FLOATS.get(kind)
    if want == got:
        return True
    if not f:
        return False
    if f.is_nan(want):
        return case.nans == "any" and f.is_nan(got)
    if not case.near or f.is_nan(got) or f.is_infinite(want) or f.is_infinite(got) or (want ^ got) & f.sign:
        return False
    least = 2 * f.value(1)  # subnormal results have fewer digits
    return abs(f.value(want) - f.value(got)) <= max(abs(f.value(want)) * (Fraction(case.near) + Fraction(2) ** -24), least)


def check(program, name, case):
    """The error, or ''."""
    wrong, kept = [], [(KEPT != 0 if BITS[k] == 1 else KEPT & ((1 << BITS[k]) - 1)) for k in case.results]
    for i, (row, (plain, guarded)) in enumerate(zip(case.values, run(program, name, case))):
        want = case.oracle(*row)
        want = want if isinstance(want, tuple) else (want,)
        for label, got, ought in (("", plain, want), (" guarded", guarded, want if i & 5 != 1 else tuple(kept))):
            if not all(allowed(case, kind, w, g) for kind, w, g in zip(case.results, ought, got)):
                wrong.append("%s%s of %s: %s, not %s" % (case.opcode, label, *(" ".join("%x" % x for x in xs) for xs in (row, got, ought))))
    return "\n".join(wrong)


def source():
    """All kernels; kernel I is that of CASES[I]."""
    return "".join(kernel("single_%d" % i, case) for i, case in enumerate(CASES))
