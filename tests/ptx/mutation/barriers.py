"""barriers.py - barriers that keep nothing apart: between the accesses in front of one, back to other barriers, and those behind
it there are no two of the same array, one of them a store, unless both are of thread 0.

An array is a shared variable, or the memory of a pointer among the kernel's parameters: different ones are taken to be
different, as the library's functions have it. Atomic operations need no barrier. Nothing here proves that each element of
global memory has its own thread: if a barrier keeps nothing else apart, tests and the checker have their say first.
"""
import re

import flow

PLAIN = re.compile(r"\[[\w$.]+(\+\d+)?\]$")  # the address of a variable
ACCESSES = {"ld", "st", "cp", "ldmatrix"}
ANY = "?"
GLOBAL = "global memory"  # some array of a parameter


class Accesses:
    """Of a kernel: for each access (array or ANY, whether it stores, whether thread 0 is alone)."""

    def __init__(self, kernel, shared):
        self.kernel, self.shared = kernel, shared
        self.makers = {}
        for s in kernel.statements:
            if hasattr(s, "ops"):
                for register in flow.writes(s, kernel.registers):
                    self.makers.setdefault(register, []).append(s)
        self.kept = self.numbers_kept()
        self.blocks = flow.make_blocks(kernel)
        self.alone = {block for block in self.blocks if self.is_alone(block)}

    def numbers_kept(self):
        """For each shared variable whose address is in no register: the operands that are stored in it."""
        kept, elsewhere = {}, set()
        for s in (s for s in self.kernel.statements if hasattr(s, "ops")):
            for k, operand in enumerate(s.ops):
                for name in self.shared & set(re.findall(r"[\w$.]+", operand)):
                    if PLAIN.match(operand) and s.name == "st" and k == 0:
                        kept.setdefault(name, []).extend(s.ops[1:])
                    elif not (PLAIN.match(operand) and s.name == "ld"):
                        elsewhere.add(name)
        return {name: operands for name, operands in kept.items() if name not in elsewhere}

    def of_thread_0(self, register, wanted):
        """Whether the predicate says that the thread is 0 (WANTED "eq") or is not ("ne"). A reduction's says so, or that there is one
        thread."""
        makers = self.makers.get(register, [])
        if wanted == "eq" and len(makers) > 1 and all(s.name == "mov" for s in makers):
            return all(self.where_one_thread_is(s) if self.holds_always(s.ops[1]) else self.of_thread_0(s.ops[1], wanted) for s in makers)
        if len(makers) != 1 or makers[0].name != "setp" or makers[0].mods[0] not in ("eq", "ne") or makers[0].ops[2] != "0":
            return False
        index = self.makers.get(makers[0].ops[1], [])
        if len(index) == 1 and index[0].name == "mov" and index[0].ops[1] == "%tid.x":
            return makers[0].mods[0] == wanted
        return makers[0].mods[0] != wanted and bool(index) and all(map(self.marks_thread_0, index))

    def marks_thread_0(self, s):
        """Whether a statement makes 1 in thread 0, also if it is the only one, and 0 in others."""
        if s.name == "mov" and s.ops[1] in self.kernel.registers:
            makers = self.makers.get(s.ops[1], [])
            return len(makers) == 1 and makers[0].name == "selp" and self.marks_thread_0(makers[0])
        if s.name == "selp":
            return s.ops[1:3] == ["1", "0"] and self.of_thread_0(s.ops[3], "eq")
        return s.name == "mov" and s.ops[1] == "1" and self.where_one_thread_is(s)

    def holds_always(self, predicate):
        makers = self.makers.get(predicate, [])
        return predicate == "-1" or len(makers) == 1 and makers[0].name == "mov" and makers[0].ops[1] == "-1" and not makers[0].guard

    def where_one_thread_is(self, statement):
        """Whether a branch on the number of threads being 1 ends the statement's block."""
        end = next(block.end for block in self.blocks if any(s is statement for s in block.body))
        asks = self.makers.get(end.guard[0], []) if end and end.guard and not end.guard[1] else []
        if len(asks) != 1 or asks[0].name != "setp" or asks[0].mods[0] != "eq" or asks[0].ops[2] != "1":
            return False
        number = self.makers.get(asks[0].ops[1], [])
        while len(number) == 1 and number[0].name == "cvt":
            number = self.makers.get(number[0].ops[1], [])
        return len(number) == 1 and number[0].ops[1] == "%ntid.x"

    def is_alone(self, block, depth=0):
        if len(block.sources) != 1 or depth > 20:
            return False
        source = block.sources[0]
        guard = source.end.guard if source.end else None
        if guard and len(source.targets) == 2 and source.targets[0] is not source.targets[1]:
            taken = source.targets[0] is block
            if self.of_thread_0(guard[0], "eq" if taken != guard[1] else "ne"):
                return True
        return self.is_alone(source, depth + 1)

    def arrays(self, operand, seen=None):
        """Names of the memory that an address may lie in: a number that is loaded is an index, if there is a name beside it. Without
        one, an address that is made of parameters and numbers alone is one of the parameters, and no shared variable."""
        words = [w for w in operand.strip("[]").replace("+", " ").split() if not w.lstrip("-").isdigit()]
        found, work, parameters, loaded = set(), list(words), set(), False
        seen = set() if seen is None else seen  # of addresses that a loop moves on
        while work:
            word = work.pop()
            if word in seen:
                continue
            seen.add(word)
            if word in self.shared:
                found.add(word)
            elif word in self.kernel.registers:
                for s in self.makers.get(word, []):
                    if s.name == "cvta":
                        made = self.pointers(s.ops[1], seen)
                        found |= {GLOBAL} if "global" in s.mods and made == {ANY} else made
                        continue
                    if s.name == "ld":
                        name = s.ops[1].strip("[]").split("+")[0]
                        if "param" in s.mods:
                            parameters.add(s.ops[1])
                        elif name in self.kept:
                            work += self.kept[name]
                        else:
                            loaded = True
                        continue
                    work += [w for o in s.ops[1:] for w in o.strip("[]").replace("+", " ").split()]
        return found or ({ANY} if loaded else parameters) or {ANY}

    def pointers(self, operand, seen):
        """Of cvta: the parameter, or the shared variable."""
        makers = self.makers.get(operand, [])
        if operand in self.shared:
            return {operand}
        if len(makers) == 1 and makers[0].name == "ld" and "param" in makers[0].mods:
            return {makers[0].ops[1]}
        return self.arrays(operand, seen)

    def of(self, s, block):
        stores = s.name in ("st", "cp")
        addresses = [o for o in s.ops if o.startswith("[")]
        found = set()
        for k, operand in enumerate(addresses):
            for array in self.arrays(operand):
                array = GLOBAL if "global" in s.mods and array == ANY else array
                found.add((array, stores and k == 0, block in self.alone))
        return found


def is_barrier(s):
    return s.name in ("bar", "barrier") and "warp" not in s.mods


def around(accesses, barrier):
    """(accesses in front of it, accesses behind it)"""
    home = next(block for block in accesses.blocks if any(s is barrier for s in block.body))

    def walk(block, statements, onward):
        found, seen, work = set(), set(), [(block, statements)]
        while work:
            block, statements = work.pop()
            stopped = False
            for s in statements:
                if is_barrier(s):
                    stopped = True
                    break
                if s.name in ACCESSES and not {"param", "local"} & set(s.mods):
                    found |= accesses.of(s, block)
            if not stopped:
                for near in onward(block):
                    if near not in seen:
                        seen.add(near)
                        work.append((near, near.body if onward is after else near.body[::-1]))
        return found

    after, before = (lambda b: b.targets), (lambda b: b.sources)
    at = next(k for k, s in enumerate(home.body) if s is barrier)
    return walk(home, home.body[:at][::-1], before), walk(home, home.body[at + 1 :], after)


def may_be_one(array, other, shared):
    """Whether two names may be of the same memory."""
    return array == other or ANY in (array, other) or GLOBAL in (array, other) and not {array, other} & shared


def keeps_nothing_apart(kernel, shared, barrier, own_elements=False):
    """OWN_ELEMENTS: each element of global memory is taken to have its own thread. Then a name that is not known may still be of shared
    memory, if the kernel has some."""
    front, behind = around(Accesses(kernel, shared), barrier)
    for array, stores, alone in front:
        for other, stores_too, alone_too in behind:
            conflict = (stores or stores_too) and not (alone and alone_too) and may_be_one(array, other, shared)
            if conflict and not (own_elements and not ({array, other} & (shared | {ANY}) if shared else ())):
                return False
    return True
