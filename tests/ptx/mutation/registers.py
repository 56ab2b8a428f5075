"""registers.py - which statements of a kernel make a register, and read it; which numbers it is made of."""
import collections
import functools
import re

import flow
from changes import NUMBER

CONSTANT = re.compile(NUMBER.pattern + r"|0[fd][0-9A-F]+$")
OF_BLOCKS = {"%ctaid.x", "%nctaid.x", "parameter", "number"}  # results made of these are the same in all threads of a block


@functools.cache
def statements_by(kernel, access):
    """For each register the statements that ACCESS it: flow.reads or flow.writes."""
    found = collections.defaultdict(list)
    for s in kernel.statements:
        for register in dict.fromkeys(access(s, kernel.registers)) if hasattr(s, "ops") else ():
            found[register].append(s)
    return dict(found)


def uses(kernel, register):
    return statements_by(kernel, flow.reads).get(register, [])


def makers_of(kernel, register):
    return statements_by(kernel, flow.writes).get(register, [])


def maker_at(kernel, s, register):
    """The statement that makes the register that S reads: the last one in front of it in its block, or the only one of all; or None."""
    home = next(block for block in flow.make_blocks(kernel) if any(t is s for t in block.body + [block.end]))
    at = next((k for k, t in enumerate(home.body) if t is s), len(home.body))
    here = [t for t in home.body[:at] if register in flow.writes(t, kernel.registers)]
    makers = here[-1:] if here and not here[-1].guard else makers_of(kernel, register)
    return makers[0] if len(makers) == 1 else None


def through_moves(kernel, register):
    """Statements that make a register, or the registers that it is a copy of."""
    found, seen_too, work = [], set(), [register]
    while work:
        for s in makers_of(kernel, work.pop()):
            if s.name == "mov" and s.ops[1] in kernel.registers and s.ops[1] not in seen_too:
                seen_too.add(s.ops[1])
                work.append(s.ops[1])
            elif s.name != "mov" or s.ops[1] not in kernel.registers:
                found.append(s)
    return found


def made_of(kernel, register):
    """Special registers, "parameter", "number" and "memory": all that a register is made of."""
    found, seen_too, work = set(), set(), [register]
    while work:
        for s in makers_of(kernel, work.pop()):
            if s.name == "ld":
                found.add("parameter" if "param" in s.mods else "memory")
                continue
            operands = set(s.ops[1:]) - seen_too
            seen_too |= operands
            work += [operand for operand in operands if operand in kernel.registers]
            found |= {"number" if CONSTANT.match(operand) else operand for operand in operands if operand not in kernel.registers}
    return found


def is_of_block(kernel, register, depth=8):
    """Whether a register is made of the block's number and constants alone: so it is the same in all threads of the block."""
    operands = [operand for s in makers_of(kernel, register) for operand in s.ops[1:]]
    return bool(operands) and depth > 0 and all(
        NUMBER.match(operand) or operand == "%ctaid.x" or is_of_block(kernel, operand, depth - 1) for operand in operands)


def bounds_a_block(kernel, register):
    """Whether a register is made of the block's number and of sizes."""
    found = made_of(kernel, register)
    return "%ctaid.x" in found and found <= OF_BLOCKS


def reached(kernel, instruction):
    """Statements that may read the result of one, before something else is written there."""
    register, blocks = instruction.ops[0], flow.make_blocks(kernel)
    home = next(block for block in blocks if any(s is instruction for s in block.body))
    at = next(k for k, s in enumerate(home.body) if s is instruction)
    found, seen, work = [], set(), [(home, home.body[at + 1 :])]
    while work:
        block, statements = work.pop()
        for s in statements + ([block.end] if block.end else []):
            if register in flow.reads(s, kernel.registers):
                found.append(s)
            if register in flow.writes(s, kernel.registers) and not s.guard:
                break
        else:
            work += [(target, target.body) for target in block.targets if target not in seen]
            seen.update(block.targets)
    return found
