"""addresses.py - questions about addresses: none is below zero, and none of an element is odd."""
import shared
from changes import NUMBER
from registers import made_of, makers_of, uses


def asks_for_an_address(kernel, instruction, new):
    """Whether an address is NULL takes lower ones for NULL, too: none is below 0."""
    if instruction.name != "setp" or len(new) != 1 or (instruction.mods[0], new[0].mods[0]) not in (("eq", "le"), ("ne", "gt")):
        return False
    null = makers_of(kernel, instruction.ops[2])
    return (len(null) == 1 and null[0].name == "cvta" and all(shared.is_zero(kernel, o) for o in null[0].ops[1:])
            and made_of(kernel, instruction.ops[1]) == {"parameter"})


def is_even(kernel, operand, depth=12):
    """Whether an operand is the address of an element, which has two bytes at least, or is made of such ones and of even numbers."""
    if NUMBER.match(operand):
        return int(operand) % 2 == 0
    makers = makers_of(kernel, operand)
    s = makers[0] if len(makers) == 1 and depth else None
    if not s or s.name not in ("ld", "cvta", "or", "add", "sub", "and", "mul", "shl"):
        return False
    if s.name in ("ld", "cvta"):
        return s.name == "cvta" or any(t.name == "cvta" for t in uses(kernel, operand))
    if s.name == "shl":
        return NUMBER.match(s.ops[2]) and int(s.ops[2]) > 0
    return (all if s.name in ("or", "add", "sub") else any)(is_even(kernel, o, depth - 1) for o in s.ops[1:])


def asks_for_a_multiple(kernel, instruction, new):
    """Whether addresses are multiples of 16 takes the lowest bit for 0, as it is."""
    if instruction.name != "and" or instruction.ops[2] != "15" or len(new) != 1 or new[0].ops[1:] != [instruction.ops[1], "14"]:
        return False
    used = uses(kernel, instruction.ops[0])
    return bool(used) and is_even(kernel, instruction.ops[1]) and all(s.name == "setp" and s.mods[0] in ("eq", "ne") and s.ops[2] == "0" for s in used)
