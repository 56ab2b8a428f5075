"""programs.py - random structured kernels, and an interpreter that runs them thread by thread.

Branches, loops and tables are taken by values that differ between lanes; jumps leave several of them at once; some threads end
early; ballots and barriers stand at points that all others reach. Registers have short lives, so that they share places.
"""
import random
import struct

THREADS, BLOCKS, INPUTS = 44, 4, 4
WIDTH = {"h": 16, "r": 32, "w": 64, "p": 1}
COUNT = {"h": 12, "r": 30, "w": 16, "p": 12}


def low(x, kind):
    return x & ((1 << WIDTH[kind]) - 1)


def signed(x, kind):
    return x - (1 << WIDTH[kind]) if x >> (WIDTH[kind] - 1) else x


# name: (text of the instruction, its result) for a kind of register
def operations(kind):
    bits = WIDTH[kind]
    if kind == "p":
        return {"and.pred": lambda a, b: a & b, "or.pred": lambda a, b: a | b, "xor.pred": lambda a, b: a ^ b}
    table = {"add.s%d": lambda a, b: a + b, "sub.s%d": lambda a, b: a - b, "mul.lo.s%d": lambda a, b: a * b, "and.b%d": lambda a, b: a & b,
             "or.b%d": lambda a, b: a | b, "xor.b%d": lambda a, b: a ^ b, "min.u%d": min, "max.u%d": max,
             "min.s%d": lambda a, b: min(a, b, key=lambda x: signed(x, kind)), "max.s%d": lambda a, b: max(a, b, key=lambda x: signed(x, kind))}
    return {name % bits: function for name, function in table.items()}


OPERATIONS = {kind: operations(kind) for kind in WIDTH}
TESTS = {"eq.s": lambda a, b: a == b, "ne.s": lambda a, b: a != b, "lt.u": lambda a, b: a < b, "ge.u": lambda a, b: a >= b}


class Generator:
    """Makes statements, tuples of a kind and its operands (step, compound), and beside them their text."""

    def __init__(self, chance):
        self.chance, self.text, self.defined, self.labels = chance, [], set(), 0
        self.open = []  # (label behind it, label of the next turn or None) of statements that a jump may leave

    def say(self, words):
        self.text.append("    " + words)

    def label(self):
        self.labels += 1
        return self.labels

    def pick(self, kind):
        """A register that has a value."""
        return self.chance.choice(sorted(v for v in self.defined if v[0] == kind))

    def some(self, kind):
        """An operand: a register or a number."""
        if self.chance.random() < 0.75 or kind == "p":
            return self.pick(kind)
        return low(self.chance.choice((0, 1, 3, 7, 0x55, 0xFFFF, 0x80000000, self.chance.getrandbits(31))), "h" if kind == "h" else "r")

    @staticmethod
    def shown(operand):
        return "%" + operand if isinstance(operand, str) else str(operand)

    def assignment(self, target=None):
        kind = target[0] if target else self.chance.choice("rrrrwwhp")
        target = target or "%s%d" % (kind, self.chance.randrange(COUNT[kind]))
        guard = None
        if target in self.defined and self.chance.random() < 0.3:
            guard = (self.pick("p"), self.chance.random() < 0.5)
        form = self.chance.randrange(6)
        if kind == "p" and form > 1:
            source = self.chance.choice("rrwh")
            test = self.chance.choice(sorted(TESTS))
            a, b = self.pick(source), self.some(source)
            words, function, operands = "setp.%s%d" % (test, WIDTH[source]), TESTS[test], (a, b)
        elif kind != "p" and form == 0:
            source = self.chance.choice([k for k in "hrw" if k != kind])
            words, function, operands = "cvt.u%d.u%d" % (WIDTH[kind], WIDTH[source]), lambda a: a, (self.pick(source),)
        elif kind != "p" and form == 1:
            words, function = "selp.b%d" % WIDTH[kind], lambda a, b, c: a if c else b
            operands = (self.pick(kind), self.some(kind), self.pick("p"))
        elif kind != "p" and form == 2:
            amount = self.chance.randrange(20)
            if self.chance.random() < 0.5:
                words, function = "shl.b%d" % WIDTH[kind], lambda a, n: a << n
            else:
                words, function = "shr.u%d" % WIDTH[kind], lambda a, n: a >> n
            operands = (self.pick(kind), amount)
        else:
            name = self.chance.choice(sorted(OPERATIONS[kind]))
            words, function, operands = name, OPERATIONS[kind][name], (self.pick(kind), self.some(kind))
        self.say("%s%s %%%s, %s;" % ("@%s%%%s " % ("!" if guard[1] else "", guard[0]) if guard else "", words, target,
                                     ", ".join(self.shown(o) for o in operands)))
        self.defined.add(target)
        return ("set", target, guard, function, operands)

    def body(self, depth, statements):
        return [self.statement(depth) for _ in range(self.chance.randint(1, statements))]

    def statement(self, depth):
        kind = self.chance.random()
        if depth and kind < 0.16:
            return self.choice(depth)
        if depth and kind < 0.26:
            return self.loop(depth)
        if depth and kind < 0.31:
            return self.table(depth)
        if self.open and kind < 0.38:
            return self.jump()
        if kind < 0.41 and depth < 3:
            return self.end()
        return self.assignment()

    def choice(self, depth):
        """if; a register that both ways set has a value behind it, unless jumps come there."""
        label, test, negated = self.label(), self.pick("p"), self.chance.random() < 0.5
        joins = self.chance.random() < 0.6
        before = set(self.defined)
        self.say("@%s%%%s bra ELSE%d;" % ("" if negated else "!", test, label))
        if not joins:
            self.open.append(("END%d" % label, None, label))
        yes = self.body(depth - 1, 5)
        if joins:
            join = "%s%d" % ("r", self.chance.randrange(COUNT["r"]))
            yes.append(self.assignment(join))
        first, self.defined = self.defined, set(before)
        self.say("bra%s END%d;" % (self.chance.choice(("", ".uni")), label))
        self.text.append("ELSE%d:" % label)
        no = self.body(depth - 1, 3) if self.chance.random() < 0.7 or joins else []
        if joins:
            no.append(self.assignment(join))
        self.text.append("END%d:" % label)
        self.defined = first & self.defined if joins else before
        if not joins:
            self.open.pop()
        return ("if", label, test, negated, yes, no)

    def loop(self, depth):
        label, source, most = self.label(), self.pick("r"), self.chance.choice((1, 3, 3, 7))
        counter = "c%d" % label
        self.say("and.b32 %%%s, %%%s, %d;" % (counter, source, most))
        self.text.append("NEXT%d:" % label)
        self.say("setp.eq.s32 %%q%d, %%%s, 0;" % (label, counter))
        self.say("@%%q%d bra END%d;" % (label, label))
        self.say("sub.s32 %%%s, %%%s, 1;" % (counter, counter))
        before = set(self.defined)
        self.open.append(("END%d" % label, "NEXT%d" % label, label))
        inside = self.body(depth - 1, 5)
        self.open.pop()
        self.defined = before
        self.say("bra%s NEXT%d;" % (self.chance.choice(("", ".uni")), label))
        self.text.append("END%d:" % label)
        return ("loop", label, source, most, inside)

    def table(self, depth):
        label, source, ways = self.label(), self.pick("r"), []
        self.say("and.b32 %%c%d, %%%s, 3;" % (label, source))
        names = ["WAY%d_%d" % (label, i) for i in range(3)]
        targets = [names[0], names[1], names[2], self.chance.choice(names + ["END%d" % label])]
        self.text.append("TABLE%d: .branchtargets %s;" % (label, ", ".join(targets)))
        self.say("brx.idx %%c%d, TABLE%d;" % (label, label))
        before = set(self.defined)
        self.open.append(("END%d" % label, None, label))
        falls = []
        for name in names:
            self.text.append(name + ":")
            self.defined = set(before)
            ways.append(self.body(depth - 1, 3))
            falls.append(self.chance.random() < 0.3 and name != names[2])
            if not falls[-1]:
                self.say("bra END%d;" % label)
        self.open.pop()
        self.defined = before
        self.text.append("END%d:" % label)
        return ("table", label, source, ways, falls, [names.index(t) if t in names else None for t in targets])

    def jump(self):
        end, again, label = self.chance.choice(self.open)
        to_next = bool(again) and self.chance.random() < 0.5
        test, negated = self.pick("p"), self.chance.random() < 0.5
        self.say("@%s%%%s bra %s;" % ("!" if negated else "", test, again if to_next else end))
        return ("jump", test, negated, label, to_next)

    def end(self):
        test, value = self.pick("p"), self.pick("r")
        label = self.label()
        self.say("setp.eq.s32 %%q%d, %%i, %d; @!%%q%d bra STAYS%d; @!%%%s bra STAYS%d;" % (label, label % THREADS, label, label, test, label))
        self.say("st.global.u32 [%%out], %%%s; %s;" % (value, self.chance.choice(("ret", "exit"))))
        self.text.append("STAYS%d:" % label)
        return ("end", test, label % THREADS, value)

    def program(self):
        statements = []
        for i in range(INPUTS):
            self.defined.add("r%d" % i)
            self.say("ld.global.u32 %%r%d, [%%in+%d];" % (i, 4 * i))
        for kind, source in (("h", "r1"), ("w", "r2")):
            self.say("cvt.u%d.u32 %%%s0, %%%s;" % (WIDTH[kind], kind, source))
            statements.append(("set", kind + "0", None, lambda a: a, (source,)))
            self.defined.add(kind + "0")
        self.say("setp.lt.u32 %p0, %r0, %r3;")
        statements.append(("set", "p0", None, lambda a, b: a < b, ("r0", "r3")))
        self.defined.add("p0")
        for _ in range(self.chance.randint(3, 9)):
            statements.append(self.statement(3))
            if self.chance.random() < 0.25:
                target, test = "r%d" % self.chance.randrange(COUNT["r"]), self.pick("p")
                self.say("vote.sync.ballot.b32 %%%s, %%%s, -1;" % (target, test))
                self.defined.add(target)
                statements.append(("ballot", target, test))
            if self.chance.random() < 0.15:
                self.say("bar.sync 0;")
        kept = [self.pick(kind) for kind in "rrrhw"]
        self.say("mov.u32 %sum, 0;")
        for register in kept:
            if register[0] == "r":
                self.say("mad.lo.s32 %%sum, %%sum, 31, %%%s;" % register)
            else:
                self.say("cvt.u32.u%d %%c0, %%%s; mad.lo.s32 %%sum, %%sum, 31, %%c0;" % (WIDTH[register[0]], register))
        self.say("st.global.u32 [%out], %sum;")
        return statements, kept


HEAD = """
.visible .entry {name}(.param .u64 {name}_0, .param .u64 {name}_1) {{
    .reg .b64 %in, %out, %at; .reg .b32 %i, %sum, %k; .reg .b16 %h<{h}>; .reg .b32 %r<{r}>; .reg .b64 %w<{w}>; .reg .pred %p<{p}>;
    .reg .b32 %c<{labels}>; .reg .pred %q<{labels}>;
    ld.param.u64 %in, [{name}_0]; ld.param.u64 %out, [{name}_1];
    mov.u32 %i, %tid.x; mul.wide.u32 %at, %i, 16; add.s64 %in, %in, %at;
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mad.lo.s32 %k, %r0, %r1, %i; mul.wide.u32 %at, %k, 4; add.s64 %out, %out, %at;
"""


def make(name, seed):
    """(text, statements, registers whose values are the result)"""
    generator = Generator(random.Random(seed))
    statements, kept = generator.program()
    return HEAD.format(name=name, labels=generator.labels + 1, **COUNT) + "\n".join(generator.text) + "\n    ret;\n}\n", statements, kept


class Ended(Exception):
    pass


class Left(Exception):
    def __init__(self, label, to_next):
        super().__init__()
        self.label, self.to_next = label, to_next


def value(env, operand):
    return env[operand] if isinstance(operand, str) else operand


def execute(env, statements):
    """Statements within ifs, loops and tables."""
    for statement in statements:
        for _ in step(env, statement):
            raise AssertionError("a ballot is not within others")


def step(env, statement):
    """Runs it; yields a predicate at a ballot, and is sent all lanes'."""
    what = statement[0]
    if what == "set":
        _, target, guard, function, operands = statement
        if not guard or env[guard[0]] != guard[1]:
            env[target] = low(int(function(*[value(env, o) for o in operands])), target[0])
    elif what == "jump":
        _, test, negated, label, to_next = statement
        if env[test] != negated:
            raise Left(label, to_next)
    elif what == "end":
        _, test, thread, register = statement
        if env["i"] == thread and env[test]:
            env["result"] = env[register]
            raise Ended()
    elif what == "ballot":
        env[statement[1]] = yield env[statement[2]]
    else:
        compound(env, statement)


def compound(env, statement):
    label = statement[1]
    try:
        if statement[0] == "if":
            _, _, test, negated, yes, no = statement
            execute(env, yes if env[test] != negated else no)
        elif statement[0] == "table":
            _, _, source, ways, falls, targets = statement
            at = targets[env[source] & 3]
            while at is not None:
                execute(env, ways[at])
                at = at + 1 if falls[at] else None
        else:
            for _ in range(env[statement[2]] & statement[3]):
                try:
                    execute(env, statement[4])
                except Left as left:
                    if left.label != label or not left.to_next:
                        raise
    except Left as left:
        if left.label != label:
            raise


def thread(env, statements, kept):
    try:
        for statement in statements:
            yield from step(env, statement)
    except Ended:
        return
    total = 0
    for register in kept:
        total = total * 31 + env[register]
    env["result"] = total & 0xFFFFFFFF


def results(statements, kept, inputs):
    """The results of each thread; a ballot has the threads of a warp that have not ended."""
    envs = [dict({"r%d" % k: x for k, x in enumerate(row)}, i=i) for i, row in enumerate(inputs)]
    for first in range(0, len(envs), 32):
        waiting = {i: (thread(envs[i], statements, kept), None) for i in range(first, min(first + 32, len(envs)))}
        while waiting:
            ballots = {}
            for i, (run, sent) in waiting.items():
                try:
                    ballots[i] = run.send(sent)
                except StopIteration:
                    pass
            mask = sum(bool(x) << i - first for i, x in ballots.items())
            waiting = {i: (waiting[i][0], mask) for i in ballots}
    return [env["result"] for env in envs]


def run(device, seed, count):
    """Yields the error in each of COUNT programs, or ''."""
    made = [make("program_%d" % i, seed * 100003 + i) for i in range(count)]
    program = device.program("".join(text for text, _, _ in made))
    for i, (text, statements, kept) in enumerate(made):
        chance = random.Random(i)
        inputs = [[chance.choice((0, 1, 2, 3, 0xFFFFFFFF, k, chance.getrandbits(32))) for _ in range(INPUTS)] for k in range(THREADS)]
        given = device.memory(16 * THREADS, b"".join(struct.pack("<4I", *row) for row in inputs))
        out = device.memory(4 * THREADS * BLOCKS, bytes(4 * THREADS * BLOCKS))
        program.launch("program_%d" % i, struct.pack("<QQ", given.at, out.at), blocks=BLOCKS, threads=THREADS)
        want = results(statements, kept, inputs) * BLOCKS
        got = list(struct.unpack("<%dI" % (THREADS * BLOCKS), out.bytes()))
        given.free()
        out.free()
        bad = [k for k in range(THREADS * BLOCKS) if got[k] != want[k]]
        yield "" if not bad else "program %d of seed %d, thread %d of block %d: %x, not %x\n%s" % (
            i, seed, bad[0] % THREADS, bad[0] // THREADS, got[bad[0]], want[bad[0]], text)
