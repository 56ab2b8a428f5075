"""warps.py - questions of a team about its last warp: a team has whole warps, as its threads are a multiple of 32."""
import flow
from registers import maker_at, makers_of, uses

# "No threads are left" is true, "some are" is not: joined with it by this word, another question changes nothing.
ANSWERS = {"eq": "or", "ne": "and"}


def asks_for_a_rest(kernel, predicate):
    """How a predicate compares with zero the number of threads beyond a team's whole warps, eq or ne, or None."""
    makers = makers_of(kernel, predicate)
    asks = makers[0] if len(makers) == 1 and makers[0].name == "setp" and makers[0].mods[0] in ANSWERS and makers[0].ops[2] == "0" else None
    rest = maker_at(kernel, asks, asks.ops[1]) if asks else None
    if not rest or rest.name != "and" or rest.ops[2] != "31":
        return None
    threads = makers_of(kernel, rest.ops[1])
    while len(threads) == 1 and threads[0].name == "cvt":
        threads = makers_of(kernel, threads[0].ops[1])
    return asks.mods[0] if len(threads) == 1 and threads[0].name == "mov" and threads[0].ops[1] == "%ntid.x" else None


def is_idle(kernel, s, predicate):
    """Whether the other operand of s determines its result, whatever PREDICATE is."""
    return any(ANSWERS.get(asks_for_a_rest(kernel, o)) == s.name for o in s.ops[1:] if o != predicate)


def looks_for_the_last_warp(kernel, instruction, new):
    """Whether the instruction asks if a warp is whole, as each is, or is the last one, if that is not; or whether only
    such a question reads its result."""
    asks = asks_for_a_rest(kernel, instruction.ops[0]) if instruction.name == "setp" else None
    if asks:
        return (asks, new[0].mods[0]) in (("eq", "ge"), ("ne", "lt"))
    used = uses(kernel, instruction.ops[0]) if flow.writes(instruction, kernel.registers) else []
    if instruction.name != "setp":
        return bool(used) and all(s.name == "setp" and looks_for_the_last_warp(kernel, s, [s]) for s in used)
    return bool(used) and all(is_idle(kernel, s, instruction.ops[0]) for s in used)
