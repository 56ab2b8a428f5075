"""access.py - loads and stores of each type, space and vector, parameters, copies and atomics: kernels, and their results by
Python's own bytes.

run(PROGRAM) yields (opcodes that were tested, name, error or '').
"""
import random
import struct

from single import BITS, signed

SIZES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}
THREADS = 64
HEAD = """
.visible .entry {name}(.param .u64 {name}_0, .param .u64 {name}_1, .param .s32 {name}_2, .param .s32 {name}_3, .param .u32 {name}_4) {{
    .shared .align 16 .b8 block_words[1088];
    .reg .pred %run; .reg .b32 %i, %k, %n; .reg .b64 %in, %out, %at, %to, %w; .reg .{class_} %x<4>;
    ld.param.u64 %in, [{name}_0]; ld.param.u64 %out, [{name}_1];
    mov.u32 %i, %tid.x;
    ld.param.s32 %n, [{name}_2]; ld.param.s32 %k, [{name}_3]; mad.lo.s32 %k, %i, %n, %k; cvt.s64.s32 %at, %k;
    mul.lo.s64 %at, %at, {size};
    ld.param.u32 %n, [{name}_4]; and.b32 %n, %n, %i; setp.eq.s32 %run, %n, 0;
    cvt.u64.u32 %to, %i;
"""

def spaces():
    """(modifiers, whether it is the block's shared memory, whether by its generic address)"""
    return [("", False, True), (".global", False, False), (".shared", True, False), (".volatile.shared", True, False),
            ("", True, True)]


def kinds():
    """(type, register's type, elements)"""
    for kind, size in SIZES.items():
        classes = [kind] if kind[0] == "f" else ["b%d" % bits for bits in sorted({max(16, 8 * size), 64 if kind[0] == "s" else 32}) if bits >= 8 * size]
        for class_ in classes:
            for count in (1, 2, 4):
                if count * size <= 16 and (count == 1 or class_ == classes[0]):
                    yield kind, class_, count


# Every thread brings 16 bytes from global memory to the block's own.
BRING = """
    mul.lo.s64 %to, %to, 16; add.s64 %w, %in, %to; mov.u64 %in, block_words; add.s64 %to, %in, %to;
    { .reg .b64 %a, %b; ld.global.v2.u64 {%a, %b}, [%w]; st.shared.v2.u64 [%to], {%a, %b}; }
    bar.sync 0;
    cvt.u64.u32 %to, %i;
"""


def vector(count):
    return "{%s}" % ", ".join("%%x%d" % i for i in range(count)) if count > 1 else "%x0"


def kernel(name, loads, space, kind, class_, count):
    mods, shared, generic = space
    size = SIZES[kind] * count
    opcode = "%s%s%s.%s" % ("ld" if loads else "st", mods, ".v%d" % count if count > 1 else "", kind)
    width = BITS[class_]
    words = HEAD.format(name=name, class_=class_, size=size) + (BRING if shared else "")
    if shared and generic:
        words += "cvta.shared.u64 %in, %in;"
    if loads:
        words += "add.s64 %%at, %%in, %%at; add.s64 %%at, %%at, %d;" % (-3 * size)
        words += "".join("mov.b%d %%x%d, %s;" % (width, i, "0f%08X" % 7 if class_ == "f32" else "0d%016X" % 7 if class_ == "f64" else "7") for i in range(count))
        words += "@%%run %s %s, [%%at+%d];" % (opcode, vector(count), 3 * size)
        words += "mul.lo.s64 %%to, %%to, %d; add.s64 %%out, %%out, %%to;" % (8 * count)
        words += "".join("st.global.%s [%%out+%d], %%x%d;" % (class_ if class_[0] == "f" else "u%d" % width, 8 * i, i) for i in range(count))
    else:
        target = "%in" if shared else "%out"
        words += "mul.lo.s64 %%to, %%to, %d; ld.param.u64 %%w, [%s_0]; add.s64 %%to, %%w, %%to;" % (8 * count, name)
        words += "".join("ld.global.%s %%x%d, [%%to+%d];" % (class_ if class_[0] == "f" else "u%d" % width, i, 8 * i) for i in range(count))
        words += "add.s64 %%at, %s, %%at; add.s64 %%at, %%at, 64;" % target
        words += "@%%run %s [%%at+-64], %s;" % (opcode, vector(count))
        if shared:
            words += """bar.sync 0; cvt.u64.u32 %to, %i; mul.lo.s64 %to, %to, 16; mov.u64 %in, block_words; add.s64 %in, %in, %to; add.s64 %out, %out, %to;
                { .reg .b64 %a, %b; ld.shared.v2.u64 {%a, %b}, [%in]; st.global.v2.u64 [%out], {%a, %b}; }"""
    return opcode, words + "\n    ret;\n}\n"


CASES = [(loads, space, *kind) for loads in (True, False) for space in spaces() for kind in kinds()]


def extended(kind, data, width):
    x = int.from_bytes(data, "little")
    return (signed(x, 8 * len(data)) if kind[0] == "s" else x) & ((1 << width) - 1)


def elements(program, name, opcode, row):
    """Both orders of threads, all at one place, and some threads."""
    loads, space, kind, class_, count = row
    device, chance, size = program.device, random.Random(opcode + class_), SIZES[kind]
    data = chance.randbytes(16 * THREADS)
    for step, first, mask in ((1, 0, 0), (-1, 63, 0), (1, 0, 5), (-1, 63, 34)) + (((0, 5, 0), (0, 9, 3)) if loads else ()):
        given = device.memory(len(data) + 16 * THREADS, data + data)
        out = device.memory(8 * count * THREADS if loads else 16 * THREADS, bytes(8 * count * THREADS) if loads else data)
        program.launch(name, struct.pack("<QQiiI", given.at, out.at, step, first, mask), threads=THREADS)
        width, want = BITS[class_], bytearray(out.bytes()) if loads else bytearray(data)
        for i in range(THREADS):
            place = (step * i + first) * size * count
            for k in range(count):
                if loads:
                    x = 7 if mask & i else extended(kind, data[place + size * k:][:size], width)
                    want[8 * (count * i + k):][:width // 8] = b""
                    want[8 * (count * i + k): 8 * (count * i + k) + width // 8] = x.to_bytes(width // 8, "little")
                elif not mask & i:
                    want[place + size * k: place + size * k + size] = (data + data)[8 * (count * i + k):][:size]
        got = out.bytes()
        given.free()
        out.free()
        if got != want:
            at = next(i for i in range(len(want)) if want[i] != got[i])
            return "step %d, first %d, mask %d: byte %d is %x, not %x" % (step, first, mask, at, got[at], want[at])
    return ""


# ---- parameters and the numbers of a thread

PARAMETERS = """
.visible .entry parameters(.param .u64 parameters_0, .param .u8 parameters_1, .param .s16 parameters_2, .param .u16 parameters_3, .param .s32 parameters_4,
        .param .f32 parameters_5, .param .f64 parameters_6, .param .u32 parameters_7, .param .align 8 .b8 parameters_8[24]) {
    .reg .b64 %out, %w, %v; .reg .b32 %r; .reg .b16 %h; .reg .f32 %f; .reg .f64 %d;
    ld.param.u64 %out, [parameters_0];
    mov.u32 %r, %tid.x; mad.wide.u32 %out, %r, 80, %out;
    ld.param.u8 %r, [parameters_1]; st.global.u32 [%out], %r;
    ld.param.s16 %r, [parameters_2]; st.global.u32 [%out+4], %r;
    ld.param.u16 %h, [parameters_3]; st.global.u16 [%out+8], %h; st.global.u16 [%out+10], %h;
    ld.param.s32 %w, [parameters_4]; st.global.u64 [%out+16], %w;
    ld.param.f32 %f, [parameters_5]; st.global.f32 [%out+12], %f;
    ld.param.f64 %d, [parameters_6]; st.global.f64 [%out+24], %d;
    ld.param.u32 %r, [parameters_7]; st.global.u32 [%out+32], %r;
    ld.param.u32 %r, [parameters_8+4]; st.global.u32 [%out+36], %r;
    ld.param.v2.u64 {%w, %v}, [parameters_8+8]; st.global.u64 [%out+40], %w; st.global.u64 [%out+48], %v;
    ld.param.u64 %w, [parameters_3+-2]; st.global.u64 [%out+56], %out; st.global.u64 [%out+56], 0;
    mov.u32 %r, %ntid.x; st.global.u32 [%out+64], %r;
    mov.u32 %r, %laneid; st.global.u32 [%out+68], %r;
    mov.u32 %r, %warpid; st.global.u32 [%out+72], %r;
    mov.u32 %r, %lanemask_lt; st.global.u32 [%out+76], %r;
    ret;
}
.visible .entry places(.param .u64 places_0) {
    .reg .b64 %out; .reg .b32 %r<5>;
    ld.param.u64 %out, [places_0]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mov.u32 %r3, %nctaid.x;
    mad.lo.s32 %r4, %r0, %r1, %r2; mad.wide.u32 %out, %r4, 16, %out;
    st.global.v4.u32 [%out], {%r0, %r1, %r2, %r3};
    ret;
}
""".replace("    ld.param.u64 %w, [parameters_3+-2]; st.global.u64 [%out+56], %out; st.global.u64 [%out+56], 0;\n", "")


def parameters(program):
    out = program.device.memory(80 * 40, bytes(80 * 40))
    given = struct.pack("<QBxhHxxifdIxxxx24s", out.at, 0xFE, -2, 0xFEDC, -3, 1.5, -2.25, 0x87654321, bytes(range(200, 224)))
    program.launch("parameters", given, threads=40)
    tail = bytes(range(200, 224))
    wrong = ""
    for i in range(40):
        want = struct.pack("<iiHHfqdI4s16s8xIIII", 0xFE, -2, 0xFEDC, 0xFEDC, 1.5, -3, -2.25, 0x87654321, tail[4:8], tail[8:], 40, i % 32, i // 32,
                           (1 << i % 32) - 1)
        if out.bytes()[80 * i:][:80] != want:
            wrong += "thread %d: %s, not %s\n" % (i, out.bytes()[80 * i:][:80].hex(), want.hex())
    yield {"ld.param." + t for t in ("u8", "s16", "u16", "s32", "f32", "f64", "u32", "u64", "v2.u64")}, "parameters", wrong
    out = program.device.memory(16 * 5 * 70)
    program.launch("places", struct.pack("<Q", out.at), blocks=5, threads=70)
    want = b"".join(struct.pack("<IIII", b, 70, t, 5) for b in range(5) for t in range(70))
    yield {"mov.u32"}, "threads and blocks", "" if out.bytes() == want else "differ"


# ---- a thread's own memory

LOCALS = """
.visible .entry locals(.param .u64 locals_0) {
    .local .align 8 .b8 depot[16];
    .reg .b64 %out, %at; .reg .b32 %i, %r; .reg .f32 %f;
    ld.param.u64 %out, [locals_0];
    mov.u32 %i, %tid.x; mad.wide.u32 %out, %i, 8, %out; mov.u64 %at, depot;
    cvt.rn.f32.u32 %f, %i; st.local.f32 [%at+4], %f; st.local.u32 [%at], 0x01020304; st.local.u8 [%at+1], %i;
    bar.sync 0;
    ld.local.f32 %f, [%at+4]; st.global.f32 [%out], %f; ld.local.u32 %r, [%at]; st.global.u32 [%out+4], %r;
    ret;
}
"""


def own(program):
    out = program.device.memory(8 * 300, bytes(8 * 300))
    program.launch("locals", struct.pack("<Q", out.at), threads=300)
    want = b"".join(struct.pack("<fI", i, 0x01020004 | (i & 255) << 8) for i in range(300))
    yield {"st.local.f32", "ld.local.f32", "st.local.u32", "ld.local.u32", "st.local.u8"}, "a thread's own memory", "" if out.bytes() == want else "differs"


# ---- cp.async

COPY = """
.visible .entry copy_{name}(.param .u64 copy_{name}_0, .param .u64 copy_{name}_1) {{
    .shared .align 16 .b8 block_words[512];
    .reg .b64 %in, %out, %a, %b, %at; .reg .b32 %i, %given, %k, %s; .reg .pred %p;
    ld.param.u64 %in, [copy_{name}_0]; ld.param.u64 %out, [copy_{name}_1];
    mov.u32 %i, %tid.x; mul.wide.u32 %at, %i, 4; add.s64 %a, %in, %at; ld.global.u32 %given, [%a+512];
    mul.wide.u32 %at, %i, {size}; add.s64 %in, %in, %at; mov.u64 %a, block_words; add.s64 %a, %a, %at; cvt.u32.u64 %s, %a;
    cp.async.{how}.shared.global [%s], [%in], {size}{given};
    {wait}
    xor.b32 %k, %i, 9; mul.wide.u32 %at, %k, {size}; mov.u64 %a, block_words; add.s64 %a, %a, %at;
    bar.sync 0;
    mul.wide.u32 %at, %i, {size}; add.s64 %out, %out, %at;
    {back}
    ret;
}}
"""
BACK = {4: "ld.shared.u32 %k, [%a]; st.global.u32 [%out], %k;", 8: "ld.shared.u64 %b, [%a]; st.global.u64 [%out], %b;",
        16: "ld.shared.v2.u64 {%a, %b}, [%a]; st.global.v2.u64 [%out], {%a, %b};"}
WAITS = {"wait_all": "cp.async.wait_all;", "wait_group": "cp.async.commit_group; cp.async.wait_group 0;"}
COPIES = [(how, size, given, wait) for how, sizes in (("ca", (4, 8, 16)), ("cg", (16,))) for size in sizes for given in (False, True) for wait in WAITS]


def copies(program):
    for i, (how, size, given, wait) in enumerate(COPIES):
        data = random.Random(i).randbytes(512)
        some = [(size, 0, 1, size - 1, size // 2)[lane % 5] for lane in range(32)]
        memory = program.device.memory(640, data + struct.pack("<32I", *some))
        out = program.device.memory(32 * size)
        program.launch("copy_%d" % i, struct.pack("<QQ", memory.at, out.at))
        want = b""
        for lane in range(32):
            from_lane = lane ^ 9
            count = some[from_lane] if given else size
            want += data[size * from_lane:][:count] + bytes(size - count)
        tested = {"cp.async.%s.shared.global" % how, "cp.async." + wait} | ({"cp.async.commit_group"} if wait == "wait_group" else set())
        yield tested, "cp.async.%s of %d bytes%s, %s" % (how, size, " or fewer" if given else "", wait), "" if out.bytes() == want else "%s, not %s" % (
            out.bytes().hex(), want.hex())


# ---- atomics

ATOMIC = """
.visible .entry atomic_{name}(.param .u64 atomic_{name}_0, .param .u64 atomic_{name}_1, .param .u32 atomic_{name}_2) {{
    .reg .b64 %in, %out, %at; .reg .b32 %i, %k, %m; .reg .{kind} %x, %y, %old;
    ld.param.u64 %in, [atomic_{name}_0]; ld.param.u64 %out, [atomic_{name}_1]; ld.param.u32 %m, [atomic_{name}_2];
    mov.u32 %i, %tid.x; mul.wide.u32 %at, %i, 16; add.s64 %in, %in, %at;
    ld.global.{kind} %x, [%in]; ld.global.{kind} %y, [%in+8];
    and.b32 %k, %i, %m; mul.wide.u32 %at, %k, {size}; add.s64 %at, %out, %at;
    atom{mods}.{what}.{type} %old, [%at+{far}], %x{more};
    st.global.{kind} [%in], %old;
    red{mods}.{reduced}.{type} [%at+{farther}], %x;
    ret;
}}
"""
ATOMICS = [(what, kind, mods) for what, list_ in (("add", "u32 s32 u64 f32 f64"), ("min", "u32 s32 u64 s64"), ("max", "u32 s32 u64 s64"), ("exch", "b32 b64"),
                                                  ("cas", "b32 b64"), ("and", "b32 b64"), ("or", "b32 b64"), ("xor", "b32 b64"), ("inc", "u32"), ("dec", "u32"))
           for kind in list_.split() for mods in ("", ".global", ".relaxed.gpu.global")]


def changed(what, kind, old, x, y):
    if kind[0] == "f":
        form = "<fxxxx" if kind == "f32" else "<d"
        a, b = (struct.unpack(form, v.to_bytes(8, "little"))[0] for v in (old, x))
        return int.from_bytes(struct.pack(form, a + b), "little")
    bits = BITS[kind]
    number = (lambda v: signed(v, bits)) if kind[0] == "s" else (lambda v: v)
    return {"add": lambda: old + x, "min": lambda: min(old, x, key=number), "max": lambda: max(old, x, key=number), "exch": lambda: x,
            "cas": lambda: y if old == x else old, "and": lambda: old & x, "or": lambda: old | x, "xor": lambda: old ^ x,
            "inc": lambda: 0 if old >= x else old + 1, "dec": lambda: x if old == 0 or old > x else old - 1}[what]() & ((1 << bits) - 1)


def atomics(program):
    """Each thread on a word of its own: each result; all on one word: the sum, and the results in some order."""
    device = program.device
    for n, (what, kind, mods) in enumerate(ATOMICS):
        bits = BITS[kind]
        size, chance = bits // 8, random.Random(n)
        form = "<%d%s" % (64, "I" if bits == 32 else "Q")
        floating = {"f32": 0x3FC00000, "f64": 0x3FF8000000000000}.get(kind)
        old = [floating + (chance.getrandbits(3) << (bits - 20)) if floating else chance.choice((0, 1, (1 << bits) - 1, 1 << (bits - 1), chance.getrandbits(bits)))
               for _ in range(64)]
        x = [old[i] if not i % 3 else floating or chance.getrandbits(bits) for i in range(64)]
        y = [chance.getrandbits(bits) if not floating else floating for _ in range(64)]
        rows = b"".join(struct.pack("<QQ", a, b) for a, b in zip(x, y))
        given, out = device.memory(len(rows), rows), device.memory(128 * size, struct.pack(form, *old) + struct.pack(form, *old))
        program.launch("atomic_%d" % n, struct.pack("<QQI", given.at, out.at, 63), threads=64)
        got = struct.unpack(form, out.bytes()[:64 * size])
        olds = [v & ((1 << bits) - 1) for v in struct.unpack("<128Q", given.bytes())[::2]]
        want = tuple(changed(what, kind, *row) for row in zip(old, x, y))
        wrong = "" if got == want and olds == old else "%r, not %r\n%r, not %r" % (got, want, olds, old)
        if what == "add":
            again = struct.unpack(form, out.bytes()[64 * size:])
            wrong += "" if again == want else "red: %r, not %r" % (again, want)
            if not floating:
                ones = device.memory(1024, struct.pack("<QQ", 3, 0) * 64)
                zero = device.memory(128 * size, bytes(128 * size))
                program.launch("atomic_%d" % n, struct.pack("<QQI", ones.at, zero.at, 0), threads=64)
                tickets = sorted(v & 0xFFFFFFFF for v in struct.unpack("<128Q", ones.bytes())[::2])
                wrong += "" if tickets == [3 * i for i in range(64)] and zero.bytes()[0] == 192 else "on one word: %r" % tickets
        yield {"atom%s.%s.%s" % (mods, what, kind)}, "atom%s.%s.%s" % (mods, what, kind), wrong


def source():
    words = [kernel("access_%d" % i, *case)[1] for i, case in enumerate(CASES)] + [PARAMETERS, LOCALS]
    for i, (how, size, given, wait) in enumerate(COPIES):
        words.append(COPY.format(name=i, how=how, size=size, given=", %given" if given else "", wait=WAITS[wait], back=BACK[size]))
    for i, (what, kind, mods) in enumerate(ATOMICS):
        size = BITS[kind] // 8
        words.append(ATOMIC.format(name=i, what=what, type=kind, kind=kind, mods=mods, size=size, more=", %y" if what == "cas" else "", far=0,
                                   farther=64 * size, reduced=what if what not in ("exch", "cas") else "or"))
    return "".join(words)


def run(program):
    for i, case in enumerate(CASES):
        opcode = kernel("access_%d" % i, *case)[0]
        yield {opcode}, "%s %s, %s" % (opcode, "of " + case[3], "shared memory" if case[1][1] else "global memory"), elements(program, "access_%d" % i, opcode, case)
    yield from parameters(program)
    yield from own(program)
    yield from copies(program)
    yield from atomics(program)
