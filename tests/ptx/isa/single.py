"""single.py - instructions that a thread does alone, register to register: cases, and the results of the PTX ISA for their operands.

A value is its bits. The oracle knows integers of Python and rounding.py; of the executor it knows nothing. Where the ISA leaves
bits open a case has the allowed ones: NEAR (a relative error), any NaN for a NaN (of arithmetic on floats).
"""
import collections
import functools
import itertools
import math
import random

import rounding
from rounding import BF16, F16, F32, F64

BITS = {"pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16, "b32": 32, "u32": 32, "s32": 32, "f32": 32, "b64": 64, "u64": 64,
        "s64": 64, "f64": 64}
FLOATS = {"f32": F32, "f64": F64}
INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
# shape: operands as text; oracle: bits of the results (one, or a tuple) from those of the operands; nans: "any", "same" bits;
# near: the relative error that the ISA allows, over the exact result
Case = collections.namedtuple("Case", "opcode results operands values oracle shape nans near")
CASES = []


def case(opcode, results, operands, values, oracle, shape=None, nans="any", near=0.0):
    results, operands = results.split(), operands.split()
    shape = shape or "%s, %s" % (", ".join("{d%d}" % i for i in range(len(results))), ", ".join("{a%d}" % i for i in range(len(operands))))
    CASES.append(Case(opcode, results, operands, values, oracle, shape, nans, near))


# ---- values

def signed(x, bits):
    return x - (1 << bits) if x >> (bits - 1) & 1 else x


def low(x, bits):
    return x & ((1 << bits) - 1)


def number(kind, x):
    """X as a Python integer."""
    return signed(x, BITS[kind]) if kind[0] == "s" else x


def edges(kind):
    bits, chance = BITS[kind], random.Random(kind)
    if kind == "pred":
        return [0, 1]
    if kind not in FLOATS:
        top = 1 << (bits - 1)
        return [low(x, bits) for x in (0, 1, 2, 3, -1, -2, top, top - 1, top + 1, 0x5A5A5A5A5A5A5A5A, 0x123456789ABCDEF1, 32, 255, -256)] + [
            chance.getrandbits(bits) for _ in range(3)]
    f = FLOATS[kind]
    one = f.bias << f.fraction
    positive = [0, 1, (1 << f.fraction) - 1, 1 << f.fraction, one, one + 1, one - 1, one + (1 << (f.fraction - 1)), f.infinity - 1, f.infinity,
                f.nan, f.infinity + 5, f.round(rounding.Fraction(5, 2)), f.round(rounding.Fraction(1, 10)), one + (f.fraction << f.fraction) + 1,
                f.round(rounding.Fraction(2) ** 31)]
    return positive + [x | f.sign for x in positive]


CORE = (0, 1, 4, 6, 9, 10, 16, 20, 25)  # of edges: for floats zero, the least one, 1 and infinity of both signs, and NaN
SHIFTS = [0, 1, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1 << 31, (1 << 32) - 1]


@functools.lru_cache(None)
def pairs(*kinds):
    """All combinations of edges, or some of them and all of those at the core; and random values."""
    chance = random.Random(str(kinds))
    lists = [SHIFTS if kind == "shift" else edges(kind) for kind in kinds]
    rows = list(itertools.product(*lists))
    if len(rows) > 500:
        core = itertools.product(*[values if kind == "shift" else [values[i] for i in CORE if i < len(values)] for kind, values in zip(kinds, lists)])
        rows = chance.sample(rows, 400) + [row for row in core if len(kinds) < 3 or chance.random() < 0.3]
    for _ in range(120 if len(kinds) > 1 else 40):
        row = []
        for kind, values in zip(kinds, lists):
            if kind in FLOATS:  # near to each other: sums cancel, and ties come
                f = FLOATS[kind]
                row.append(chance.getrandbits(1) * f.sign + (f.bias + chance.randint(-4, 4) << f.fraction) +
                           (chance.getrandbits(f.fraction) if chance.random() < 0.7 else chance.getrandbits(4) << (f.fraction - 4)))
            else:
                row.append(chance.choice(values) if kind == "shift" else chance.getrandbits(BITS[kind]))
        rows.append(tuple(row))
    return rows


# ---- integers

def towards_zero(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def divided(kind):  # by zero: the ISA leaves that open; a GPU's quotient has all bits set, its remainder is the dividend
    bits = BITS[kind]
    return lambda a, b: low(towards_zero(number(kind, a), number(kind, b)), bits) if b else low(-1, bits)


def remainder(kind):
    return lambda a, b: low(number(kind, a) - towards_zero(number(kind, a), number(kind, b)) * number(kind, b), BITS[kind]) if b else a


def integers():
    for t in INTEGERS:
        bits, two = BITS[t], pairs(t, t)

        def of(function, kind=t, width=bits):
            return lambda *xs: low(function(*[number(kind, x) for x in xs]), width)
        case("add." + t, t, t + " " + t, two, of(lambda a, b: a + b))
        case("sub." + t, t, t + " " + t, two, of(lambda a, b: a - b))
        case("mul.lo." + t, t, t + " " + t, two, of(lambda a, b: a * b))
        case("mul.hi." + t, t, t + " " + t, two, of(lambda a, b, n=bits: a * b >> n))
        case("mad.lo." + t, t, " ".join([t] * 3), pairs(t, t, t), of(lambda a, b, c: a * b + c))
        case("mad.hi." + t, t, " ".join([t] * 3), pairs(t, t, t), of(lambda a, b, c, n=bits: (a * b >> n) + c))
        case("min." + t, t, t + " " + t, two, of(min))
        case("max." + t, t, t + " " + t, two, of(max))
        case("div." + t, t, t + " " + t, two, divided(t))
        case("rem." + t, t, t + " " + t, two, remainder(t))
        case("shr." + t, t, t + " u32", pairs(t, "shift"), of(lambda a, b: a >> min(b, 100)) if t[0] == "u" else
             lambda a, b, n=bits: low(signed(a, n) >> min(b, 100), n))
        if bits < 64:
            wide = t[0] + str(2 * bits)
            case("mul.wide." + t, wide, t + " " + t, two, of(lambda a, b: a * b, t, 2 * bits))
            case("mad.wide." + t, wide, "%s %s %s" % (t, t, wide), pairs(t, t, wide),
                 lambda a, b, c, kind=t, n=bits: low(number(kind, a) * number(kind, b) + c, 2 * n))
        if t[0] == "s":
            case("neg." + t, t, t, pairs(t), of(lambda a: -a))
            case("abs." + t, t, t, pairs(t), of(abs))
        for u in ("b%d" % bits,) if t[0] == "u" else ():
            case("and." + u, u, u + " " + u, two, lambda a, b: a & b)
            case("or." + u, u, u + " " + u, two, lambda a, b: a | b)
            case("xor." + u, u, u + " " + u, two, lambda a, b: a ^ b)
            case("not." + u, u, u, pairs(t), of(lambda a: ~a))
            case("cnot." + u, u, u, pairs(t), lambda a: int(not a))
            case("shl." + u, u, u + " u32", pairs(t, "shift"), of(lambda a, b: a << min(b, 100)))
    for name, function in (("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b)):
        case(name + ".pred", "pred", "pred pred", pairs("pred", "pred"), function)
    case("not.pred", "pred", "pred", pairs("pred"), lambda a: 1 - a)
    case("mov.pred", "pred", "pred", pairs("pred"), lambda a: a)
    case("mov.pred", "pred", "pred", pairs("pred"), lambda a: 1, "{d0}, -1")


def extract(kind):
    def oracle(a, b, c):
        top, at, length = BITS[kind] - 1, b & 255, c & 255
        sign = 0 if kind[0] == "u" or not length else a >> min(at + length - 1, top) & 1
        return sum((a >> (at + i) & 1 if i < length and at + i <= top else sign) << i for i in range(top + 1))
    return oracle


def insert(bits):
    def oracle(a, b, c, d):
        at, length = c & 255, d & 255
        for i in range(min(length, max(bits - at, 0))):
            b = b & ~(1 << (at + i)) | (a >> i & 1) << (at + i)
        return b
    return oracle


def permute(a, b, c):
    data = (a | b << 32).to_bytes(8, "little")
    result = 0
    for i in range(4):
        pick = c >> 4 * i & 15
        byte = data[pick & 7]
        result |= (0xFF * (byte >> 7) if pick & 8 else byte) << 8 * i
    return result


def bits_cases():
    for bits in (32, 64):
        u, s, b = "u%d" % bits, "s%d" % bits, "b%d" % bits
        for t in (u, s):
            case("bfe." + t, t, t + " u32 u32", pairs(t, "shift", "shift"), extract(t))
        case("bfi." + b, b, "%s %s u32 u32" % (b, b), pairs(b, b, "shift", "shift"), insert(bits))
        case("popc." + b, "u32", b, pairs(b), lambda a: bin(a).count("1"))
        case("clz." + b, "u32", b, pairs(b), lambda a, n=bits: n - a.bit_length())
        case("brev." + b, b, b, pairs(b), lambda a, n=bits: int(format(a, "0%db" % n)[::-1], 2))
    case("prmt.b32", "b32", "b32 b32 b32", pairs("b32", "b32", "b32"), permute)
    for mode, amount in (("wrap", lambda c: c & 31), ("clamp", lambda c: min(c, 32))):
        triples = pairs("b32", "b32", "shift")
        case("shf.l.%s.b32" % mode, "b32", "b32 b32 u32", triples, lambda a, b, c, n=amount: low((b << 32 | a) << n(c) >> 32, 32))
        case("shf.r.%s.b32" % mode, "b32", "b32 b32 u32", triples, lambda a, b, c, n=amount: low((b << 32 | a) >> n(c), 32))


# ---- comparisons

ORDERED = {"eq": lambda c: c == 0, "ne": lambda c: c in (-1, 1), "lt": lambda c: c == -1, "le": lambda c: c in (-1, 0), "gt": lambda c: c == 1,
           "ge": lambda c: c in (0, 1)}
ALIASES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def tests_of(kind):
    """(name, whether it holds for two values' order: -1, 0, 1, None)"""
    names = ["eq", "ne"] + ([] if kind[0] == "b" else ["lt", "le", "gt", "ge"]) + (list(ALIASES) if kind[0] == "u" else [])
    for name in names:
        yield name, ORDERED[ALIASES.get(name, name)]
    if kind in FLOATS:
        for name, test in ORDERED.items():
            yield name + "u", lambda c, test=test: c is None or test(c)
        yield "num", lambda c: c is not None
        yield "nan", lambda c: c is None


def order(kind, a, b):
    if kind in FLOATS:
        return rounding.compare(FLOATS[kind], a, b)
    a, b = number(kind, a), number(kind, b)
    return (a > b) - (a < b)


def comparisons():
    for t in INTEGERS + ("b16", "b32", "b64", "f32", "f64"):
        for name, test in tests_of(t):
            case("setp.%s.%s" % (name, t), "pred", t + " " + t, pairs(t, t), lambda a, b, t=t, test=test: int(test(order(t, a, b))))
    for name, test in tests_of("f32"):
        case("setp.%s.ftz.f32" % name, "pred", "f32 f32", pairs("f32", "f32"),
             lambda a, b, test=test: int(test(order("f32", F32.flush(a), F32.flush(b)))))
    for name, function in (("and", lambda x, y: x & y), ("or", lambda x, y: x | y), ("xor", lambda x, y: x ^ y)):
        rows = [r for r in pairs("s32", "s32", "pred")]
        case("setp.lt.%s.s32" % name, "pred pred", "s32 s32 pred", rows, lambda a, b, c, f=function: (
            f(int(signed(a, 32) < signed(b, 32)), c), f(int(signed(a, 32) >= signed(b, 32)), c)), "{d0}|{d1}, {a0}, {a1}, {a2}")
    case("setp.gtu.f32", "pred pred", "f32 f32", pairs("f32", "f32"), lambda a, b: (
        int(order("f32", a, b) in (None, 1)), int(order("f32", a, b) not in (None, 1))), "{d0}|{d1}, {a0}, {a1}")
    for t in ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"):
        case("selp." + t, t, "%s %s pred" % (t, t), pairs(t, t, "pred"), lambda a, b, c: a if c else b, nans="same")
    case("set.lt.u32.s32", "u32", "s32 s32", pairs("s32", "s32"), lambda a, b: low(-(signed(a, 32) < signed(b, 32)), 32))
    case("set.geu.f32.f32", "f32", "f32 f32", pairs("f32", "f32"), lambda a, b: F32.bias << 23 if order("f32", a, b) in (None, 0, 1) else 0)
    case("slct.b32.s32", "b32", "b32 b32 s32", pairs("b32", "b32", "s32"), lambda a, b, c: a if signed(c, 32) >= 0 else b)


# ---- floats

def flushed(function, f=F32):
    return lambda *xs: f.flush(function(*[f.flush(x) for x in xs]))


def saturated(f, x):
    if f.is_nan(x) or x & f.sign:
        return 0
    return min(x, f.bias << f.fraction)


def extreme(f, greater):
    def oracle(a, b):
        if f.is_nan(a) or f.is_nan(b):
            return f.nan if f.is_nan(a) and f.is_nan(b) else b if f.is_nan(a) else a
        keys = [(-(x & ~f.sign) - 1 if x & f.sign else x, x) for x in (a, b)]  # -0 is below +0
        return (max if greater else min)(keys)[1]
    return oracle


def floats():
    for t, f in FLOATS.items():
        one = f.bias << f.fraction
        table = {"add.rn": (2, lambda a, b, f=f: rounding.add(f, a, b)),
                 "sub.rn": (2, lambda a, b, f=f: f.nan if f.is_nan(b) else rounding.add(f, a, b ^ f.sign)),
                 "mul.rn": (2, lambda a, b, f=f: rounding.mul(f, a, b)), "div.rn": (2, lambda a, b, f=f: rounding.div(f, a, b)),
                 "fma.rn": (3, lambda a, b, c, f=f: rounding.fma(f, a, b, c)), "rcp.rn": (1, lambda a, f=f, one=one: rounding.div(f, one, a)),
                 "sqrt.rn": (1, lambda a, f=f: rounding.sqrt(f, a)), "neg": (1, lambda a, f=f: a ^ f.sign), "abs": (1, lambda a, f=f: a & ~f.sign)}
        for name, (count, function) in table.items():
            rows, kinds = pairs(*[t] * count), " ".join([t] * count)
            case("%s.%s" % (name, t), t, kinds, rows, function)
            if t == "f32":
                case(name + ".ftz.f32", t, kinds, rows, flushed(function))
            if t == "f32" and name[:3] in ("add", "sub", "mul", "fma"):
                case(name + ".sat.f32", t, kinds, rows, lambda *xs, g=function: saturated(F32, g(*xs)))
                case(name + ".ftz.sat.f32", t, kinds, rows, lambda *xs, g=function: saturated(F32, flushed(g)(*xs)))
        for name in ("min", "max"):
            function = extreme(f, name == "max")
            case("%s.%s" % (name, t), t, t + " " + t, pairs(t, t), function, nans="same" if t == "f32" else "any")
            if t == "f32":
                case(name + ".ftz.f32", t, t + " " + t, pairs(t, t), flushed(function), nans="same")
        case("copysign." + t, t, t + " " + t, pairs(t, t), lambda a, b, f=f: b & ~f.sign | a & f.sign)
        case("mov." + t, t, t, pairs(t), lambda a: a, nans="same")
    near("sqrt.approx.f32", lambda x: math.sqrt(x) if x >= 0 else math.nan, 2.0 ** -23)
    near("rsqrt.approx.f32", lambda x: math.nan if x < 0 else 1 / math.sqrt(x) if x else math.copysign(math.inf, x), 2.0 ** -22.9)
    near("ex2.approx.f32", power, 2.0 ** -22)
    near("ex2.approx.ftz.f32", power, 2.0 ** -22, True)


def power(x):
    return math.inf if x > 200 else 0.0 if x < -200 else 2.0 ** x


def near(opcode, function, error, flush=False):
    def oracle(a):
        a = F32.flush(a) if flush else a
        x = math.nan if F32.is_nan(a) else math.inf if F32.is_infinite(a) else float(F32.value(a))
        x = -abs(x) if a & F32.sign else x
        y = function(x)
        bits = F32.nan if y != y else F32.infinity if y == math.inf else F32.round(rounding.Fraction(y), math.copysign(1, y) < 0) if abs(
            y) < math.inf else F32.infinity | F32.sign
        return F32.flush(bits) if flush else bits
    case(opcode, "f32", "f32", pairs("f32"), oracle, near=error)


# ---- conversions

def whole(f, how, x):
    value = f.value(x)
    return {"rzi": math.trunc, "rni": round, "rmi": math.floor, "rpi": math.ceil}[how](value)


def to_integer(of, to, how):
    f, bits = FLOATS[of], BITS[to]
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if to[0] == "s" else (0, (1 << bits) - 1)

    def oracle(x):
        if f.is_nan(x):  # PTX ISA 9.0, cvt
            return 1 << (bits - 1) if of == "f64" or bits == 64 else 0
        if f.is_infinite(x):
            return low(least if x & f.sign else most, bits)
        return low(min(max(whole(f, how, x), least), most), bits)
    return oracle


def near_integers(f):
    """Numbers about which conversions to integers decide."""
    values = []
    for power_of_two in (0, 1, 2, 7, 8, 15, 16, 23, 24, 31, 32, 52, 53, 63, 64):
        bits = f.round(rounding.Fraction(2) ** power_of_two)
        values += [bits - 1, bits, bits + 1]
    values += [f.round(rounding.Fraction(n, 4)) for n in range(16)]
    return [(x | sign,) for x in values for sign in (0, f.sign)]


def convert(f, to):
    def oracle(x):
        if f.is_nan(x):
            return to.nan
        sign = to.sign if x & f.sign else 0
        return sign | to.infinity if f.is_infinite(x) else to.round(f.value(x), sign)
    return oracle


def conversions():
    for to, of in itertools.permutations(INTEGERS, 2):
        if BITS[to] != BITS[of]:
            case("cvt.%s.%s" % (to, of), to, of, pairs(of), lambda a, n=BITS[to], of=of: low(number(of, a), n))
    for t, f in FLOATS.items():
        for i in INTEGERS:
            values = pairs(i) + [(low(sign * ((1 << n) + d), BITS[i]),) for n in (24, 25, 53, 54, 62) for d in (-1, 0, 1, 3) for sign in (1, -1)]
            case("cvt.rn.%s.%s" % (t, i), t, i, values, lambda a, f=f, i=i: f.round(rounding.Fraction(number(i, a))))
            for how in ("rzi", "rni", "rmi", "rpi"):
                case("cvt.%s.%s.%s" % (how, i, t), i, t, pairs(t) + near_integers(f), to_integer(t, i, how))
        for how in ("rzi", "rni", "rmi", "rpi"):
            case("cvt.%s.%s.%s" % (how, t, t), t, t, pairs(t) + near_integers(f), lambda x, f=f, how=how: x if f.is_nan(x) or f.is_infinite(
                x) else f.round(rounding.Fraction(whole(f, how, x)), x & f.sign))
    case("cvt.f64.f32", "f64", "f32", pairs("f32"), convert(F32, F64))
    case("cvt.rn.f32.f64", "f32", "f64", pairs("f64"), convert(F64, F32))
    case("cvt.sat.f32.f32", "f32", "f32", pairs("f32"), lambda a: saturated(F32, a))
    tie = [(b << 16 | c, d << 16 | e) for b in (0x3F80, 0x3F81, 0xBF81, 0x7F7F, 0x0000, 0x8001, 0x7F80, 0x7FFF) for c in (0, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
           for d in (0x4001, 0xFF7F) for e in (0x8000, 1)]
    case("cvt.rn.bf16x2.f32", "b32", "f32 f32", pairs("f32", "f32") + tie, lambda a, b: convert(F32, BF16)(a) << 16 | convert(F32, BF16)(b))
    case("cvt.rn.bf16.f32", "b16", "f32", pairs("f32") + [(a,) for a, _ in tie], convert(F32, BF16))
    case("cvt.f32.bf16", "f32", "b16", [(x,) for x in range(0, 65536, 97)] + pairs("b16"), convert(BF16, F32))
    case("cvt.rn.f16.f32", "f16", "f32", pairs("f32") + [(0x33000000 + d,) for d in (-1, 0, 1)] + [(0x477FEFFF + d,) for d in (0, 1, 2)], convert(F32, F16))
    case("cvt.f32.f16", "f32", "b16", [(x,) for x in range(0, 65536, 97)] + pairs("b16"), convert(F16, F32))


def bytes_cases():
    """A byte lies in a register of 16 bits: the bits above it are not read, and are written with zeros or signs."""
    for byte in ("u8", "s8"):
        def above(x, byte=byte):
            return low(number(byte, low(x, 8)), 16)
        for t in INTEGERS:
            case("cvt.%s.%s" % (byte, t), "b16", t, pairs(t), above)
            case("cvt.%s.%s" % (t, byte), t, "b16", pairs("b16"), lambda a, t=t, byte=byte: low(number(byte, low(a, 8)), BITS[t]))
        for t, f in FLOATS.items():
            case("cvt.rzi.%s.%s" % (byte, t), "b16", t, pairs(t) + near_integers(f), lambda x, t=t, byte=byte, above=above: above(to_integer(t, byte, "rzi")(x)))
            case("cvt.rn.%s.%s" % (t, byte), t, "b16", pairs("b16"), lambda a, f=f, byte=byte: f.round(rounding.Fraction(number(byte, low(a, 8)))))


def moves():
    for t in ("u16", "b16", "s16", "u32", "b32", "s32", "u64", "b64", "s64"):
        case("mov." + t, t, t, pairs(t), lambda a: a)
    for b, f in (("b32", "f32"), ("b64", "f64")):
        case("mov." + b, b, f, pairs(f), lambda a: a)
        case("mov." + b, f, b, pairs(b), lambda a: a, nans="same")
    case("mov.b32", "b16 b16", "b32", pairs("b32"), lambda a: (low(a, 16), a >> 16), "{{{d0}, {d1}}}, {a0}")
    case("mov.b64", "b32 b32", "b64", pairs("b64"), lambda a: (low(a, 32), a >> 32), "{{{d0}, {d1}}}, {a0}")
    case("mov.b64", "b16 b16 b16 b16", "b64", pairs("b64"), lambda a: tuple(low(a >> n, 16) for n in (0, 16, 32, 48)), "{{{d0}, {d1}, {d2}, {d3}}}, {a0}")
    case("mov.b32", "b32", "b16 b16", pairs("b16", "b16"), lambda a, b: a | b << 16, "{d0}, {{{a0}, {a1}}}")
    case("mov.b64", "b64", "b32 b32", pairs("b32", "b32"), lambda a, b: a | b << 32, "{d0}, {{{a0}, {a1}}}")
    case("mov.b64", "b64", "b16 b16 b16 b16", pairs("b16", "b16", "b16", "b16"), lambda *xs: sum(x << 16 * i for i, x in enumerate(xs)),
         "{d0}, {{{a0}, {a1}, {a2}, {a3}}}")
    for space in ("global", "local", "const"):
        case("cvta.%s.u64" % space, "u64", "u64", pairs("u64"), lambda a: a)
        case("cvta.to.%s.u64" % space, "u64", "u64", pairs("u64"), lambda a: a)


for make in (integers, bits_cases, comparisons, floats, conversions, bytes_cases, moves):
    make()
