"""shared.py - which loads see a store to a shared variable whose address no register has. Threads go the ways of thread 0, which
alone stores there; the checker reports a thread that does not wait for it."""
import barriers
from registers import makers_of, through_moves

ZEROS = {"0", "0f00000000", "0d0000000000000000"}


def ways(accesses, block):
    """Targets of a block for thread 0."""
    guard = block.end.guard if block.end and len(block.targets) == 2 else None
    for test, holds in (("eq", True), ("ne", False)) if guard else ():
        if accesses.of_thread_0(guard[0], test):
            return [block.targets[holds == guard[1]]]
    return block.targets


def is_plain(accesses, s, name, at):
    """Whether it is an access to a variable, in operand AT, whose address is in no register."""
    return s.name == name and "shared" in s.mods and s.ops[at].strip("[]") in accesses.kept


def sees(accesses, store):
    """Loads that a store reaches before another one of the same variable and width."""
    home = next(block for block in accesses.blocks if any(s is store for s in block.body))
    at = next(k for k, s in enumerate(home.body) if s is store)
    found, seen, work = [], set(), [(home, home.body[at + 1 :])]
    while work:
        block, statements = work.pop()
        for s in statements:
            if s.name == "ld" and s.ops[1] == store.ops[0]:
                found.append(s)
            if s.name == "st" and s.ops[0] == store.ops[0] and s.mods[-1][1:] == store.mods[-1][1:] and not s.guard:
                break
        else:
            work += [(target, target.body) for target in ways(accesses, block) if target not in seen]
            seen.update(ways(accesses, block))
    return found


def is_overwritten(kernel, variables, instruction, new):
    """A store of fewer bits: another store comes before each load."""
    if len(new) != 1 or new[0].ops != instruction.ops:
        return False
    accesses = barriers.Accesses(kernel, variables)
    return is_plain(accesses, instruction, "st", 0) and not sees(accesses, instruction)


def is_zero(kernel, operand):
    makers = through_moves(kernel, operand)
    return operand in ZEROS or bool(makers) and all(s.name == "mov" and s.ops[1] in ZEROS for s in makers)


def begins_at_zero(kernel, variables, instruction, new):
    """The value of a sum to which a team adds is zero: fewer of its bits are loaded, or it is subtracted."""
    load = instruction
    if instruction.name == "add" and len(new) == 1 and new[0].name == "sub":
        makers = makers_of(kernel, instruction.ops[2])
        load = makers[0] if len(makers) == 1 else instruction
    elif len(new) != 1 or new[0].ops != instruction.ops:
        return False
    accesses = barriers.Accesses(kernel, variables)
    if not is_plain(accesses, load, "ld", 1):
        return False
    stores = [s for block in accesses.blocks for s in block.body if is_plain(accesses, s, "st", 0) and s.ops[0] == load.ops[1]]
    seen = [s for s in stores if any(other is load for other in sees(accesses, s))]
    return bool(seen) and all(is_zero(kernel, s.ops[1]) for s in seen)
