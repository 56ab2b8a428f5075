"""equivalent.py - changes that no program can notice: those that are seen from the PTX, and a list of others with the reason."""
import re

import barriers
import flow
from changes import FLOATS, NUMBER

# (kernel, kind, the source line, reason): regular expressions that match all of it, for mutants that no test notices.
LIST = []


def needed(kernel):
    """Ids of instructions on whose results a store, a branch or a meeting of lanes depends."""
    makers = {}
    for s in kernel.statements:
        if hasattr(s, "ops"):
            for register in flow.writes(s, kernel.registers):
                makers.setdefault(register, []).append(s)
    work = [s for s in kernel.statements if hasattr(s, "ops") and not (flow.writes(s, kernel.registers) and s.name not in flow.MEETINGS | {"atom", "call"})]
    found = {id(s) for s in work}
    while work:
        for register in flow.reads(work.pop(), kernel.registers):
            for s in makers.get(register, []):
                if id(s) not in found:
                    found.add(id(s))
                    work.append(s)
    return found


def uses(kernel, register):
    return [s for s in kernel.statements if hasattr(s, "ops") and register in flow.reads(s, kernel.registers)]


def the_larger(kernel, instruction, new):
    """A comparison of two floats that chooses between these two, which are equal where it differs."""
    if instruction.name != "setp" or instruction.mods[-1] not in FLOATS or len(new) != 1 or new[0].ops != instruction.ops:
        return False
    pair = set(instruction.ops[1:3])
    return all(s.name == "selp" and set(s.ops[1:3]) == pair for s in uses(kernel, instruction.ops[0]))


def numbers(kernel):
    """Registers that one mov gives a number."""
    made = {}
    for s in kernel.statements:
        if hasattr(s, "ops"):
            for register in flow.writes(s, kernel.registers):
                made.setdefault(register, []).append(s)
    return {r: s[0].ops[1] for r, s in made.items() if len(s) == 1 and s[0].name == "mov" and not s[0].guard and NUMBER.match(s[0].ops[1])}


def adds_nothing(kernel, instruction, new):
    """An addition or subtraction of zero."""
    known = numbers(kernel)
    return (instruction.name in ("add", "sub") and len(new) == 1 and new[0].name != instruction.name
            and known.get(instruction.ops[2], instruction.ops[2]) == "0")


def narrow_reads(kernel, instruction, new):
    """A load of fewer bits, of which no more are used."""
    if instruction.name != "ld" or len(new) != 1 or new[0].name != "ld" or new[0].ops != instruction.ops:
        return False
    bits = int(new[0].mods[-1][1:])
    return all(s.name == "cvt" and s.mods[-2] == "u%d" % bits for s in uses(kernel, instruction.ops[0]))


def seen(module, kernel, instruction, new):
    """The reason why no program can notice that NEW stand in INSTRUCTION's place, or None."""
    if not new and barriers.is_barrier(instruction):
        words = " ".join(o for s in kernel.statements for o in getattr(s, "ops", ()))
        shared = {v.name for v in module.variables + kernel.variables if v.space == "shared" and v.name in words}
        return "it keeps nothing apart" if barriers.keeps_nothing_apart(kernel, shared, instruction) else None
    if instruction.name not in flow.ENDS and flow.writes(instruction, kernel.registers) and id(instruction) not in needed(kernel):
        return "nothing reads what it makes"
    for reason, test in (("both are equal where it differs", the_larger), ("it adds zero", adds_nothing), ("the other bits are not used", narrow_reads)):
        if test(kernel, instruction, new):
            return reason
    return None


def listed(kernel, kind, line):
    """The reason that the list gives."""
    for row in LIST:
        if all(re.fullmatch(pattern, text.strip()) for pattern, text in zip(row, (kernel, kind, line))):
            return row[3]
    return None
