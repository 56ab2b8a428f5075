"""faults.py - small kernels: of each kind of fault one that has it, and beside it one that comes near to it and has none.

A kernel's body is text behind HEAD. The text after "! " is on line LINE of its source. %a and %b are memory, %d is the word of
%a at the thread's number %i.
"""
import collections
import struct

from device import DEVICE, HOST, MANAGED

LINE = 77
HEAD = """
.file 1 "source.c"
%s
.visible .entry kernel(.param .u64 kernel_0, .param .u64 kernel_1)%s {
    .shared .align 16 .b8 words[128];
    .reg .b64 %%a, %%b, %%c, %%d, %%e; .reg .b32 %%i, %%n, %%x, %%y, %%z, %%w; .reg .b16 %%h; .reg .pred %%p, %%q; .reg .f32 %%f<4>;
    ld.param.u64 %%a, [kernel_0]; ld.param.u64 %%b, [kernel_1];
    mov.u32 %%i, %%tid.x; mov.u32 %%n, %%ctaid.x; mul.wide.u32 %%c, %%i, 4; add.s64 %%d, %%a, %%c;
"""
# said: the first line of a fault; None: there is none. who: thread and block, or None
Case = collections.namedtuple("Case", "name body said who threads blocks dynamic a b variables limits registers")
CASES = []
NUMBERS = struct.pack("<64I", *range(64))


def case(name, body, said, who=None, threads=32, blocks=1, dynamic=0, a=("data", NUMBERS, DEVICE), b=("none", 256, DEVICE), variables="", limits="",
         registers=0):
    CASES.append(Case(name, body, said, who, threads, blocks, dynamic, a, b, variables, limits, registers))


def pair(name, body, said, near, **given):
    """NEAR: turns the case into one without the fault: "old" and "new" text of the body, or other arguments."""
    case(name, body, said, **given)
    changed = dict(given, who=None, **{k: v for k, v in near.items() if k not in ("old", "new")})
    if "old" in near:
        assert near["old"] in body, name
        body = body.replace(near["old"], near["new"])
    case("near: " + name, body, None, **changed)


def source(row):
    return HEAD % (row.variables, row.limits) + row.body.replace("! ", "\n.loc 1 %d 0\n" % LINE) + "\n    ret;\n}\n"


# ---- addresses of an access

def places():
    pair("global, outside of all memory", "! ld.global.u32 %x, [%d];", r"loads 4 bytes outside of all memory: address 0x1000\b", {"a": ("data", NUMBERS, DEVICE)},
         a=("number", 4096, 0), who=(0, 0), threads=1)
    pair("global, behind the end", "! ld.global.u32 %x, [%d];", "loads 4 bytes outside of all memory: address 0x", {"threads": 64}, threads=65, who=(64, 0))
    pair("global, over the end", "! st.global.u32 [%d], %x;", "stores 4 bytes beyond its end: byte 252 of 254 of the device's memory", {"threads": 63},
         a=("none", 254, DEVICE), threads=64, who=(63, 0))
    pair("global, freed", "! ld.global.u32 %x, [%d+8];", "loads 4 bytes of memory that has been freed: byte 8 of 256 of the device's memory",
         {"a": ("data", NUMBERS, DEVICE)}, a=("freed", NUMBERS, DEVICE), who=(0, 0), threads=1)
    pair("global, not aligned", "! ld.global.v2.u32 {%x, %y}, [%a+4];", "loads 8 bytes that are not aligned: byte 4 of 256", {"old": "+4", "new": "+8"}, threads=1)
    pair("global, not aligned to four", "! st.global.v4.u32 [%a+8], {%x, %x, %x, %x};", "stores 16 bytes that are not aligned: byte 8 of 256",
         {"old": "+8", "new": "+16"}, threads=1)
    pair("shared, not aligned", "mov.u64 %c, words; ! st.shared.u64 [%c+12], %a;", "stores 8 bytes that are not aligned: byte 12 of",
         {"old": "+12", "new": "+24"}, threads=1)
    pair("generic, not aligned", "! ld.u16 %h, [%a+3];", "loads 2 bytes that are not aligned: byte 3 of 256", {"old": "+3", "new": "+6"}, threads=1)
    pair("shared, behind its array", "mov.u64 %c, words; mul.wide.u32 %d, %i, 4; add.s64 %c, %c, %d; ! st.shared.u32 [%c], %i;",
         "stores 4 bytes outside of (its array|all memory)", {"threads": 32}, threads=33, who=(32, 0))
    two = ".shared .align 4 .b8 more[64];"
    case("shared, between two arrays", "st.shared.u32 [more], 1; ! st.shared.u32 [more+64], %i; st.shared.u32 [words], 1;", "stores 4 bytes outside of its array: byte 64 of",
         threads=1, variables=two)
    case("near: shared, between two arrays", "st.shared.u32 [more], 1; st.shared.u32 [more+60], %i; st.shared.u32 [words], 1;", None, threads=1, variables=two)
    dynamic = ".extern .shared .align 16 .b8 rest[];"
    pair("shared, behind the dynamic bytes", "mov.u64 %c, rest; mul.wide.u32 %d, %i, 4; add.s64 %c, %c, %d; ! st.shared.u32 [%c], %i;",
         "stores 4 bytes outside of", {"dynamic": 128}, dynamic=124, who=(31, 0), variables=dynamic)
    local = ".local .align 8 .b8 depot[16]; mov.u64 %c, depot; st.u32 [%c], %i; st.u32 [%c+12], %i; "
    pair("local, behind its array", local + "! st.u32 [%c+16], %i;", "stores 4 bytes outside of its array: byte 16 of", {"old": "+16", "new": "+12"}, threads=1)
    case("brx.idx beyond its table", "add.s32 %x, %i, 2; TABLE: .branchtargets A, B; brx.idx %x, TABLE; A: B:", "brx.idx goes beyond its table")
    case("trap", "setp.eq.s32 %p, %i, 9; ! @%p trap;", "trap", who=(9, 0))
    case("an instruction that is not known", "! dp4a.u32.u32 %x, %i, %i, %i;", "does not know", who=None)


# ---- bytes that were never written

def unwritten():
    pair("global, nobody has written", "! ld.global.u32 %x, [%b];", "loads 4 bytes that nobody has written: byte 0 of 256 of the device's memory",
         {"old": "! ", "new": "st.global.u32 [%b], %x;"}, threads=1, who=(0, 0))
    pair("global, a half is written", "st.global.u16 [%b+2], 7; ! ld.global.u32 %x, [%b];", "loads 4 bytes that nobody has written: byte 0 of 256",
         {"old": "! ", "new": "st.global.u16 [%b], 7;"}, threads=1)
    pair("global, one lane's is not written", "setp.ne.s32 %p, %i, 5; add.s64 %c, %b, %c; @%p st.global.u32 [%c], %i; ! ld.global.u32 %x, [%c];",
         "loads 4 bytes that nobody has written: byte 20 of 256", {"old": "%i, 5;", "new": "%i, 99;"}, who=(5, 0))
    pair("global, all lanes at one place", "! ld.global.u32 %x, [%b+16];", "loads 4 bytes that nobody has written: byte 16 of 256",
         {"b": ("data", NUMBERS, DEVICE)})
    pair("an atomic on what nobody has written", "! atom.global.add.u32 %x, [%b], 1;", "4 bytes that nobody has written", {"b": ("data", NUMBERS, DEVICE)}, threads=1)
    pair("shared, nobody has written", "! ld.shared.u32 %x, [words+8];", "loads 4 bytes that nobody has written: byte 8 of .* the block's shared memory",
         {"old": "! ", "new": "st.shared.u32 [words+8], 1;"}, threads=1)
    pair("shared, written by a former block", "setp.eq.s32 %p, %n, %i; mov.u64 %c, words; @!%p ld.shared.u32 %x, [%c];",
         "loads 4 bytes that nobody has written", {"old": "@!%p ld.shared.u32 %x, [%c]", "new": "st.shared.u32 [%c], %i"}, threads=1, blocks=2)
    local = ".local .align 8 .b8 depot[16]; mov.u64 %c, depot; "
    pair("local, nobody has written", local + "! ld.local.u32 %x, [%c+4];", "loads 4 bytes that nobody has written: byte 4 of .* local memory",
         {"old": "! ", "new": "st.local.u32 [%c+4], %i;"}, threads=1)
    pair("managed, nobody has written", "! ld.global.u32 %x, [%b+4];", "loads 4 bytes that nobody has written: byte 4 of 256 of managed memory",
         {"b": ("untold", NUMBERS, MANAGED)}, b=("none", 256, MANAGED), threads=1)
    case("near: managed, the host's bytes are the pattern's", "ld.global.u32 %x, [%b]; ld.global.u8 %h, [%b+9];", None, threads=1,
         b=("untold", struct.pack("<iiI", -5, 1, 0xFBFFFB00), MANAGED))
    case("managed, a byte of what nobody has written", "! ld.global.u8 %h, [%b+9];", "loads 1 bytes that nobody has written", threads=1, b=("none", 256, MANAGED))
    case("near: the host's own, nothing is seen", "ld.global.u32 %x, [%b];", None, threads=1, b=("untold", NUMBERS, HOST))


# ---- threads with nothing between

BETWEEN = ", with nothing between: byte "
FIRST = "setp.eq.s32 %p, %i, 0; setp.eq.s32 %q, %i, 33; "
SHARED = "@%p st.shared.u32 [words], 1; bar.sync 0; "


def races():
    for space, at, before in (("shared", "words", FIRST + SHARED), ("global", "%a", FIRST)):
        where = "the block's shared memory" if space == "shared" else "its memory"
        load, store = "@%%q ld.%s.u32 %%x, [%s]; " % (space, at), "@%%p st.%s.u32 [%s], 9; " % (space, at)
        for name, steps in (("a store and a load", ("! " + store, "! " + load)), ("a load and a store", ("! " + load, "! " + store)),
                            ("two stores", ("! " + store, "! @%%q st.%s.u32 [%s], 8; " % (space, at)))):
            pair("%s, %s" % (space, name), before + "".join(steps).replace("; !", "; /**/ !"), "what thread (0|33) of its block .*" + BETWEEN + "0 of " + where,
                 {"old": "/**/", "new": "bar.sync 0;"}, threads=64)
            case("near: %s, %s of equal bytes" % (space, name), (before + "".join(steps)).replace("], 9", "], %z").replace("], 8", "], %z").replace(
                before, "mov.u32 %%z, %d; " % (space == "shared") + before), None, threads=64)
        row = "mul.wide.u32 %%c, %%i, 4; mov.u64 %%d, %s; add.s64 %%d, %%d, %%c; st.%s.u32 [%%d], %%i; /**/ " % (at, space)
        pair("%s, a row's neighbours" % space, row + "xor.b32 %%y, %%i, 1; mul.wide.u32 %%c, %%y, 4; mov.u64 %%d, %s; add.s64 %%d, %%d, %%c; ! ld.%s.u32 %%x, [%%d];" % (at, space),
             "reads what thread ", {"old": "/**/", "new": "bar.sync 0;"}, a=("data", bytes(256), DEVICE))
        pair("%s, of a warp, what one lane stores all load" % space, before + "@%%p st.%s.u32 [%s], 5; /**/ ! ld.%s.u32 %%x, [%s];" % (space, at, space, at),
             "what (others beside )?thread 0 of its block has stored", {"old": "/**/", "new": "bar.warp.sync -1;"})
        pair("%s, of a warp, what all load one lane changes" % space, before + "ld.%s.u32 %%x, [%s]; /**/ ! @%%p st.%s.u32 [%s], 5;" % (space, at, space, at),
             "changes what", {"old": "/**/", "new": "bar.sync 0;"})
        case("near: %s, 40 times a warp's own barrier" % space, before + "mov.u32 %%y, 0; AGAIN: @%%p st.%s.u32 [%s], %%y; %s ld.%s.u32 %%x, [%s]; bar.warp.sync -1; "
             "add.s32 %%y, %%y, 1; setp.lt.s32 %%q, %%y, 40; @%%q bra AGAIN;" % (space, at, "bar.warp.sync -1; " * 3, space, at), None)
    pair("global, over blocks, two stores", "setp.eq.s32 %p, %i, 3; ! @%p st.global.u32 [%d], %n;", "changes what thread 3 of another block has stored" + BETWEEN + "12",
         {"old": "%n", "new": "3"}, blocks=2)
    pair("global, over blocks, a store and loads", "setp.eq.s32 %p, %n, 2; ! @%p st.global.u32 [%d], 77; @!%p ld.global.u32 %x, [%d];", "another block",
         {"old": "77", "new": "%i"}, blocks=5)
    pair("global, over blocks, an atomic and a load", "setp.eq.s32 %p, %n, 0; ! @%p atom.global.add.u32 %x, [%a], 1; @!%p ld.global.u32 %x, [%a];", "another block",
         {"old": "ld.global.u32 %x, [%a]", "new": "atom.global.add.u32 %x, [%a], 0"}, blocks=2, threads=1)
    case("near: global, over blocks, atomics", "atom.global.add.u32 %x, [%a], %i;", None, blocks=3, threads=64)
    case("near: global, over blocks, words of their own", "mad.lo.s32 %x, %n, 32, %i; mul.wide.u32 %c, %x, 4; add.s64 %d, %a, %c; ld.global.u32 %y, [%d]; "
         "add.s32 %y, %y, 1; st.global.u32 [%d], %y; ld.global.u32 %y, [%d];", None, blocks=2)
    pair("atomics and a store", "atom.global.add.u32 %x, [%a], 1; setp.eq.s32 %p, %i, 40; ! @%p st.global.u32 [%a], 99;", "what .* of its block has stored",
         {"old": "! ", "new": "bar.sync 0;"}, threads=64)


def parts():
    half = "mul.wide.u32 %c, %i, 2; add.s64 %d, %a, %c; cvt.u16.u32 %h, %i; "
    case("near: halves of a word, a thread each", half + "st.global.u16 [%d], %h; ld.global.u16 %h, [%d]; add.s16 %h, %h, 1; st.global.u16 [%d], %h;", None)
    case("near: halves of a word, in the other order", "mul.wide.u32 %c, %i, 2; sub.s64 %d, %a, %c; cvt.u16.u32 %h, %i; ld.global.u16 %h, [%d+62]; "
         "add.s16 %h, %h, 1; st.global.u16 [%d+62], %h;", None)
    case("near: halves of a word, read and written by threads far apart", "and.b32 %x, %i, 15; shr.u32 %y, %i, 4; mad.lo.s32 %x, %x, 2, %y; mul.wide.u32 %c, %x, 2; "
         "add.s64 %d, %a, %c; ld.global.u16 %h, [%d]; add.s16 %h, %h, 1; st.global.u16 [%d], %h;", None)
    case("near: half of a word, and a byte of that", half + "st.global.u16 [%d], %h; ld.global.u8 %h, [%d];", None)
    case("near: bytes of a word, a thread each", "cvt.u64.u32 %c, %i; add.s64 %d, %a, %c; ld.global.u8 %h, [%d]; add.s16 %h, %h, 1; st.global.u8 [%d], %h; "
         "ld.global.u8 %h, [%d];", None)
    case("near: halves of a word, two blocks", "setp.eq.s32 %p, %i, 0; mul.wide.u32 %c, %n, 2; add.s64 %d, %a, %c; @%p ld.global.u16 %h, [%d]; add.s16 %h, %h, 1; "
         "@%p st.global.u16 [%d], %h;", None, blocks=2)
    pair("a word, of which another has read a half", "setp.eq.s32 %p, %i, 1; @%p ld.global.u16 %h, [%a+2]; /**/ setp.eq.s32 %p, %i, 0; ! @%p st.global.u32 [%a], 77777777;",
         "changes what thread 1 ", {"old": "/**/", "new": "bar.sync 0;"})
    pair("the other half of a word", half + "add.s16 %h, %h, 7; st.global.u16 [%d], %h; /**/ xor.b32 %x, %i, 1; mul.wide.u32 %c, %x, 2; add.s64 %d, %a, %c; ! ld.global.u16 %h, [%d];",
         "reads what .*thread ", {"old": "/**/", "new": "bar.sync 0;"})
    pair("a word, of which another has stored a half", "setp.eq.s32 %p, %i, 1; @%p st.global.u16 [%a+2], 7; /**/ setp.eq.s32 %p, %i, 0; ! @%p ld.global.u32 %x, [%a];",
         "reads what thread 1 ", {"old": "/**/", "new": "bar.sync 0;"})


# ---- instructions of several lanes

def meetings():
    part = "setp.lt.s32 %p, %i, 16; @%p bra LOW; "
    pair("a barrier in one branch, another in the other", part + "! bar.sync 0; bra END; LOW: bar.sync 0; END:", "lanes wait for others of their warp",
         {"old": "setp.lt.s32 %p, %i, 16;", "new": "setp.lt.s32 %p, %i, 32;"}, threads=64)
    pair("a barrier that one warp does not come to", "setp.lt.s32 %p, %i, 32; @%p bra LOW; ! bar.sync 1, 96; bra END; LOW: bar.sync 0; END:", "waits at barrier",
         {"old": "bar.sync 1, 96; bra END; LOW: bar.sync 0;", "new": "bar.sync 1, 32; bar.sync 0; bra END; LOW: bar.sync 0;"}, threads=64)
    case("near: a barrier after which some have ended", "setp.lt.s32 %p, %i, 40; @%p ret; bar.sync 0;", None, threads=96)
    case("a barrier of two counts", "setp.lt.s32 %p, %i, 32; @%p bra LOW; ! bar.sync 1, 96; bra END; LOW: bar.sync 1, 64; END:", "barrier 1 of (64|96) threads, which others wait at",
         threads=96)
    case("a barrier of half a warp", "! bar.sync 1, 48;", "barrier 1 of 48 threads", threads=64)
    case("a barrier whose number differs", "and.b32 %x, %i, 1; ! bar.sync %x;", "must have alike differs")
    for name, words in (("shfl", "shfl.sync.bfly.b32 %x, %i, 1, 31, {mask}; "), ("vote", "vote.sync.any.pred %q, %p, {mask}; "), ("bar.warp", "bar.warp.sync {mask}; ")):
        case("%s in a branch, of all lanes" % name, part + "! %s bra END; LOW: %s END:" % (words.format(mask="-1"), words.format(mask="-1")), "lanes wait for others of their warp")
        case("near: %s in branches, of the lanes that are there" % name, part + "%s bra END; LOW: %s END:" % (words.format(mask="0xffff0000"), words.format(mask="65535")), None)
        case("%s by a lane that is not in its mask" % name, "! " + words.format(mask="0x7fffffff"), "a lane is not in its own mask", who=(31, 0))
    case("shfl from a lane that is elsewhere", part + "bra END; LOW: ! shfl.sync.idx.b32 %x, %i, 20, 31, 65535; END:", "reads from lane 20, which is not there", who=(0, 0))
    case("near: shfl from a lane that is there", part + "bra END; LOW: shfl.sync.idx.b32 %x, %i, 3, 31, 65535; END:", None)
    case("shfl from a lane that the block has not", "! shfl.sync.bfly.b32 %x, %i, 16, 31, -1;", "reads from lane 16, which is not there", threads=16, who=(0, 0))
    case("near: shfl within half a warp", "shfl.sync.bfly.b32 %x, %i, 8, 31, -1;", None, threads=16)
    fragments = "mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; mov.u32 %x, 0; "
    product = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%x, %x, %x, %x}, {%x, %x}, {%f0, %f1, %f2, %f3}; "
    pair("mma of half a warp", fragments + "! " + product, "mma has not all of its lanes", {"threads": 64}, threads=48)
    case("mma in a branch", fragments + part + "! " + product + "bra END; LOW: bar.warp.sync 0xffff; " + product + " END:", "lanes wait for others of their warp")


# ---- copies

def copies():
    start = "mov.u64 %c, words; mul.wide.u32 %e, %i, 4; add.s64 %c, %c, %e; "
    copy = "cp.async.ca.shared.global [%c], [%d], 4; "
    pair("cp.async, loaded before its wait", start + copy + "/**/ ! ld.shared.u32 %x, [%c]; cp.async.wait_all;", "loads 4 bytes that nobody has written",
         {"old": "/**/", "new": "cp.async.wait_all;"})
    for old in ("", "bar.sync 0;"):
        case("cp.async, loaded by another thread before the barrier" if not old else "near: cp.async, loaded by another thread behind the barrier",
             start + copy + "cp.async.wait_all; %s xor.b32 %%y, %%i, 1; mov.u64 %%c, words; mul.wide.u32 %%e, %%y, 4; add.s64 %%c, %%c, %%e; ! ld.shared.u32 %%x, [%%c];" % old,
             None if old else "reads what thread")
    case("cp.async, loaded by another thread behind a barrier, but before the wait", start + copy + "bar.sync 0; xor.b32 %y, %i, 1; mov.u64 %e, words; mul.wide.u32 %c, %y, 4; "
         "add.s64 %c, %c, %e; ! ld.shared.u32 %x, [%c]; cp.async.wait_all;", "loads 4 bytes that nobody has written")
    pair("cp.async, not committed when a group is waited for", start + copy + "/**/ cp.async.wait_group 0; ! ld.shared.u32 %x, [%c]; cp.async.wait_all;",
         "loads 4 bytes that nobody has written", {"old": "/**/", "new": "cp.async.commit_group;"})
    pair("cp.async, the last group is left", start + copy + "cp.async.commit_group; cp.async.ca.shared.global [%c+128], [%d], 4; cp.async.commit_group; cp.async.wait_group 1; "
         "! ld.shared.u32 %x, [%c+128]; cp.async.wait_all;", "loads 4 bytes that nobody has written", {"old": "[%c+128]; cp", "new": "[%c]; cp"},
         dynamic=128)
    pair("cp.async, one lane has a group less", "mov.u32 %y, 0; setp.eq.s32 %p, %i, 4; " + start + copy + "cp.async.commit_group; @%p cp.async.commit_group; cp.async.wait_group 1; "
         "! @!%p ld.shared.u32 %x, [%c]; cp.async.wait_all;", "loads 4 bytes that nobody has written", {"old": "@!%p ld", "new": "@%p ld"})
    case("cp.async, under way at the end", start + copy, "ends with copies under way")
    pair("cp.async of more than it has", start + "cp.async.ca.shared.global [%c], [%d], 4, %x; cp.async.wait_all;".replace("%x", "5"), "copies 5 of 4 bytes", {"old": ", 5", "new": ", 3"})
    pair("cp.async beyond the source's end", "! cp.async.cg.shared.global [words], [%a], 16, 8; cp.async.wait_all;", "beyond its end|outside of all memory",
         {"old": "16, 8", "new": "16, 4"}, a=("data", NUMBERS[:4], DEVICE), threads=1)
    pair("cp.async of a source that nobody has written", "! cp.async.cg.shared.global [words], [%b], 16, 8; cp.async.wait_all;", "4 bytes that nobody has written",
         {"old": "16, 8", "new": "16, 0"}, threads=1)
    pair("cp.async to a place that is not aligned", "! cp.async.cg.shared.global [words+8], [%a], 16; cp.async.wait_all;", "not aligned", {"old": "+8", "new": "+16"}, threads=1)
    pair("cp.async over what another thread loads", FIRST + SHARED + "@%q ld.shared.u32 %x, [words]; /**/ ! @%p cp.async.ca.shared.global [words], [%a+8], 4; cp.async.wait_all;",
         "with nothing between|nobody has written", {"old": "/**/", "new": "bar.sync 0;"}, threads=64)


# ---- limits

def limits():
    pair("threads beyond the limit", "", "kernel: 1025 threads a block, at most 1024", {"threads": 1024}, threads=1025)
    pair("threads beyond the kernel's own", "", "kernel: 129 threads a block, at most 128", {"threads": 128}, threads=129, limits=" .maxntid 128, 1, 1")
    pair("registers beyond the limit", "", "kernel: 69632 registers of a block, at most 65536", {"registers": 128}, threads=512, registers=129)
    pair("registers beyond the limit, of the last warp", "", "kernel: 66816 registers of a block, at most 65536", {"threads": 256}, threads=257, registers=225)
    case("no blocks", "", "kernel: 0 blocks, at most 2147483647", blocks=0)
    case("blocks beyond the limit", "", "kernel: 4294967295 blocks, at most 2147483647", blocks=4294967295)
    case("shared memory beyond the limit", "st.shared.u32 [words], 1;", "kernel: 232460 bytes of shared memory, at most 232448", dynamic=232448 - 128 + 12, threads=1)
    case("near: shared memory beyond the limit", "st.shared.u32 [words], 1;", None, dynamic=232448 - 128, threads=1)
    big = ".shared .align 16 .b8 first[24576]; .shared .align 16 .b8 second[%d];"
    use = "st.shared.u32 [first], 1; st.shared.u32 [second], 1; st.shared.u32 [words], 1;"
    case("static shared memory beyond the limit", use, "kernel: 49168 bytes of static shared memory, at most 49152", threads=1, variables=big % (24576 - 124))
    case("near: static shared memory beyond the limit", use, None, threads=1, variables=big % (24576 - 128))


for make in (places, unwritten, races, parts, meetings, copies, limits):
    make()
