"""flow.py - a kernel as basic blocks: their targets, the order in which parted lanes go on, registers that live across.

Lanes of a warp that part wait at blocks; the first waiting block in this order runs next. Every block of a loop stands before
all blocks behind the loop, so lanes meet again as early as the code allows.
"""
import re

from text import Instruction, Label, NotUnderstood

ENDS = {"bra", "brx", "ret", "exit", "trap"}
NO_RESULT = {"st", "red", "bar", "barrier", "membar", "fence", "nanosleep", "prefetch", "prefetchu", "discard", "cp", "trap", "ret",
             "exit", "bra", "brx", "brkpt"}
# Lanes wait here for others of their warp.
MEETINGS = {"bar", "barrier", "shfl", "vote", "match", "redux", "mma", "ldmatrix"}


class Block:
    def __init__(self, label=None):
        self.label = label
        self.body = []
        self.end = None  # the last instruction, if it goes elsewhere
        self.targets = []  # blocks; the one behind comes last
        self.sources = []
        self.meets = None  # the instruction at which lanes meet: the block's first one


def writes(instruction, registers):
    if instruction.name in NO_RESULT or not instruction.ops:
        return []
    return [r for r in re.findall(r"%?[\w$]+", instruction.ops[0]) if r in registers]


def reads(instruction, registers):
    found = [instruction.guard[0]] if instruction.guard else []
    operands = instruction.ops if instruction.name in NO_RESULT else instruction.ops[1:]
    for operand in operands:
        found += [r for r in re.findall(r"%?[\w$]+", operand) if r in registers]
    if instruction.guard:  # lanes without it keep the value
        found += writes(instruction, registers)
    return found


def whole_warp(instruction):
    """Whether it waits for all lanes that have not ended, so that all of them are there behind it."""
    if instruction.name in ("bar", "barrier") and "warp" not in instruction.mods:
        return True
    if instruction.name in ("mma", "ldmatrix"):
        return True
    return instruction.ops[-1] in ("-1", "0xffffffff", "0xFFFFFFFF", "4294967295")


def make_blocks(kernel):
    blocks = [Block()]
    together = False  # all lanes are here
    for statement in kernel.statements:
        block = blocks[-1]
        if isinstance(statement, Label):
            if re.match(r"\$L__(tmp|func)", statement.name):
                continue
            blocks.append(Block(statement.name))
            together = False
            continue
        if block.end:
            block = Block()
            blocks.append(block)
            together = False
        if statement.name in MEETINGS:
            if statement.guard:
                raise NotUnderstood("a guard of " + statement.text)
            if not (together and whole_warp(statement)):
                if block.body or block.meets:
                    block = Block()
                    blocks.append(block)
                block.meets = statement
            together = whole_warp(statement)
        if statement.name in ENDS:
            if statement.name == "brx" and statement.guard:
                raise NotUnderstood("a guard of " + statement.text)
            block.end = statement
        else:
            block.body.append(statement)
    return link(kernel, [b for b in blocks if b.body or b.end or b.label])


def link(kernel, blocks):
    by_label = {block.label: block for block in blocks if block.label}
    for i, block in enumerate(blocks):
        end = block.end
        if end and end.name == "bra":
            block.targets.append(by_label[end.ops[0]])
        elif end and end.name == "brx":
            block.targets += [by_label[name] for name in kernel.tables[end.ops[1]]]
        if not end or end.guard:
            if i + 1 == len(blocks):
                raise NotUnderstood("a kernel without an end")
            block.targets.append(blocks[i + 1])
        for target in block.targets:
            target.sources.append(block)
    return blocks


def components(nodes):
    """Strongly connected components of NODES, predecessors first (Tarjan)."""
    inside, index, low, stack, stacked, found = set(nodes), {}, {}, [], set(), []

    def enter(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        stacked.add(node)
        work.append((node, iter([t for t in node.targets if t in inside])))

    for root in nodes:
        work = []
        if root not in index:
            enter(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    enter(target)
                    break
                if target in stacked:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found.append(stack[stack.index(node) :])
                    del stack[len(stack) - len(found[-1]) :]
                    stacked.difference_update(found[-1])
    return found[::-1]


def order(nodes):
    """NODES, the first of which is entered first, in an order with each behind its predecessors, but for ways back within
    loops (Bourdoncle's weak topological order)."""
    result = []
    for component in components(nodes):
        if len(component) == 1:
            result += component
            continue
        members = set(component)
        inside = [n for n in nodes if n in members]
        head = next((n for n in inside if any(s not in members for s in n.sources)), inside[0])
        result += [head] + order([n for n in inside if n is not head])
    return result


def live_at_start(blocks, registers):
    """For each block the registers that it or one behind it reads before they are written."""
    used, made, live = {}, {}, {}
    for block in blocks:
        used[block], made[block], live[block] = set(), set(), set()
        for instruction in block.body + ([block.end] if block.end else []):
            used[block].update(r for r in reads(instruction, registers) if r not in made[block])
            if not instruction.guard:
                made[block].update(writes(instruction, registers))
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            behind = set().union(*[live[t] for t in block.targets]) if block.targets else set()
            now = used[block] | (behind - made[block])
            if now != live[block]:
                live[block] = now
                changed = True
    return live
