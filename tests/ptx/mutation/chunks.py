"""chunks.py - loops over lanes, as OpenMP distributes them: a thread has one lane of each turn of its team, but asks whether
its chunk has more. Lane and chunk's end, min(lane, last), are made of the thread's number alike, so that they are equal. And
loops that have a turn."""
import flow
from changes import NUMBER
from registers import made_of, makers_of, through_moves, uses


def is_lane(kernel, register, seen=()):
    """Whether a register is the thread's number, plus teams of threads, or the last lane, if that is less."""
    makers = [] if register in seen else through_moves(kernel, register)
    return register in seen or bool(makers) and all(makes_lane(kernel, s, (*seen, register)) for s in makers)


def makes_lane(kernel, s, seen):
    if s.name == "add" and s.ops[2] in kernel.registers:
        teams = [o for o in s.ops[1:] if made_of(kernel, o) == {"%ntid.x"}]
        return len(teams) == 1 and all(o in teams or is_lane(kernel, o, seen) for o in s.ops[1:])
    if s.name == "min":
        own = [o for o in s.ops[1:] if "%tid.x" in made_of(kernel, o)]
        return len(own) == 1 and is_lane(kernel, own[0], seen)
    return s.name in ("mov", "cvt") and (s.ops[1] == "%tid.x" or s.name == "cvt" and is_lane(kernel, s.ops[1], seen))


def is_moved_lane(kernel, register, by):
    makers = through_moves(kernel, register)
    return bool(makers) and all(s.name == "add" and s.ops[2] == by and is_lane(kernel, s.ops[1]) for s in makers)


def before_first_turn(kernel, register):
    """Whether a register starts at the thread's number - 1."""
    return any(s.name == "add" and s.ops[2] == "-1" and made_of(kernel, s.ops[1]) == {"%tid.x"} for s in through_moves(kernel, register))


def asks_for_more_of_its_chunk(kernel, s, body):
    """Whether it asks if a thread's next lane is before the end of its chunk: lane + 1 < min(lane, last) + 1, or lane < min(lane, last), before
    or behind the addition of 1."""
    if s.name != "setp" or s.mods[0] != "lt" or s.ops[2] not in kernel.registers:
        return False
    steps = [t for t in body if t.name == "add" and t.ops[1:] == [s.ops[1], "1"]]
    if any(t.ops[0] == s.ops[1] for t in steps):
        return is_moved_lane(kernel, s.ops[2], "1") or is_lane(kernel, s.ops[2]) and before_first_turn(kernel, s.ops[1])
    moved = any(t.name == "mov" and t.ops == [s.ops[1], step.ops[0]] for step in steps for t in body)
    return moved and is_lane(kernel, s.ops[2]) and "%tid.x" in made_of(kernel, s.ops[1])


def questions(kernel, home):
    """Statements of a block that ask so."""
    return [s for s in home.body if asks_for_more_of_its_chunk(kernel, s, home.body)]


def begins_past_its_chunk(kernel, blocks, instruction, new):
    """A thread's number - 1, with which its lanes begin, is larger: it is compared with ends of chunks, which are no larger, and read by nothing
    else."""
    if instruction.name != "add" or instruction.ops[2] != "-1" or made_of(kernel, instruction.ops[1]) != {"%tid.x"}:
        return False
    if len(new) != 1 or new[0].ops[:2] != instruction.ops[:2] or new[0].name == "add" and int(new[0].ops[2]) < -1:
        return False
    asks = [s for block in blocks for s in questions(kernel, block)]
    seen, work = set(), [instruction.ops[0]]
    while work:
        register = work.pop()
        for s in uses(kernel, register) if register not in seen else ():
            if s.name in ("mov", "add") and not s.guard:
                work.append(s.ops[0])
            elif not any(s is question and s.ops[1] == register for question in asks):
                return False
        seen.add(register)
    return bool(asks)


def swaps_equal_numbers(kernel, blocks, instruction, new):
    """A lane and the end of its chunk in each other's place: they are equal."""
    if instruction.name != "setp" or len(new) != 1 or new[0].ops[1:] != instruction.ops[:0:-1] or new[0].mods != instruction.mods:
        return False
    return any(s is instruction for block in blocks for s in questions(kernel, block))


def looks_again(kernel, blocks, asks, new):
    """Whether a lane is before the end of its chunk + 1 takes the end + 1, too, or is asked with a larger one: where it leads, it is asked at
    once whether the lane is beyond the end, which leads back. A lane beyond its end is beyond the last one, so there is no further turn."""
    if asks.name not in ("add", "setp") or not new:
        return False
    if asks.name == "add" and asks.ops[2] == "1" and new[0].name == "add" and new[0].ops[1] == asks.ops[1] and NUMBER.match(new[0].ops[2]):
        used = uses(kernel, asks.ops[0])
        return int(new[0].ops[2]) > 1 and bool(used) and all(is_asked_again(kernel, blocks, s) for s in used)
    more = new[0].mods[0] == "le" and new[0].ops == asks.ops if len(new) == 1 else new[0].name == "add" and new[0].ops[1:] == [asks.ops[2], "1"]
    return more and is_asked_again(kernel, blocks, asks)


def is_asked_again(kernel, blocks, asks):
    home = next((block for block in blocks if any(s is asks for s in block.body)), None)
    if asks.name != "setp" or asks.mods[0] != "lt" or not home or not home.end or home.end.guard != (asks.ops[0], False):
        return False
    behind, ends = home.targets[0], makers_of(kernel, asks.ops[2])
    again = behind.body[0] if len(behind.body) == 1 and len(behind.targets) == 2 else None
    if not again or len(ends) != 1 or ends[0].name != "add" or ends[0].ops[2] != "1" or len(uses(kernel, asks.ops[0])) != 1:
        return False
    lane, end = asks.ops[1], ends[0].ops[1]
    return (again.name == "setp" and again.mods[0] == "gt" and again.ops[1:] == [lane, end] and behind.end.guard == (again.ops[0], False)
            and behind.targets[0] is home and is_lane(kernel, lane) and is_lane(kernel, end))


def asks_for_the_first_of_some(kernel, instruction, new):
    """Whether there is the first of some elements, i >= min(end, i + some), takes i > min(...): an element i of a loop is before its end."""
    if instruction.name != "setp" or instruction.mods[0] != "ge" or not (
            new[0].mods[0] == "gt" if len(new) == 1 else new[0].name == "add" and new[0].ops[1:] == [instruction.ops[2], "1"]):
        return False
    makers = makers_of(kernel, instruction.ops[2])
    return len(makers) == 1 and makers[0].name == "min" and any(
        s.name == "add" and s.ops[1] == instruction.ops[1] and s.ops[2].isdigit() for o in makers[0].ops[1:] for s in makers_of(kernel, o))


def belongs_to_no_turns(kernel, instruction, new):
    """A number that is read behind a loop only if the loop has had no turns: another one is set in front of the first turn. Sums have terms."""
    if instruction.name != "mov" or instruction.guard:
        return False
    blocks = flow.make_blocks(kernel)
    home = next(block for block in blocks if any(s is instruction for s in block.body))
    guard = home.end.guard if home.end and len(home.targets) == 2 else None
    asks = makers_of(kernel, guard[0]) if guard else []
    if len(asks) != 1 or asks[0].name != "setp" or asks[0].mods[0] != "eq" or asks[0].ops[2] != "0":
        return False
    copies = {instruction.ops[0]}
    for s in home.body[next(k for k, s in enumerate(home.body) if s is instruction) + 1 :]:
        if copies & set(flow.reads(s, kernel.registers)):
            if s.name != "mov" or s.guard:
                return False
            copies.add(s.ops[0])
    return not copies & flow.live_at_start(blocks, kernel.registers)[home.targets[int(not guard[1])]]
