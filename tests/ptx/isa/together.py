"""together.py - instructions that the lanes of a warp do together: shuffles, votes, mma, ldmatrix, barriers; a naive oracle each.

run(PROGRAM) yields (opcodes that were tested, name, error or '').
"""
import random
import struct
from fractions import Fraction

from rounding import BF16, F32

# Lanes of MASK go one way, the others another; each way has the instruction.
PARTED = """
.visible .entry {name}(.param .u64 {name}_0, .param .u64 {name}_1, .param .u32 {name}_2) {{
    .reg .b64 %in, %out, %at; .reg .b32 %i, %x, %b, %c, %m, %y, %o, %mine; .reg .pred %p, %q, %r;
    ld.param.u64 %in, [{name}_0]; ld.param.u64 %out, [{name}_1]; ld.param.u32 %m, [{name}_2];
    mov.u32 %i, %tid.x; mul.wide.u32 %at, %i, 16; add.s64 %in, %in, %at; add.s64 %out, %out, %at;
    ld.global.v4.u32 {{%x, %b, %c, %y}}, [%in];
    setp.ne.s32 %q, %b, 0;
    and.b32 %y, %i, 31; shr.u32 %y, %m, %y; and.b32 %y, %y, 1; setp.eq.s32 %p, %y, 0; mov.u32 %o, 0;
    @%p bra OTHERS;
    {instruction_a}
    bra.uni DONE;
OTHERS:
    not.b32 %mine, %m;
    {instruction_b}
DONE:
    st.global.v2.u32 [%out], {{%y, %o}};
    ret;
}}
"""
SHUFFLES = ["shfl.sync.%s.b32 %%y|%%r, %%x, %%b, %%c, {mask}; selp.u32 %%o, 1, 0, %%r;" % how for how in ("up", "down", "bfly", "idx")]
VOTES = ["vote.sync.%s.pred %%r, %%q, {mask}; selp.u32 %%y, 1, 0, %%r;" % how for how in ("any", "all", "uni")] + [
    "vote.sync.ballot.b32 %y, %q, {mask};", "activemask.b32 %y; bar.warp.sync {mask};"]


def parted(name, instruction, whole):
    a, b = (instruction.replace("{mask}", mask) for mask in (("-1", "-1") if whole else ("%m", "%mine")))
    return PARTED.format(name=name, instruction_a=a, instruction_b=b)


def shuffled(how, x, b, c, lane):
    """(value, whether its source is in range): PTX ISA, shfl.sync."""
    b, clamp, segment = b & 31, c & 31, c >> 8 & 31
    most, least = lane & segment | clamp & ~segment, lane & segment
    source = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": least | b & ~segment}[how]
    good = source >= most if how == "up" else source <= most
    return x[source if good else lane], int(good), source if good else lane


def rows_of(device, name, program, rows, mask):
    given = device.memory(16 * len(rows), b"".join(struct.pack("<4I", *row) for row in rows))
    out = device.memory(16 * len(rows), bytes(16 * len(rows)))
    program.launch(name, struct.pack("<QQI", given.at, out.at, mask), threads=len(rows))
    words = struct.unpack("<%dI" % (4 * len(rows)), out.bytes())
    return list(zip(words[::4], words[1::4]))


def shuffles(program):
    chance = random.Random(1)
    for k, how in enumerate(("up", "down", "bfly", "idx")):
        wrong = ""
        for c in (0, 31, 0x1F00, 0x1C00, 0x1C1F, 0x181F, 0x101F, 0x1800, 0x1E1F, 0x0F, 0x1807, 0x051F):
            for amounts in ([1] * 64, [16] * 64, [0] * 64, [33] * 64, [chance.getrandbits(32) for _ in range(64)]):
                rows = [(chance.getrandbits(32), amounts[i], c, 0) for i in range(64)]
                if any(shuffled(how, range(32), row[1], c, i % 32)[2] not in range(32) for i, row in enumerate(rows)):
                    continue  # the ISA's ranges do not keep it within the warp
                got = rows_of(program.device, "shfl_%d_1" % k, program, rows, 0xFFFFFFFF)
                want = []
                for i in range(64):
                    x = [row[0] for row in rows[i // 32 * 32:][:32]]
                    want.append(shuffled(how, x, amounts[i], c, i % 32)[:2])
                wrong += "" if got == want else "c %x, by %r: %r, not %r\n" % (c, amounts[:2], got, want)
        yield {"shfl.sync.%s.b32" % how}, "shfl." + how, wrong
        rows = [(chance.getrandbits(32), 1 if how != "idx" else i % 16 // 8 * 8 + 3, 0x1800 if how == "up" else 0x181F, 0) for i in range(32)]
        got = rows_of(program.device, "shfl_%d_0" % k, program, rows, 0xFF00FF)
        want = [shuffled(how, [row[0] for row in rows], rows[i][1], rows[i][2], i)[:2] for i in range(32)]
        yield set(), "shfl.%s of lanes that parted" % how, "" if got == want else "%r, not %r" % (got, want)


def votes(program):
    chance = random.Random(2)
    for k, how in enumerate(("any", "all", "uni", "ballot", "activemask")):
        for whole in (1, 0):
            wrong = ""
            for chosen in (0, 0xFFFFFFFF, 1, 0x80000000, 0x00FF00FF, 0x7FFFFFFF, chance.getrandbits(32), 0xFF00FF00):
                mask = 0xFFFFFFFF if whole else 0xFF00FF
                got = rows_of(program.device, "vote_%d_%d" % (k, whole), program, [(0, chosen >> i & 1, 0, 0) for i in range(32)], mask)
                want = []
                for i in range(32):
                    mine = mask if mask >> i & 1 else ~mask & 0xFFFFFFFF
                    true = chosen & mine
                    want.append(({"any": int(true != 0), "all": int(true == mine), "uni": int(true in (0, mine)), "ballot": true, "activemask": mine}[how], 0))
                wrong += "" if got == want else "%x: %r, not %r\n" % (chosen, got, want)
            tested = {"activemask.b32", "bar.warp.sync"} if how == "activemask" else {"vote.sync.ballot.b32" if how == "ballot" else "vote.sync.%s.pred" % how}
            yield tested, "%s%s" % (how, "" if whole else " of lanes that parted"), wrong


# ---- mma, ldmatrix

MMA = """
.visible .entry mma(.param .u64 mma_0, .param .u64 mma_1) {
    .reg .b64 %in, %out, %at; .reg .b32 %i, %a<6>; .reg .f32 %c<4>, %d<4>;
    ld.param.u64 %in, [mma_0]; ld.param.u64 %out, [mma_1]; mov.u32 %i, %tid.x;
    mul.wide.u32 %at, %i, 48; add.s64 %in, %in, %at; mul.wide.u32 %at, %i, 16; add.s64 %out, %out, %at;
    ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%in]; ld.global.v2.u32 {%a4, %a5}, [%in+16]; ld.global.v4.f32 {%c0, %c1, %c2, %c3}, [%in+32];
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, {%a4, %a5}, {%c0, %c1, %c2, %c3};
    st.global.v4.f32 [%out], {%d0, %d1, %d2, %d3};
    ret;
}
"""
LDMATRIX = """
.visible .entry ldmatrix_{name}(.param .u64 ldmatrix_{name}_0, .param .u64 ldmatrix_{name}_1) {{
    .shared .align 16 .b8 block_words[1040];
    .reg .b64 %in, %out, %at, %to; .reg .b32 %i, %j, %x<4>;
    ld.param.u64 %in, [ldmatrix_{name}_0]; ld.param.u64 %out, [ldmatrix_{name}_1]; mov.u32 %i, %tid.x;
    mul.wide.u32 %at, %i, 32; add.s64 %in, %in, %at; mov.u64 %to, block_words; add.s64 %at, %to, %at;
    ld.global.v4.u32 {{%x0, %x1, %x2, %x3}}, [%in]; st.shared.v4.u32 [%at], {{%x0, %x1, %x2, %x3}};
    ld.global.v4.u32 {{%x0, %x1, %x2, %x3}}, [%in+16]; st.shared.v4.u32 [%at+16], {{%x0, %x1, %x2, %x3}};
    bar.sync 0;
    mul.lo.s32 %j, %i, 37; and.b32 %j, %j, 63; mul.wide.u32 %at, %j, 16; add.s64 %at, %to, %at; add.s64 %at, %at, -32;
    ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%x0, %x1, %x2, %x3}}, [%at+32];
    mul.wide.u32 %at, %i, 16; add.s64 %out, %out, %at;
    st.global.v4.u32 [%out], {{%x0, %x1, %x2, %x3}};
    ret;
}}
"""


def mma(program):
    """Fragments as the ISA's figures have them: lane's group (lane / 4) and place in it (lane % 4)."""
    for label, exact in (("small integers, all bits", True), ("random numbers", False)):
        chance = random.Random(label)

        def number():
            return BF16.round(Fraction(chance.randint(-9, 9))) if exact else chance.getrandbits(1) << 15 | chance.randint(118, 130) << 7 | chance.getrandbits(7)
        a, b = [[number() for _ in range(16)] for _ in range(16)], [[number() for _ in range(8)] for _ in range(16)]
        c = [[F32.round(Fraction(chance.randint(-500, 500), 1 if exact else 7)) for _ in range(8)] for _ in range(16)]
        data = b""
        for lane in range(32):
            group, place = lane // 4, lane % 4
            halves = [a[group + 8 * (i // 2 % 2)][2 * place + i % 2 + 8 * (i // 4)] for i in range(8)]
            halves += [b[2 * place + i % 2 + 8 * (i // 2)][group] for i in range(4)]
            data += struct.pack("<12HxxxxxxxxIIII", *halves, *[c[group + 8 * (i // 2)][2 * place + i % 2] for i in range(4)])
        given, out = program.device.memory(len(data), data), program.device.memory(512)
        program.launch("mma", struct.pack("<QQ", given.at, out.at))
        got, wrong = struct.unpack("<128I", out.bytes()), ""
        for lane in range(32):
            for i in range(4):
                row, column = lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2
                terms = [BF16.value(a[row][k]) * BF16.value(b[k][column]) for k in range(16)] + [F32.value(c[row][column])]
                far = abs(F32.value(got[4 * lane + i]) - sum(terms))
                if far > (0 if exact else sum(abs(t) for t in terms) * Fraction(17, 1 << 24)):  # an error a sum
                    wrong += "row %d, column %d: off by %g\n" % (row, column, far)
        yield {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"}, "mma, " + label, wrong


def ldmatrix(program):
    chance = random.Random(3)
    words = [chance.getrandbits(16) for _ in range(512)]
    given = program.device.memory(1024, struct.pack("<512H", *words))
    for name, trans in (("plain", ""), ("trans", ".trans")):
        out = program.device.memory(512)
        program.launch("ldmatrix_" + name, struct.pack("<QQ", given.at, out.at))
        got, want = struct.unpack("<256H", out.bytes()), []
        rows = [words[8 * (37 * lane & 63):][:8] for lane in range(32)]
        for lane in range(32):
            for i in range(4):
                for half in range(2):
                    row, column = lane // 4, 2 * (lane % 4) + half
                    want.append(rows[8 * i + (column if trans else row)][row if trans else column])
        yield {"ldmatrix.sync.aligned.m8n8.x4%s.shared.b16" % trans}, "ldmatrix " + name, "" if list(got) == want else "%r, not %r" % (got, want)


# ---- barriers, generic addresses

BARRIERS = """
.visible .entry turns(.param .u64 turns_0) {
    .shared .align 4 .b8 word[4];
    .reg .b64 %out, %at; .reg .b32 %i, %w, %k, %x; .reg .pred %p;
    ld.param.u64 %out, [turns_0]; mov.u32 %i, %tid.x; shr.u32 %w, %i, 5; mov.u32 %k, 0;
    mul.wide.u32 %at, %i, 4; add.s64 %out, %out, %at;
    setp.ne.s32 %p, %i, 0; @%p bra START; st.shared.u32 [word], 1;
START:
    bar.sync 0;
LOOP:  // each warp in its turn: the word becomes 3 word + warp
    setp.ne.s32 %p, %k, %i; @%p bra WAIT;
    ld.shared.u32 %x, [word]; mad.lo.s32 %x, %x, 3, %w; st.shared.u32 [word], %x;
WAIT:
    bar.sync 0;
    add.s32 %k, %k, 32; setp.lt.s32 %p, %k, 128; @%p bra LOOP;
    ld.shared.u32 %x, [word]; st.global.u32 [%out], %x;
    ret;
}
.visible .entry some(.param .u64 some_0) {
    .shared .align 4 .b8 words[512];
    .reg .b64 %out, %at, %a; .reg .b32 %i, %w, %x, %j; .reg .pred %p;
    ld.param.u64 %out, [some_0]; mov.u32 %i, %tid.x; shr.u32 %w, %i, 6; add.s32 %w, %w, 1;
    mul.wide.u32 %at, %i, 4; add.s64 %out, %out, %at; mov.u64 %a, words; add.s64 %at, %a, %at;
    mul.lo.s32 %x, %i, %i; st.shared.u32 [%at], %x;
    bar.sync %w, 64;  // warps 0 and 1, and 2 and 3
    xor.b32 %j, %i, 63; mul.wide.u32 %at, %j, 4; add.s64 %at, %a, %at; ld.shared.u32 %x, [%at];
    bar.sync 0;
    st.global.u32 [%out], %x;
    setp.lt.s32 %p, %i, 64; @%p bra END;
    bar.sync 3, 64;  // the others have ended
END:
    ret;
}
.visible .func (.param .b32 sum_result) sum(.param .b32 sum_0, .param .b64 sum_1) {
    .reg .b32 %a, %b; .reg .b64 %w;
    ld.param.b32 %a, [sum_0+0]; ld.param.b64 %w, [sum_1+0]; barrier.sync 0;
    cvt.u32.u64 %b, %w; shl.b32 %a, %a, 2; add.s32 %a, %a, %b; st.param.b32 [sum_result+0], %a;
    ret;
}
.visible .entry calls(.param .u64 calls_0) {
    .reg .b64 %out, %at, %w; .reg .b32 %i, %x;
    ld.param.u64 %out, [calls_0]; mov.u32 %i, %tid.x; cvt.u64.u32 %w, %i; mul.wide.u32 %at, %i, 4; add.s64 %out, %out, %at;
    {
    .param .b32 param0; st.param.b32 [param0+0], %i; .param .b64 param1; st.param.b64 [param1+0], %w; .param .b32 retval0;
    call.uni (retval0), sum, (param0, param1);
    ld.param.b32 %x, [retval0+0];
    }
    st.global.u32 [%out], %x;
    ret;
}
.visible .entry generic(.param .u64 generic_0, .param .u64 generic_1) {
    .shared .align 4 .b8 words[128];
    .reg .b64 %in, %out, %at, %a, %g; .reg .b32 %i, %x; .reg .pred %p, %q; .reg .b32 %y, %z;
    ld.param.u64 %in, [generic_0]; ld.param.u64 %out, [generic_1]; mov.u32 %i, %tid.x;
    mul.wide.u32 %at, %i, 4; add.s64 %in, %in, %at; mov.u64 %a, words; add.s64 %a, %a, %at; cvta.shared.u64 %g, %a;
    ld.global.u32 %x, [%in]; st.u32 [%g], %x; cvta.to.shared.u64 %a, %g; ld.shared.u32 %x, [%a]; add.s32 %x, %x, 1; st.shared.u32 [%a], %x; ld.u32 %x, [%g];
    isspacep.shared %p, %g; isspacep.global %q, %g; selp.u32 %y, 1, 0, %p; selp.u32 %z, 2, 0, %q; or.b32 %y, %y, %z;
    isspacep.shared %p, %in; isspacep.global %q, %in; selp.u32 %z, 4, 0, %p; or.b32 %y, %y, %z; selp.u32 %z, 8, 0, %q; or.b32 %y, %y, %z;
    mul.wide.u32 %at, %i, 8; add.s64 %out, %out, %at; st.global.v2.u32 [%out], {%x, %y};
    ret;
}
"""


def barriers(program):
    device = program.device
    out = device.memory(512)
    program.launch("turns", struct.pack("<Q", out.at), threads=128)
    word = 1
    for warp in range(4):
        word = 3 * word + warp
    yield {"bar.sync", "bra", "bra.uni", "ret"}, "warps take turns", "" if out.bytes() == struct.pack("<I", word) * 128 else out.bytes().hex()
    out = device.memory(512)
    program.launch("some", struct.pack("<Q", out.at), threads=128)
    want = struct.pack("<128I", *[(i ^ 63) ** 2 for i in range(128)])
    yield set(), "a barrier of some warps", "" if out.bytes() == want else out.bytes().hex()
    out = device.memory(256)
    program.launch("calls", struct.pack("<Q", out.at), threads=64)
    called = {"call.uni", "barrier.sync", "ld.param.b32", "ld.param.b64", "st.param.b32", "st.param.b64"}
    yield called, "a function is called", "" if out.bytes() == struct.pack("<64I", *[5 * i for i in range(64)]) else out.bytes().hex()
    given, out = device.memory(128, struct.pack("<32I", *range(100, 132))), device.memory(256)
    program.launch("generic", struct.pack("<QQ", given.at, out.at))
    want = b"".join(struct.pack("<II", 101 + i, 9) for i in range(32))
    yield {"cvta.shared.u64", "cvta.to.shared.u64", "isspacep.shared", "isspacep.global"}, "generic addresses", "" if out.bytes() == want else out.bytes().hex()


def source():
    words = [parted("%s_%d_%d" % (kind, i, whole), instruction, whole) for kind, list_ in (("shfl", SHUFFLES), ("vote", VOTES))
             for i, instruction in enumerate(list_) for whole in (0, 1)]
    return "".join(words) + MMA + LDMATRIX.format(name="plain", trans="") + LDMATRIX.format(name="trans", trans=".trans") + BARRIERS


def run(program):
    for part in (shuffles, votes, mma, ldmatrix, barriers):
        yield from part(program)
