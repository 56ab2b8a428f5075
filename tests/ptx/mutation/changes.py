"""changes.py - one change of a kernel's PTX, of each kind of fault that a programmer, or a compiler, may make.

KINDS has a function for each kind: it takes an instruction, the registers' types and a choice (random.Random), and gives the
instructions that stand in its place, or None if there is nothing to change.
"""
import re

from text import BITS, Instruction

FLOATS = ("f32", "f64")
NUMBER = re.compile(r"-?\d+$")
REGISTER = re.compile(r"%\w+$")
ZERO = {"0f00000000": "0f3F800000", "0d0000000000000000": "0d3FF0000000000000"}
EXTRA = "%mutant"


def edited(instruction, name=None, mods=None, ops=None, guard=None):
    """The instruction with other words, and a text for reports."""
    new = instruction._replace(name=name or instruction.name, mods=mods or instruction.mods, ops=ops or instruction.ops,
                               guard=guard or instruction.guard)
    head = "@%s%s " % ("!" if new.guard[1] else "", new.guard[0]) if new.guard else ""
    return new._replace(text="%s%s %s" % (head, ".".join([new.name, *new.mods]), ", ".join(new.ops)))


def with_operand(instruction, at, operand):
    return edited(instruction, ops=[*instruction.ops[:at], operand, *instruction.ops[at + 1 :]])


def moved_by(instruction, at, registers, by):
    """Operand AT is a number or a register of integers: the instruction takes it BY more."""
    operand = instruction.ops[at]
    if NUMBER.match(operand):
        return [with_operand(instruction, at, str(int(operand) + by))]
    kind = registers.get(operand)
    if not kind or kind == "pred" or kind in FLOATS:
        return None
    bits = BITS[kind]
    registers["%s%d" % (EXTRA, bits)] = "b%d" % bits
    extra = "%s%d" % (EXTRA, bits)
    add = Instruction(None, "add", ["u%d" % bits], [extra, operand, str(by)], instruction.line, "add.u%d %s, %s, %d" % (bits, extra, operand, by))
    return [add, with_operand(instruction, at, extra)]


def integers(instruction):
    return instruction.mods and instruction.mods[-1][0] in "su" and instruction.mods[-1] not in FLOATS


def compare(i, registers, choice):
    """Another comparison: with the equal case, or without."""
    if i.name != "setp":
        return None
    test = i.mods[0]
    unordered = test.endswith("u") and len(test) == 3
    zero = i.ops[2] == "0"
    other = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ge" if zero else "le", "ne": "lt" if zero else "gt"}.get(test[:2])
    kind = i.mods[-1]
    if not other or (test[:2] in ("eq", "ne") and kind in FLOATS):
        return None
    return [edited(i, mods=[other + "u" * unordered, *i.mods[1:-1], kind.replace("b", "u")])]


def swap(i, registers, choice):
    """Operands in each other's place."""
    if i.name == "setp" and i.mods[0][:2] in ("eq", "ne"):
        return None
    first = {"sub": 1, "div": 1, "rem": 1, "selp": 1, "setp": 1, "shl": 1, "shr": 1, "mad": 2, "fma": 2}.get(i.name)
    if not first or ("wide" in i.mods) or i.ops[first] == i.ops[first + 1]:
        return None
    if i.name in ("shl", "shr") and (BITS[i.mods[-1]] != 32 or not REGISTER.match(i.ops[2])):
        return None
    ops = list(i.ops)
    ops[first], ops[first + 1] = ops[first + 1], ops[first]
    return [edited(i, ops=ops)]


ADDRESS = re.compile(r"\[\s*([%\w$.]+)\s*(?:\+\s*(-?\d+))?\s*\]$")


def offset(i, registers, choice):
    """An address off by an element."""
    if "param" in i.mods or i.name not in ("ld", "st", "cp", "ldmatrix"):
        return None
    places = [k for k, operand in enumerate(i.ops) if ADDRESS.match(operand)]
    if not places:
        return None
    at = choice.choice(places)
    base, number = ADDRESS.match(i.ops[at]).groups()
    step = 16 if i.name == "ldmatrix" else int(i.ops[2]) if i.name == "cp" else BITS[i.mods[-1]] // 8 * (4 if "v4" in i.mods else 2 if "v2" in i.mods else 1)
    return [with_operand(i, at, "[%s+%d]" % (base, int(number or 0) + choice.choice((step, -step))))]


def add_for_sub(i, registers, choice):
    if i.name not in ("add", "sub"):
        return None
    return [edited(i, name={"add": "sub", "sub": "add"}[i.name])]


def barrier(i, registers, choice):
    return [] if i.name in ("bar", "barrier") and "warp" not in i.mods else None


def lane(i, registers, choice):
    """A lane's or thread's index, or a shuffle's distance, off by one."""
    if i.name == "shfl":
        return moved_by(i, 2, registers, choice.choice((1, -1)))
    if i.name == "mov" and i.ops[1] in ("%tid.x", "%laneid"):
        kind = i.mods[-1].replace("b", "u")
        more = Instruction(None, "add", [kind], [i.ops[0], i.ops[0], "1"], i.line, "add.%s %s, %s, 1" % (kind, i.ops[0], i.ops[0]))
        return [i, more]
    return None


def stride(i, registers, choice):
    """A wrong multiplier."""
    if i.name in ("mul", "mad") and integers(i) or i.name == "shl" and NUMBER.match(i.ops[2]):
        return moved_by(i, 2, registers, choice.choice((1, -1)))
    return None


def wait(i, registers, choice):
    """A wait of cp.async removed."""
    return [] if i.name == "cp" and any(m.startswith("wait") for m in i.mods) else None


def accumulator(i, registers, choice):
    """A sum begins at 1."""
    if i.name == "mov" and i.ops[1] in ZERO:
        return [with_operand(i, 1, ZERO[i.ops[1]])]
    return None


def negated(i, registers, choice):
    return [edited(i, guard=(i.guard[0], not i.guard[1]))] if i.guard else None


def mask(i, registers, choice):
    """A lane short."""
    if i.name in ("shfl", "vote", "match", "redux") and i.ops[-1] in ("-1", "0xffffffff"):
        return [with_operand(i, len(i.ops) - 1, str(0xFFFFFFFF & ~(1 << choice.randrange(32))))]
    return None


NARROWER = {32: "u16", 64: "u32", 16: "u8"}


def width(i, registers, choice):
    """A load or store of another width."""
    if i.name not in ("ld", "st") or "param" in i.mods or {"v2", "v4"} & set(i.mods) or BITS[i.mods[-1]] == 8:
        return None
    register = i.ops[0 if i.name == "ld" else 1]
    if i.mods[-1] == "f64" or not REGISTER.match(register):
        return None
    return [edited(i, mods=[*i.mods[:-1], NARROWER[BITS[i.mods[-1]]]])]


def row(i, registers, choice):
    """One beyond the end: a bound off by one."""
    if not integers(i) or not (i.name == "min" or i.name == "setp" and i.mods[0] in ("lt", "le", "gt", "ge")):
        return None
    at = choice.choice([k for k in (1, 2)])
    return moved_by(i, at, registers, 1) if REGISTER.match(i.ops[at]) else None


def constant(i, registers, choice):
    """A number off by one."""
    if i.name in ("add", "sub", "and", "or", "xor", "setp", "min", "max", "mov", "selp", "shr", "bfe", "div", "rem", "fma", "mul"):
        numbers = [k for k, operand in enumerate(i.ops) if k and (NUMBER.match(operand) or re.match("0f[0-9A-F]{8}$", operand))]
        if numbers and i.mods[-1] != "pred":
            at = choice.choice(numbers)
            if NUMBER.match(i.ops[at]):
                return [with_operand(i, at, str(int(i.ops[at]) + choice.choice((1, -1))))]
            return [with_operand(i, at, "0f%08X" % (int(i.ops[at][2:], 16) ^ 1 << 22))]
    return None


KINDS = {"another comparison": compare, "a swapped operand": swap, "an offset off by an element": offset, "an add for a sub": add_for_sub,
         "a barrier removed": barrier, "a lane's index off by one": lane, "a stride wrong": stride, "a wait of cp.async removed": wait,
         "an accumulator not cleared": accumulator, "a predicate negated": negated, "a mask short of a lane": mask,
         "a load of another width": width, "a row beyond the end": row, "a constant off by one": constant}
