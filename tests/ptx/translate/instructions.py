"""instructions.py - PTX instructions as the executor's operations.

An operation has a name (operations*.c have a function for each) and numbers: places of operands, or plain ones. A method is
called as its instruction. Semantics follow the PTX ISA; an instruction or modifier that is not here raises NotUnderstood, and a
program that comes to it ends with its text.
"""
import re

from text import BITS, NotUnderstood

FLOATS = ("f32", "f64")
SPACES = ("global", "shared", "local", "const", "param")
# Of a warp, in its frame; of a launch, beside its parameters; plain numbers.
OF_WARP = {"%tid.x": 0, "%ctaid.x": 1, "%warpid": 2}
OF_LAUNCH = {"%ntid.x": 0, "%nctaid.x": 1, "%dynamic_smem_size": 2, "%total_smem_size": 3}
FIXED = {"WARP_SZ": 32, "%nsmid": 1, "%smid": 0, "%gridid": 0, "%nwarpid": 32}
FIXED.update({"%%%s.%s" % (name, axis): value for axis in "yz" for name, value in (("tid", 0), ("ctaid", 0), ("ntid", 1), ("nctaid", 1))})
LANES = {"%laneid": lambda i: i, "%lanemask_lt": lambda i: (1 << i) - 1, "%lanemask_le": lambda i: (2 << i) - 1, "%lanemask_eq": lambda i: 1 << i,
         "%lanemask_gt": lambda i: 0xFFFFFFFE << i & 0xFFFFFFFF, "%lanemask_ge": lambda i: 0xFFFFFFFF << i & 0xFFFFFFFF}


def plain(kind):
    """b types are unsigned."""
    return kind if kind in FLOATS or kind[0] in "us" or kind == "pred" else "u%d" % BITS[kind]


def unsigned(kind):
    return "u%d" % BITS[kind]


def width(kind):
    return "p" if kind == "pred" else BITS[kind]


def listed(operand):
    """Registers of {a, b}, or the one."""
    return [w.strip() for w in operand[1:-1].split(",")] if operand.startswith("{") else [operand]


class Instructions:
    """The base of a kernel's translation (translate.py). It has registers (name -> type), kernel, text, and

    op(name, *numbers)      an operation of the present block
    register(name)          its place
    temporary(width)        a place of that many bits, within one instruction
    number(value, bits)     the place of a number that all lanes have
    lanes(values)           the place of 32 numbers of 32 bits
    symbol(name, offset)    the place of an address
    parameter(offset, kind, bits), of_warp(i), of_launch(i)
    """

    # ---- operands

    def read(self, operand, kind):
        """The place of OPERAND as PTX type KIND."""
        operand = operand.strip()
        bits = width(kind)
        if operand.startswith("!"):
            place = self.temporary("p")
            self.op("not_pred", place, self.read(operand[1:], kind))
            return place
        if operand in OF_WARP:
            return self.fitted(self.of_warp(OF_WARP[operand]), "u32", kind)
        if operand in OF_LAUNCH:
            return self.fitted(self.of_launch(OF_LAUNCH[operand]), "u32", kind)
        if operand in FIXED:
            return self.number(FIXED[operand], bits)
        if operand in LANES:
            return self.fitted(self.lanes([LANES[operand](i) for i in range(32)]), "u32", kind)
        if operand in ("%clock", "%clock64", "%globaltimer"):
            place = self.temporary(64)
            self.op("clock", place)
            return self.fitted(place, "u64", kind)
        if operand in self.registers:
            return self.fitted(self.register(operand), self.registers[operand], kind)
        if re.match(r"0[fFdD][0-9a-fA-F]+$", operand):
            return self.number(int(operand[2:], 16), bits)
        if re.match(r"-?(0[xX][0-9a-fA-F]+|\d+)U?$", operand):
            return self.number(int(operand.rstrip("U"), 0), bits)
        match = re.match(r"([\w$.]+)(?:\s*\+\s*(-?\d+))?$", operand)
        if match:
            return self.fitted(self.symbol(match.group(1), int(match.group(2) or 0)), "u64", kind)
        raise NotUnderstood("operand " + operand)

    def fitted(self, place, have, want):
        """PLACE of type HAVE as WANT: the same bits, or the low ones, or with zeros or signs above."""
        if width(have) == width(want):
            return place
        if "pred" in (have, want) or (want in FLOATS and BITS[want] != BITS[have]):
            raise NotUnderstood("%s as %s in %s" % (have, want, self.text))
        result = self.temporary(BITS[want])
        self.op("cvt_%s_%s" % (unsigned(want), unsigned(have)), result, place)
        return result

    def write(self, operand, kind, name, *numbers):
        """Operation NAME leaves a KIND in register OPERAND, which may be wider: with zeros or signs above."""
        if operand == "_":
            return self.op(name, self.temporary(width(kind)), *numbers)
        if operand not in self.registers:
            raise NotUnderstood("register " + operand)
        have = self.registers[operand]
        if width(have) == width(kind):
            return self.op(name, self.register(operand), *numbers)
        if "pred" in (have, kind) or kind in FLOATS:
            raise NotUnderstood("%s into %s in %s" % (kind, have, self.text))
        place = self.temporary(BITS[kind])
        self.op(name, place, *numbers)
        self.op("cvt_%s_%s" % (unsigned(have), plain(kind)), self.register(operand), place)

    def plainly(self, name, mods, ops, kinds=None):
        """NAME_TYPE, all operands of the same type."""
        kind = plain(mods[-1])
        self.write(ops[0], kind, "%s_%s" % (name, kind), *[self.read(o, k) for o, k in zip(ops[1:], kinds or [kind] * len(ops))])

    def as_unsigned(self, name, mods, ops):
        self.plainly(name, mods[:-1] + [unsigned(mods[-1])], ops)

    # ---- moves

    def i_mov(self, mods, ops):
        kind = mods[-1]
        if ops[0].startswith("{"):
            parts = listed(ops[0])
            bits = BITS[kind] // len(parts)
            whole = self.read(ops[1], "u%d" % BITS[kind])
            for i, part in enumerate(parts):
                self.write(part, "u%d" % bits, "part_u%d_u%d" % (bits, BITS[kind]), whole, i * bits)
        elif ops[1].startswith("{"):
            parts = listed(ops[1])
            bits = BITS[kind] // len(parts)
            places = [self.read(part, "u%d" % bits) for part in parts]
            self.write(ops[0], "u%d" % BITS[kind], "join%d_u%d" % (len(parts), BITS[kind]), *places)
        else:
            self.write(ops[0], kind, "mov_%s" % width(kind), self.read(ops[1], kind))

    def i_cvta(self, mods, ops):
        shared = "shared" in mods
        name = "mov_64" if not shared else "from_generic" if "to" in mods else "to_generic"
        self.write(ops[0], "u64", name, self.read(ops[1], "u64"))

    def i_isspacep(self, mods, ops):
        self.write(ops[0], "pred", "is_" + mods[0], self.read(ops[1], "u64"))

    # ---- memory

    @staticmethod
    def space(mods):
        """Addresses in a block's own memory are of their own kind; all others are generic."""
        return "shared" if "shared" in mods else "generic"

    def address(self, operand):
        """(place, offset)"""
        match = re.match(r"\[\s*([%\w$.]+)\s*(?:\+\s*(-?\d+))?\s*\]$", operand)
        if not match:
            raise NotUnderstood("address " + operand)
        base, offset = match.group(1), int(match.group(2) or 0)
        if base in self.registers or re.match(r"\d+$", base):
            return self.read(base, "u64"), offset & 0xFFFFFFFF
        return self.symbol(base, 0), offset & 0xFFFFFFFF

    def i_ld(self, mods, ops):
        kind = plain(mods[-1])
        count = 4 if "v4" in mods else 2 if "v2" in mods else 1
        parts = listed(ops[0])
        if "param" in mods:
            name, offset = re.match(r"\[\s*([\w$.]+)\s*(?:\+\s*(\d+))?\s*\]$", ops[1]).groups()
            at = self.kernel.parameters[name] + int(offset or 0)
            for i, part in enumerate(parts):
                bits = BITS[self.registers[part]]
                place = self.parameter(at + i * BITS[kind] // 8, kind, bits)
                self.write(part, "u%d" % bits, "mov_%d" % bits, place)
            return
        place, offset = self.address(ops[1])
        targets, late = [], []
        for part in parts:
            have = self.registers.get(part)
            if have and width(have) == BITS[kind]:
                targets.append(self.register(part))
                continue
            targets.append(self.temporary(BITS[kind]))
            if have:
                late.append(("cvt_%s_%s" % (unsigned(have), kind), self.register(part), targets[-1]))
        self.op("ld%d_%s_%d" % (count, self.space(mods), BITS[kind]), place, offset, *targets)
        for row in late:
            self.op(*row)

    i_ldu = i_ld

    def i_st(self, mods, ops):
        kind = mods[-1]
        count = 4 if "v4" in mods else 2 if "v2" in mods else 1
        parts = [self.read(part, kind) for part in listed(ops[1])]
        self.op("st%d_%s_%d" % (count, self.space(mods), BITS[kind]), *self.address(ops[0]), *parts)

    def atomic(self, mods, ops):
        kind = plain(mods[-1])
        what = [m for m in mods if m in ("add", "exch", "cas", "min", "max", "inc", "dec", "and", "or", "xor")][0]
        if "shared" in mods:
            raise NotUnderstood("atomics on shared memory")
        given = [self.read(o, kind) for o in ops[2:]]
        self.write(ops[0], kind, "atom_%s_%s" % (what, kind), *self.address(ops[1]), *given, *([given[0]] if len(given) == 1 else []))

    def i_atom(self, mods, ops):
        self.atomic(mods, ops)

    def i_red(self, mods, ops):
        self.atomic(mods, ["_"] + ops)

    def i_cp(self, mods, ops):
        words = ".".join(mods)
        if words in ("async.ca.shared.global", "async.cg.shared.global"):
            size = int(ops[2])
            if size not in ((16,) if "cg" in mods else (4, 8, 16)):
                raise NotUnderstood("cp.async of %d bytes" % size)
            given = self.read(ops[3], "u32") if len(ops) > 3 else self.number(size, 32)
            self.op("copy", *self.address(ops[0]), *self.address(ops[1]), given, size)
        elif words == "async.commit_group":
            self.op("commit")
        elif words in ("async.wait_all", "async.wait_group"):
            self.op("wait", int(ops[0]) if ops else -1)
        else:
            raise NotUnderstood("cp." + words)

    def i_membar(self, mods, ops):
        self.op("fence")

    i_fence = i_membar

    def nothing(self, mods, ops):
        pass

    i_discard = i_prefetch = i_prefetchu = i_nanosleep = nothing

    # ---- floating point: subnormal numbers are flushed, and results are cut, by operations of their own

    def floating(self, name, mods, ops):
        kind = mods[-1]
        if any(m in ("rz", "rm", "rp", "NaN", "xorsign") for m in mods):
            raise NotUnderstood(self.text)
        places = [self.read(o, kind) for o in ops[1:]]
        after = (["saturate_" + kind] if "sat" in mods else []) + (["flush_f32"] if "ftz" in mods and kind == "f32" else [])
        if "ftz" in mods and kind == "f32":
            for i, place in enumerate(places):
                places[i] = self.temporary(32)
                self.op("flush_f32", places[i], place)
        if not after:
            return self.write(ops[0], kind, "%s_%s" % (name, kind), *places)
        result = self.temporary(BITS[kind])
        self.op("%s_%s" % (name, kind), result, *places)
        for step in after[:-1]:
            self.op(step, result, result)
        self.write(ops[0], kind, after[-1], result)

    def basic(self, name, mods, ops):
        if mods[-1] in FLOATS:
            if "rn" not in mods:
                raise NotUnderstood("no rounding modifier (ptxas may fuse it) in " + self.text)
            return self.floating(name, mods, ops)
        if set(mods[:-1]) - {"lo"}:
            raise NotUnderstood(self.text)
        self.as_unsigned(name, mods, ops)

    def i_add(self, mods, ops):
        self.basic("add", mods, ops)

    def i_sub(self, mods, ops):
        self.basic("sub", mods, ops)

    def i_mul(self, mods, ops):
        kind = plain(mods[-1])
        if kind not in FLOATS and "wide" in mods:
            self.write(ops[0], kind[0] + str(2 * BITS[kind]), "wide_" + kind, self.read(ops[1], kind), self.read(ops[2], kind))
        elif kind not in FLOATS and "hi" in mods:
            self.plainly("high", mods, ops)
        else:
            self.basic("mul", mods, ops)

    def i_mad(self, mods, ops):
        kind = plain(mods[-1])
        if kind in FLOATS:
            return self.i_fma(mods, ops)
        if "wide" in mods:
            wide = kind[0] + str(2 * BITS[kind])
            product = self.temporary(2 * BITS[kind])
            self.op("wide_" + kind, product, self.read(ops[1], kind), self.read(ops[2], kind))
            return self.write(ops[0], wide, "add_" + unsigned(wide), product, self.read(ops[3], wide))
        product = self.temporary(BITS[kind])
        name = "high_" + kind if "hi" in mods else "mul_" + unsigned(kind)
        self.op(name, product, self.read(ops[1], kind), self.read(ops[2], kind))
        self.write(ops[0], kind, "add_" + unsigned(kind), product, self.read(ops[3], kind))

    def i_fma(self, mods, ops):
        if "rn" not in mods:
            raise NotUnderstood(self.text)
        self.floating("fma", mods, ops)

    def either(self, name, mods, ops):
        (self.floating if mods[-1] in FLOATS else self.plainly)(name, mods, ops)

    def i_div(self, mods, ops):
        self.either("div", mods, ops)

    def i_rem(self, mods, ops):
        self.plainly("rem", mods, ops)

    def i_min(self, mods, ops):
        self.either("min", mods, ops)

    def i_max(self, mods, ops):
        self.either("max", mods, ops)

    def i_abs(self, mods, ops):
        self.either("abs", mods, ops)

    def i_neg(self, mods, ops):
        self.floating("neg", mods, ops) if mods[-1] in FLOATS else self.as_unsigned("neg", mods, ops)

    def __getattr__(self, name):
        if name in ("i_rcp", "i_sqrt", "i_rsqrt", "i_ex2", "i_lg2", "i_sin", "i_cos", "i_tanh"):
            return lambda mods, ops: self.floating(name[2:], mods, ops)
        raise AttributeError(name)

    def i_copysign(self, mods, ops):
        self.floating("copysign", mods, ops)

    # ---- bits

    def logic(self, name, mods, ops):
        kind = "pred" if mods[-1] == "pred" else unsigned(mods[-1])
        self.plainly(name, [kind], ops)

    def i_and(self, mods, ops):
        self.logic("and", mods, ops)

    def i_or(self, mods, ops):
        self.logic("or", mods, ops)

    def i_xor(self, mods, ops):
        self.logic("xor", mods, ops)

    def i_not(self, mods, ops):
        self.logic("not", mods, ops)

    def i_cnot(self, mods, ops):
        self.logic("cnot", mods, ops)

    def i_shl(self, mods, ops):
        kind = unsigned(mods[-1])
        self.plainly("shl", [kind], ops, [kind, "u32"])

    def i_shr(self, mods, ops):
        kind = plain(mods[-1])
        self.plainly("shr", [kind], ops, [kind, "u32"])

    def i_shf(self, mods, ops):
        self.plainly("shf_%s_%s" % (mods[0], mods[1]), ["u32"], ops)

    def i_bfe(self, mods, ops):
        self.plainly("bfe", mods, ops, [plain(mods[-1]), "u32", "u32"])

    def i_bfi(self, mods, ops):
        kind = unsigned(mods[-1])
        self.plainly("bfi", [kind], ops, [kind, kind, "u32", "u32"])

    def i_prmt(self, mods, ops):
        if mods != ["b32"]:
            raise NotUnderstood(self.text)
        self.plainly("prmt", mods, ops)

    def count(self, name, mods, ops):
        kind = unsigned(mods[-1])
        self.write(ops[0], "u32", "%s_%s" % (name, kind), self.read(ops[1], kind))

    def i_popc(self, mods, ops):
        self.count("popc", mods, ops)

    def i_clz(self, mods, ops):
        self.count("clz", mods, ops)

    def i_brev(self, mods, ops):
        self.as_unsigned("brev", mods, ops)

    # ---- comparisons

    def compare(self, mods, a, b):
        """The place of a predicate."""
        test, kind = mods[0], plain(mods[-1])
        test = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(test, test)
        if kind not in FLOATS and test in ("eq", "ne"):
            kind = unsigned(kind)
        places = [self.read(a, kind), self.read(b, kind)]
        if "ftz" in mods:
            for i, place in enumerate(places):
                places[i] = self.temporary(32)
                self.op("flush_f32", places[i], place)
        return "setp_%s_%s" % (test, kind), places

    def i_setp(self, mods, ops):
        name, places = self.compare(mods, ops[1], ops[2])
        parts = [w.strip() for w in ops[0].split("|")]
        combine = [m for m in mods if m in ("and", "or", "xor")]
        if not combine and len(parts) == 1:
            return self.write(parts[0], "pred", name, *places)
        result, other = self.temporary("p"), self.temporary("p")
        self.op(name, result, *places)
        self.op("not_pred", other, result)
        for part, place in zip(parts, (result, other)):
            if combine:
                self.write(part, "pred", combine[0] + "_pred", place, self.read(ops[3], "pred"))
            else:
                self.write(part, "pred", "mov_p", place)

    def i_set(self, mods, ops):
        name, places = self.compare(mods, ops[1], ops[2])
        result = self.temporary("p")
        self.op(name, result, *places)
        self.write(ops[0], mods[-2], "selp_32", self.number(0x3F800000 if mods[-2] == "f32" else 0xFFFFFFFF, 32), self.number(0, 32), result)

    def i_selp(self, mods, ops):
        kind = mods[-1]
        self.write(ops[0], kind, "selp_%d" % BITS[kind], self.read(ops[1], kind), self.read(ops[2], kind), self.read(ops[3], "pred"))

    def i_slct(self, mods, ops):
        kind, place = mods[-2], self.temporary("p")
        self.op("setp_ge_" + mods[-1], place, self.read(ops[3], mods[-1]), self.number(0, 32))
        self.write(ops[0], kind, "selp_%d" % BITS[kind], self.read(ops[1], kind), self.read(ops[2], kind), place)

    # ---- conversions

    def i_cvt(self, mods, ops):
        to, of = mods[-2], mods[-1]
        how = set(mods[:-2])
        half = {("bf16x2", "f32"): "rn", ("bf16", "f32"): "rn", ("f16", "f32"): "rn", ("f32", "bf16"): None, ("f32", "f16"): None}
        if (to, of) in half:
            if how != ({half[to, of]} - {None}):
                raise NotUnderstood(self.text)
            kind = unsigned(to) if to != "f32" else "f32"
            return self.write(ops[0], kind, "cvt_%s_%s" % (to, of), *[self.read(o, unsigned(of) if of != "f32" else of) for o in ops[1:]])
        if any(kind not in FLOATS and kind[0] not in "us" for kind in (to, of)) or how - {"rn", "rzi", "rni", "rmi", "rpi", "ftz", "sat"}:
            raise NotUnderstood(self.text)
        integral = how & {"rzi", "rni", "rmi", "rpi"}
        if to not in FLOATS and of not in FLOATS:
            if "sat" in how:
                raise NotUnderstood(self.text)
            return self.write(ops[0], to, "cvt_%s_%s" % (to, of) if BITS[to] != BITS[of] else "mov_%d" % BITS[to], self.read(ops[1], of))
        if (of in FLOATS and to not in FLOATS and not integral) or (of not in FLOATS and "rn" not in how):
            raise NotUnderstood(self.text)
        place = self.read(ops[1], of)
        steps = []
        if "ftz" in how and of == "f32":
            steps.append(("flush_f32", of))
        if integral:
            steps.append(("%s_%s" % (integral.pop(), of), of))
        if to != of:
            steps.append(("cvt_%s_%s" % (to, of), to))
        if "sat" in how:
            steps.append(("saturate_" + to, to))
        if "ftz" in how and to == "f32":
            steps.append(("flush_f32", to))
        for name, kind in steps[:-1]:
            result = self.temporary(BITS[kind])
            self.op(name, result, place)
            place = result
        self.write(ops[0], to, steps[-1][0] if steps else "mov_%d" % BITS[to], place)

    # ---- instructions of several lanes

    def i_bar(self, mods, ops):
        if mods[:1] == ["warp"]:
            return self.op("warp_sync")
        if [m for m in mods if m not in ("cta", "aligned")] != ["sync"]:
            raise NotUnderstood(self.text)
        self.op("barrier", *[self.read(o, "u32") for o in (ops + ["0"])[:2]])

    i_barrier = i_bar

    def i_shfl(self, mods, ops):
        parts = [w.strip() for w in ops[0].split("|")]
        there = self.register(parts[1]) if len(parts) > 1 and parts[1] != "_" else self.temporary("p")
        self.write(parts[0], "u32", "shfl_" + mods[1], *[self.read(o, "u32") for o in ops[1:4]], there)

    def i_vote(self, mods, ops):
        self.write(ops[0], "u32" if mods[1] == "ballot" else "pred", "vote_" + mods[1], self.read(ops[1], "pred"))

    def i_activemask(self, mods, ops):
        self.write(ops[0], "u32", "activemask")

    def i_mma(self, mods, ops):
        if ".".join(mods) != "sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32":
            raise NotUnderstood(self.text)
        places = [self.read(r, "b32") for o in ops[1:3] for r in listed(o)] + [self.read(r, "f32") for r in listed(ops[3])]
        self.op("mma", *places, *[self.register(r) for r in listed(ops[0])])

    def i_ldmatrix(self, mods, ops):
        if [m for m in mods if m != "trans"] != ["sync", "aligned", "m8n8", "x4", "shared", "b16"]:
            raise NotUnderstood(self.text)
        self.op("ldmatrix", *self.address(ops[1]), int("trans" in mods), *[self.register(r) for r in listed(ops[0])])
