"""equivalent.py - changes that no program can notice, by rules about the PTX; listed.py has others."""
import functools
import re

import addresses
import barriers
import chunks
import flow
import shared
import warps
from changes import FLOATS, NUMBER
from chunks import asks_for_more_of_its_chunk
from registers import OF_BLOCKS, bounds_a_block, is_of_block, made_of, makers_of, reached, uses


def unread(kernel):
    """Ids of stores to shared variables that nothing reads, such as the state of OpenMP's teams."""
    stores, others = {}, set()
    for s in (s for s in kernel.statements if hasattr(s, "ops")):
        plain = s.name == "st" and "shared" in s.mods and re.match(r"\[([\w$.]+)(\+\d+)?\]$", s.ops[0])
        if plain and plain.group(1) not in kernel.registers:
            stores.setdefault(plain.group(1), []).append(id(s))
        others.update(word for operand in (s.ops[1:] if plain else s.ops) for word in re.findall(r"[%\w$.]+", operand))
    return {number for name, numbers in stores.items() if name not in others for number in numbers}


@functools.cache
def needed(kernel):
    """Ids of instructions on whose results a store, a branch or a meeting of lanes depends."""
    makers, dead = {}, unread(kernel)
    for s in kernel.statements:
        if hasattr(s, "ops"):
            for register in flow.writes(s, kernel.registers):
                makers.setdefault(register, []).append(s)
    work = [s for s in kernel.statements if hasattr(s, "ops") and id(s) not in dead
            and not (flow.writes(s, kernel.registers) and s.name not in flow.MEETINGS | {"atom", "call"})]
    found = {id(s) for s in work}
    while work:
        for register in flow.reads(work.pop(), kernel.registers):
            for s in makers.get(register, []):
                if id(s) not in found:
                    found.add(id(s))
                    work.append(s)
    return found


def the_larger(kernel, instruction, new):
    """A comparison of two floats that chooses between these two: if it differs, they are equal."""
    if instruction.name != "setp" or instruction.mods[-1] not in FLOATS or len(new) != 1 or new[0].ops != instruction.ops:
        return False
    pair = set(instruction.ops[1:3])
    return all(s.name == "selp" and set(s.ops[1:3]) == pair for s in uses(kernel, instruction.ops[0]))


def adds_nothing(kernel, instruction, new):
    """An addition or subtraction of zero, or of a number that only a second turn changes from zero."""
    if instruction.name not in ("add", "sub") or len(new) != 1 or new[0].name == instruction.name or new[0].ops != instruction.ops:
        return False
    first = [s for s in makers_of(kernel, instruction.ops[2]) if id(s) not in of_second_turns(kernel)]
    return instruction.ops[2] == "0" or bool(first) and all(s.name == "mov" and not s.guard and s.ops[1] == "0" for s in first)


def adds_a_zero(kernel, instruction, new):
    """A float and zero, added or subtracted: -0 and 0 are added to others next."""
    return instruction.name in ("add", "sub") and instruction.ops[2] == "0f00000000" and len(new) == 1 and new[0].ops == instruction.ops


def narrow_reads(kernel, instruction, new):
    """A load of fewer bits, of which no more are used."""
    if instruction.name != "ld" or len(new) != 1 or new[0].name != "ld" or new[0].ops != instruction.ops:
        return False
    bits = int(new[0].mods[-1][1:])
    return all(s.name == "cvt" and s.mods[-2] == "u%d" % bits for s in uses(kernel, instruction.ops[0]))


def waits_for_nothing(kernel, instruction, new):
    """A wait of cp.async: all copies before it have been waited for already."""
    if instruction.name != "cp" or new:
        return False
    home = next(block for block in flow.make_blocks(kernel) if instruction in block.body)
    seen, work = set(), [(home, home.body[: home.body.index(instruction)])]
    while work:
        block, statements = work.pop()
        last = next((s for s in reversed(statements) if s.name == "cp" and ({"ca", "cg", "wait_all"} & set(s.mods))), None)
        if last and "wait_all" not in last.mods:
            return False
        for source in block.sources if not last else []:
            if source not in seen:
                seen.add(source)
                work.append((source, source.body))
    return True


def asks_for_long_numbers(kernel, instruction):
    """Whether it compares with zero the upper halves of numbers that are divided."""
    makers = makers_of(kernel, instruction.ops[1]) if instruction.name == "setp" and instruction.ops[2] == "0" else []
    return bool(makers) and all(s.name == "and" and s.ops[2] == "-4294967296" for s in makers)


def looks_for_long_numbers(kernel, instruction, new):
    """Whether a division is one of numbers of more than 32 bits: short ones may be divided as long ones are."""
    if instruction.name == "bra" and instruction.guard and len(new) == 1 and new[0].ops == instruction.ops:
        makers = makers_of(kernel, instruction.guard[0])
        return bool(makers) and all(asks_for_long_numbers(kernel, s) for s in makers)
    return asks_for_long_numbers(kernel, instruction) and (new[0].mods[0] == "lt" or new[0].ops[2] in ("1", "-1"))  # which no upper half is


def asks_for_one(kernel, instruction, new):
    """Whether there is one thread or one block: there are no fewer."""
    return (instruction.name == "setp" and instruction.ops[2] == "1" and (instruction.mods[0], new[0].mods[0]) == ("eq", "le")
            and made_of(kernel, instruction.ops[1]) in ({"%ntid.x"}, {"%nctaid.x"}))


def quotient_of_nothing(kernel, register, difference):
    """What is in a register, made of a difference by additions of numbers and shifts, if the difference is 0; None if it is made otherwise."""
    makers = makers_of(kernel, register)
    s = makers[0] if len(makers) == 1 else None
    if s is None or s is difference:
        return 0 if s else None
    value = quotient_of_nothing(kernel, s.ops[1], difference) if s.name in ("add", "shr") and NUMBER.match(s.ops[2]) else None
    return None if value is None else value + int(s.ops[2]) if s.name == "add" else value >> int(s.ops[2])


def asks_for_an_element(kernel, instruction, new):
    """Whether there are elements, first < count, or its contrary, takes count = first, too: the next block asks at once whether a number is at
    least count - first, as all are, and goes to where all would have gone."""
    if instruction.name != "setp" or instruction.mods != ["le", "u64"]:
        return False
    predicate, count, first = instruction.ops
    if not (new[0].mods[0] == "lt" if len(new) == 1 else new[0].name == "add" and new[0].ops[1:] == [count, "1"]):
        return False
    blocks = flow.make_blocks(kernel)
    home = next(block for block in blocks if instruction in block.body)
    if not home.end or home.end.guard != (predicate, False) or len(uses(kernel, predicate)) != 1:
        return False
    end, behind = home.targets[0], home.targets[-1]
    guard = behind.end.guard if behind.end and behind.targets[0] is end else None
    asks = makers_of(kernel, guard[0]) if guard and not guard[1] else []
    made = [flow.writes(s, kernel.registers) for s in behind.body]
    if len(asks) != 1 or asks[0].mods != ["ge", "u64"] or not all(made) or set(sum(made, [])) & flow.live_at_start(blocks, kernel.registers)[end]:
        return False
    return any(s.name == "sub" and s.ops[1:] == [count, first] and quotient_of_nothing(kernel, asks[0].ops[2], s) == 0 for s in behind.body)


def asks_for_none(kernel, instruction, new):
    """Whether a size among the parameters is none takes 0 for one more, or asks for -1. Tests have their say first: they would launch the kernel
    for no row, if a program did."""
    if instruction.name != "setp" or not "parameter" in made_of(kernel, instruction.ops[1]) <= {"parameter", "number"}:
        return False
    if instruction.mods[0] in ("eq", "ne") and instruction.ops[2] == "0":
        return len(new) == 1 and new[0].mods == instruction.mods and new[0].ops[1:] == [instruction.ops[1], "-1"]
    if instruction.mods != ["lt", "s32"] or instruction.ops[2] != "1":
        return False
    return new[0].ops[1:] == [instruction.ops[1], "0"] if len(new) == 1 else new[0].name == "add" and new[0].ops[1:] == [instruction.ops[1], "1"]


def keeps_the_bits(kernel, instruction, new):
    """A mask has other bits where a shift has left zeros."""
    if instruction.name != "and" or len(new) != 1 or not NUMBER.match(instruction.ops[2]) or not NUMBER.match(new[0].ops[2]):
        return False
    makers = makers_of(kernel, instruction.ops[1])
    zeros = [int(s.ops[2]) for s in makers if s.name == "shl" and NUMBER.match(s.ops[2])]
    return bool(zeros) and len(zeros) == len(makers) and 0 <= int(instruction.ops[2]) ^ int(new[0].ops[2]) < 1 << min(zeros)


def with_equal_case(instruction, new):
    """A comparison of integers, first < count or its contrary, that has its equal case, too, or one more as its count."""
    if instruction.name != "setp":
        return False
    test = instruction.mods[0]
    if len(new) == 1:
        return (test, new[0].mods[0]) in (("lt", "le"), ("ge", "gt"))
    return test in ("lt", "ge") and len(new) == 2 and new[0].name == "add" and new[0].ops[1:] == [instruction.ops[2], "1"]


def one_more_turn(kernel, instruction, new):
    """A block of an elementwise kernel takes one more turn, or its first one, whose elements are all beyond the end: OpenMP looks at
    that again."""
    if not with_equal_case(instruction, new) or any("shared" in getattr(s, "mods", ()) for s in kernel.statements):
        return False
    block = next(b for b in flow.make_blocks(kernel) if instruction in b.body)
    return (any(barriers.is_barrier(s) for s in block.body) or is_of_block(kernel, instruction.ops[1])
            or has_an_element_for_each_thread(kernel) and bounds_a_block(kernel, instruction.ops[1]))


def has_an_element_for_each_thread(kernel):
    """Whether block b begins at element 128 b with one element for each thread, as OpenMP distributes loops."""
    return any(s.name == "mul" and s.ops[2] == "128" and made_of(kernel, s.ops[1]) == {"%ctaid.x"} for s in kernel.statements if hasattr(s, "ops"))


def asks_for_a_second_turn(kernel, s):
    """Whether a thread's next element is before the block's end, in such a kernel."""
    return (s.name == "setp" and s.mods[0] == "lt" and bounds_a_block(kernel, s.ops[2]) and {"%tid.x", "%ntid.x"} <= made_of(kernel, s.ops[1]))


def no_second_turn(kernel, instruction, new):
    """An element still further is beyond the end, too."""
    if instruction.name != "setp" or len(new) != 2 or new[1].ops[2] != instruction.ops[2]:
        return False
    home = next(block for block in flow.make_blocks(kernel) if instruction in block.body)
    return (asks_for_more_of_its_chunk(kernel, instruction, home.body)
            or asks_for_a_second_turn(kernel, instruction) and has_an_element_for_each_thread(kernel))


def goes_past_its_chunk(kernel, instruction, new):
    """A thread's next lane is still further beyond the end of its chunk."""
    if instruction.name != "add" or instruction.ops[0] != instruction.ops[1] or len(new) != 1 or new[0].ops[:2] != instruction.ops[:2]:
        return False
    if not NUMBER.match(new[0].ops[2]) or instruction.ops[2] != "1" or int(new[0].ops[2]) < 1:
        return False
    home = next(block for block in flow.make_blocks(kernel) if any(s is instruction for s in block.body))
    return all(s is instruction or asks_for_more_of_its_chunk(kernel, s, home.body) for s in reached(kernel, instruction))


def without_further_turns(kernel):
    """Blocks without the ways back that no thread takes; None if there are none of these."""
    blocks, own, found = flow.make_blocks(kernel), has_an_element_for_each_thread(kernel), False
    for block in blocks:
        guard = block.end.guard if block.end and block.end.name == "bra" else None
        makers = makers_of(kernel, guard[0]) if guard and not guard[1] else []
        if len(makers) == 1 and (asks_for_more_of_its_chunk(kernel, makers[0], block.body) or own and asks_for_a_second_turn(kernel, makers[0])):
            block.targets, found = block.targets[1:], True
    return blocks if found else None


@functools.cache
def of_second_turns(kernel):
    """Ids of instructions whose results nothing but a second turn reads."""
    found, blocks = set(), without_further_turns(kernel)
    changed = blocks is not None
    while changed:  # first results without a reader, then results whose only readers are already in FOUND
        changed, live = False, flow.live_at_start(blocks, kernel.registers)
        for block in blocks:
            read = set().union(*[live[target] for target in block.targets]) if block.targets else set()
            read |= set(flow.reads(block.end, kernel.registers)) if block.end else set()
            kept = []
            for s in reversed(block.body):
                made = flow.writes(s, kernel.registers)
                if made and not read & set(made) and s.name not in flow.MEETINGS | {"atom", "call"}:
                    found.add(id(s))
                    changed = True
                    continue
                read = (read if s.guard else read - set(made)) | set(flow.reads(s, kernel.registers))
                kept.append(s)
            block.body = kept[::-1]
    return found


def is_for_a_second_turn(kernel, instruction, new):
    """Nothing but a second turn reads the result."""
    if instruction.name in flow.ENDS | flow.MEETINGS | {"atom", "call"} or not flow.writes(instruction, kernel.registers):
        return False
    return id(instruction) in of_second_turns(kernel)


def goes_on_to_the_end(kernel, instruction, new):
    """The last element of a block's turn less the number of elements in a block, or in a turn of all blocks: if it is below 0, so a large number,
    the turn has all elements up to the last one; otherwise none. So block 0 has all of them in its first turn, or the second turn has."""
    return (instruction.name == "add" and new[0].name == "sub" and all(s.name == "min" for s in uses(kernel, instruction.ops[0]))
            and "%nctaid.x" in made_of(kernel, instruction.ops[2]) <= OF_BLOCKS - {"%ctaid.x"})


def one_more_of_a_chunk(kernel, instruction, new):
    """A block's last row, its first one and a number of rows less one, without the "less one", or with one more: min has the last row of all."""
    if instruction.name != "add" or instruction.ops[2] != "-1" or len(new) != 1 or new[0].name == "add" and new[0].ops[2] != "0":
        return False
    ends = reached(kernel, instruction)
    if ends and bounds_a_block(kernel, instruction.ops[0]) and all(s.name == "min" for s in ends):
        return True
    return bool(ends) and all(
        s.name == "add" and bounds_a_block(kernel, s.ops[0]) and all(t.name == "min" for t in uses(kernel, s.ops[0])) for s in ends)


def is_remainder(kernel, register):
    """Whether a register is n - n / blocks * blocks: so many of the first blocks have one element more."""
    rest = makers_of(kernel, register)
    product = makers_of(kernel, rest[0].ops[2]) if len(rest) == 1 and rest[0].name == "sub" else []
    return len(product) == 1 and product[0].name == "mul" and any(made_of(kernel, o) == {"%nctaid.x"} for o in product[0].ops[1:])


def gives_one_more(kernel, instruction, new):
    """A block more is taken to have an element of the remainder: its first element is the same."""
    if instruction.name != "setp" or made_of(kernel, instruction.ops[2]) != {"%ctaid.x"} or not is_remainder(kernel, instruction.ops[1]):
        return False
    if len(new) == 1:
        return (instruction.mods[0], new[0].mods[0]) in (("gt", "ge"), ("le", "lt"))
    return new[0].name == "add" and new[0].ops[1:] == [instruction.ops[1], "1"]


def gives_more_of_a_remainder(kernel, instruction, new):
    """The remainder is larger: block b has n / blocks + 1 elements if b is less, and begins where block b - 1 ends, whatever the remainder is."""
    if instruction.name == "sub":  # 0 less n is a large number, and 0 if n is
        return is_remainder(kernel, instruction.ops[0]) and (new[0].name == "add" or new[0].ops[1:] == instruction.ops[:0:-1])
    if instruction.name != "mul" or len(new) != 2 or new[0].ops[2] != "-1" or made_of(kernel, new[0].ops[1]) != {"%nctaid.x"}:
        return False
    return all(s.name == "sub" and is_remainder(kernel, s.ops[0]) for s in uses(kernel, instruction.ops[0]))


def never_ends_a_block(kernel, instruction, new):
    """The last row of all, with which a block's last one is compared, is one more: blocks have n / blocks rows, or one more if the remainder
    says so, so the last one ends with row n - 1."""
    if instruction.name != "min" or len(new) != 2 or new[1].ops[1] != instruction.ops[1] or not bounds_a_block(kernel, instruction.ops[1]):
        return False
    ends, all_rows = makers_of(kernel, instruction.ops[1]), makers_of(kernel, instruction.ops[2])
    if [s.name for s in ends + all_rows] != ["add", "add"] or all_rows[0].ops[2] != "-1":
        return False
    parts = [s for o in ends[0].ops[1:] for s in makers_of(kernel, o) if s.name == "div"]
    return any(s.ops[1] == all_rows[0].ops[1] and made_of(kernel, s.ops[2]) == {"%nctaid.x"} for s in parts)


def is_in_a_loop(kernel, instruction):
    return any(any(s is instruction for block in loop for s in block.body) and (len(loop) > 1 or loop[0] in loop[0].targets)
               for loop in flow.components(flow.make_blocks(kernel)))


def the_next_block_has_it(kernel, instruction, new):
    """A block takes more rows or elements, which the others have, too: both compute it from arrays that none of them changes. If one
    array is read and changed under two names, they do not: so tests have their say first. In the loop over its rows a block with shared
    memory bounds a row's elements: their sum would have one of the next row's, too."""
    one_more = instruction.name == "min" and len(new) == 2 and new[1].ops[2] == instruction.ops[2]
    more = (one_more or goes_on_to_the_end(kernel, instruction, new)) and bounds_a_block(kernel, instruction.ops[1])
    if not more and not any(test(kernel, instruction, new) for test in (one_more_of_a_chunk, gives_one_more)):
        return False
    if any("shared" in getattr(s, "mods", ()) for s in kernel.statements) and is_in_a_loop(kernel, instruction):
        return False
    if any(s.name in ("atom", "red", "call") for s in kernel.statements if hasattr(s, "ops")):
        return False
    accesses, read, changed = barriers.Accesses(kernel, set()), set(), set()
    for s in kernel.statements:
        if getattr(s, "name", "") in ("ld", "st") and not {"param", "shared", "local"} & set(s.mods):
            (read if s.name == "ld" else changed).update(accesses.arrays(s.ops[s.name == "ld"]))
    return barriers.ANY not in read | changed and not read & changed


def past_nothing(block):
    """The block, or the first one behind it with instructions, if no other way leads there."""
    while not block.body and len(block.targets) == 1 and len(block.targets[0].sources) == 1:
        block = block.targets[0]
    return block


def meets_at_once(block, statements, onward):
    """Whether a barrier is the first of the statements, or of the blocks ONWARD, that meets other threads or memory; a kernel's beginning and
    its end are one, too."""
    for _ in range(4):
        for s in statements:
            if barriers.is_barrier(s) or s.name in flow.MEETINGS | barriers.ACCESSES | {"atom", "red", "call"}:
                return barriers.is_barrier(s)
        near = onward(block)
        if not near:
            return not block.sources or bool(block.end) and block.end.name == "ret"
        if len(near) > 1:
            return False
        block = near[0]
        statements = block.body if onward(block) is block.targets else block.body[::-1]
    return False


def is_between_barriers(block):
    """Whether threads that do not take the block wait in a barrier in front of it and in one behind it."""
    if len(block.sources) != 1 or len(block.targets) != 1:
        return False
    source, target = block.sources[0], block.targets[0]
    while not source.body and len(source.sources) == 1:
        source = source.sources[0]
    return meets_at_once(target, target.body, lambda b: b.targets) and meets_at_once(source, source.body[::-1], lambda b: b.sources)


def stores_the_same(kernel, blocks, block):
    """Whether its stores, and their addresses, are the same in all of the block of threads: made of its number and of sizes, or, between barriers,
    of shared variables that it does not change."""
    changed = {s.ops[0] for s in block.body if s.name == "st"}
    own = set()  # registers that it has made the same

    def same(operand):
        words = re.findall(r"%[\w$.]+", operand)
        return all(w in own or w in OF_BLOCKS or w in kernel.registers and set() != made_of(kernel, w) <= OF_BLOCKS for w in words)

    for s in block.body:
        if s.guard or s.name in flow.MEETINGS | {"atom", "red", "call", "cp"}:
            return False
        plain = {"shared", "param"} & set(s.mods) and barriers.PLAIN.match(s.ops[s.name == "ld"])
        if s.name == "st":
            if not all(map(same, s.ops)) or not (plain or "global" in s.mods and is_between_barriers(block)):
                return False
        elif s.name == "ld":
            if plain and s.ops[1] not in changed and ("param" in s.mods or is_between_barriers(block)):
                own.update(flow.writes(s, kernel.registers))
        elif all(map(same, s.ops[1:])):
            own.update(flow.writes(s, kernel.registers))
    made = {r for s in block.body for r in flow.writes(s, kernel.registers)}
    live = flow.live_at_start(blocks, kernel.registers)
    return bool(changed) and not any(made & live[target] for target in block.targets)


def all_store_the_same(kernel, instruction, new):
    """All threads, or all others, in place of thread 0 alone, store values that are the same in all of the block."""
    blocks = flow.make_blocks(kernel)
    if instruction.name == "bra" and instruction.guard and len(new) == 1 and new[0].ops == instruction.ops:
        asks = makers_of(kernel, instruction.guard[0])
        guarded = [block for block in blocks if block.end is instruction]
    elif instruction.name == "setp" and (instruction.mods[0], new[0].mods[0]) in (("ne", "lt"), ("eq", "ge")):
        asks = [instruction]
        guarded = [block for block in blocks if block.end and block.end.guard == (instruction.ops[0], False)]
        if len(uses(kernel, instruction.ops[0])) != len(guarded):
            return False
    else:
        return False
    if len(asks) != 1 or asks[0].name != "setp" or asks[0].ops[2] != "0" or made_of(kernel, asks[0].ops[1]) != {"%tid.x"}:
        return False
    taken = {"eq": 0, "ne": 1}.get(asks[0].mods[0])  # thread 0's target
    return taken is not None and bool(guarded) and all(
        block.end.guard[1] is False and len(block.targets) == 2 and stores_the_same(kernel, blocks, past_nothing(block.targets[taken])) for block in guarded)


REASONS = [
    ("what is beyond the end is looked at again", one_more_turn),
    ("a block has an element for each thread", no_second_turn),
    ("threads take no second turn", is_for_a_second_turn),
    ("a chunk has a lane", goes_past_its_chunk),
    ("a chunk begins and ends with a lane", lambda kernel, *change: chunks.begins_past_its_chunk(kernel, flow.make_blocks(kernel), *change)),
    ("lane and end are equal", lambda kernel, *change: chunks.swaps_equal_numbers(kernel, flow.make_blocks(kernel), *change)),
    ("whether there is a lane is asked again", lambda kernel, *change: chunks.looks_again(kernel, flow.make_blocks(kernel), *change)),
    ("all threads store the same", all_store_the_same),
    ("both are equal where it differs", the_larger),
    ("it adds zero", adds_nothing),
    ("the other bits are not used", narrow_reads),
    ("the other bits are zero", keeps_the_bits),
    ("no copy is under way", waits_for_nothing),
    ("no number has more than 32 bits", looks_for_long_numbers),
    ("teams have whole warps", warps.looks_for_the_last_warp),
    ("there are no fewer than one", asks_for_one),
    ("no address is below zero", addresses.asks_for_an_address),
    ("no address of an element is odd", addresses.asks_for_a_multiple),
    ("each block asks for its first element", asks_for_an_element),
]

LATE_REASONS = [
    ("a block begins where the one before it ends", gives_more_of_a_remainder),
    ("blocks end where the next ones begin", never_ends_a_block),
    ("the next block has that row, too, and stores the same", the_next_block_has_it),
    ("no kernel is launched for no row or column", asks_for_none),
    ("a zero has another sign", adds_a_zero),
    ("the loop has turns", chunks.belongs_to_no_turns),
    ("an element is before the end", chunks.asks_for_the_first_of_some),
]


def is_for_own_elements(module, kernel, instruction, new):
    """A barrier keeps global memory apart at most, each element of which has its own thread. Tests have their say first: the checker reports
    two threads at one."""
    return not new and barriers.is_barrier(instruction) and barriers.keeps_nothing_apart(kernel, shared_of(module, kernel), instruction, own_elements=True)


def shared_of(module, kernel):
    """Names of the shared variables that a kernel uses."""
    words = " ".join(o for s in kernel.statements for o in getattr(s, "ops", ()))
    return {v.name for v in module.variables + kernel.variables if v.space == "shared" and v.name in words}


def seen(module, kernel, instruction, new):
    """The reason why no program can notice that NEW stand in INSTRUCTION's place, or None."""
    if not new and barriers.is_barrier(instruction):
        return "it keeps nothing apart" if barriers.keeps_nothing_apart(kernel, shared_of(module, kernel), instruction) else None
    makes = flow.writes(instruction, kernel.registers) or instruction.name == "st" and new[-1].ops[0] == instruction.ops[0]
    if instruction.name not in flow.ENDS and makes and id(instruction) not in needed(kernel):
        return "nothing reads what it makes"
    for reason, test in REASONS:
        if test(kernel, instruction, new):
            return reason
    return None


def supposed(module, kernel, instruction, new):
    """The reason why no test will notice NEW, if none has."""
    if is_for_own_elements(module, kernel, instruction, new):
        return "each element that it keeps apart has its own thread"
    if shared.is_overwritten(kernel, shared_of(module, kernel), instruction, new):
        return "another store comes before each load"
    if shared.begins_at_zero(kernel, shared_of(module, kernel), instruction, new):
        return "a sum begins at zero"
    return next((reason for reason, test in LATE_REASONS if test(kernel, instruction, new)), None)
