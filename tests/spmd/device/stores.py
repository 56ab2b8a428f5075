"""stores.py BUILD PROGRAM... - finds stores by which threads of a block write different values to one place, in the PTX of the
programs' images, which the build has kept (tests/ptx). Prints TAP.

clang 19 lets thread 0 alone change a struct that threads share, as it should; under a condition it lets all
threads store their own values afterwards: values of other threads are old, and the last store wins by chance. So:
a store whose address does not depend on the thread's number, in code that all threads reach, of a value that depends on it.
Dependence is followed through registers and conditions (selp, and movs in branches), not through memory."""
import collections
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "ptx"))
import images  # noqa: E402 pylint: disable=wrong-import-position

THREAD = ("%tid.x", "%laneid")
REGISTER = re.compile(r"%[a-z]+[0-9]+")
KERNEL = re.compile(r"^(?:\.weak |\.visible )?\.entry ([\w$]+)\(.*?^\{(.*?)^\}", re.S | re.M)

# In the first case thread 0 alone advances the pointer; in the second, the whole struct is made anew.
CASE = """
#include <stddef.h>
struct span { const float *at; const unsigned short *half; size_t step; };
static inline __attribute__((always_inline)) struct span moved(struct span s, size_t by) { %s }
struct job { const float *from; float *to; size_t count; };
static void copy_all(const struct job *given) {
    const struct job job = *given;
#pragma omp parallel for
    for (size_t i = 0; i < job.count; i++) job.to[i] = job.from[i];
}
void region(size_t teams, size_t n, const float *at, const unsigned short *half, size_t step, float *to);
void region(size_t teams, size_t n, const float *at, const unsigned short *half, size_t step, float *to) {
#pragma omp target teams distribute is_device_ptr(at, half, to)
    for (size_t t = 0; t < teams; t++) {
        const struct span all = {at, half, step};
        for (size_t i = 0; i < n; i += 32) {
            const struct span s = moved(all, i);
            const struct job job = {s.at, to + t * n + i, 32};
            copy_all(&job);
        }
    }
}
"""
CASES = (
    (True, "a struct's member advanced by an if", "if (s.half) s.half += by * s.step; else s.at += by * s.step; return s;"),
    (True, "the same by an if alone", "if (!s.half) s.at += by * s.step; return s;"),
    (False, "a struct that is made anew", "return (struct span){s.half ? s.at : s.at + by * s.step, s.half ? s.half + by * s.step : s.half, s.step};"),
)

Instruction = collections.namedtuple("Instruction", "predicate operation operands")


def blocks_of(body):
    """Returns the basic blocks of a kernel, lists of instructions, and for each block the numbers of its successors."""
    blocks, names = [[]], {}
    for statement in re.split(r"(?<=[;:{}])\s*(?=\n)", re.sub(r"//.*|^\s*\.loc\b.*", "", body, flags=re.M)):
        statement = statement.strip()
        label = re.match(r"([$\w]+):", statement)
        if label:
            blocks.append([])
            names[label[1]] = len(blocks) - 1
            continue
        found = re.fullmatch(r"(?:@!?(%p\d+)\s+)?([a-z][\w.:]*)\s*(.*?);", statement, re.S)
        if not found:
            continue # a declaration
        blocks[-1].append(Instruction(*found.groups()))
        if found[2].startswith(("bra", "ret", "exit", "trap")):
            blocks.append([])
    follow = []
    for number, block in enumerate(blocks):
        last = block[-1] if block else None
        to = []
        if last and last.operation.startswith("bra"):
            to.append(names[last.operands.strip()])
        leaves = last and not last.predicate and last.operation.startswith(("bra", "ret", "exit", "trap"))
        if not leaves and number + 1 < len(blocks):
            to.append(number + 1)
        follow.append(to)
    return blocks, follow


def dependents_of(follow):
    """Returns for each block the blocks that run or not by its branch: those on a way from there to its post-dominator."""
    end = len(follow)
    before = collections.defaultdict(list)
    for number, to in enumerate(follow):
        for other in to or [end]:
            before[other].append(number)
    order, seen, stack = [], {end}, [(end, iter(before[end]))]
    while stack:
        node, rest = stack[-1]
        other = next((other for other in rest if other not in seen), None)
        if other is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(other)
            stack.append((other, iter(before[other])))
    place = {node: i for i, node in enumerate(order)}
    parent = {end: end}
    changed = True
    while changed:
        changed = False
        for node in reversed(order[:-1]):
            found = None
            for other in follow[node] or [end]:
                if other not in parent:
                    continue
                while found is not None and found != other:
                    while place[found] < place[other]:
                        found = parent[found]
                    while place[other] < place[found]:
                        other = parent[other]
                found = other
            if parent.get(node) != found:
                parent[node] = found
                changed = True
    dependents = collections.defaultdict(set)
    for node, to in enumerate(follow):
        for other in to if len(to) > 1 and node in parent else ():
            while other != parent[node] and other != end:
                dependents[node].add(other)
                other = parent[other]
    return dependents


def stores_of(body):
    """Yields (a store, the reason) for a kernel's stores by which threads write different values to one place."""
    blocks, follow = blocks_of(body)
    dependents = dependents_of(follow)
    defined = collections.Counter(
        register for block in blocks for i in block if not i.operation.startswith(("st", "bra"))
        for register in REGISTER.findall(i.operands.split(",")[0] if not i.operands.startswith("{") else i.operands.split("}")[0]))
    differs, some = set(), set()  # registers; blocks that only some threads may reach
    while True:
        before = len(differs), len(some)
        for number, block in enumerate(blocks):
            for i in block:
                if i.operation.startswith("bra") and i.predicate and (i.predicate in differs or number in some):
                    some |= dependents[number]
                if i.operation.startswith(("st", "bra", "ld", "atom", "red", "bar", "call")):
                    continue
                to, _, rest = i.operands.partition("," if not i.operands.startswith("{") else "},")
                reads = set(REGISTER.findall(rest))
                chosen = number in some or i.predicate in differs
                targets = REGISTER.findall(to)
                if reads & differs or any(name in rest for name in THREAD) or (chosen and any(defined[t] > 1 for t in targets)):
                    differs.update(targets)
        if before == (len(differs), len(some)):
            break
    for number, block in enumerate(blocks):
        for i in block:
            if not re.match(r"st\.(?!local|param)", i.operation) or number in some or i.predicate in differs:
                continue
            address, values = re.match(r"\[(.*?)\],\s*(.*)", i.operands, re.S).groups()
            if set(REGISTER.findall(values)) & differs and not set(REGISTER.findall(address)) & differs:
                yield f"{i.operation} {' '.join(i.operands.split())}"


def judge(ptx):
    """Returns (number of kernels, [fault])."""
    kernels = KERNEL.findall(ptx)
    return len(kernels), [f"{name}: {store}" for name, body in kernels for store in stores_of(body)]


def compiled(build, code):
    """Returns the PTX of CODE, compiled and linked like a file with regions."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    command = next(c for c in commands if c["file"].endswith("layers/kernels/draws.c") and "--offload-arch" in c["command"])
    with tempfile.TemporaryDirectory() as work:
        source, target = pathlib.Path(work) / "case.c", pathlib.Path(work) / "case.o"
        source.write_text(code, encoding="utf-8")
        words = [str(source) if word.endswith("draws.c") else word for word in shlex.split(command["command"])]
        words[words.index("-o") + 1] = str(target)
        for option in ("-MT", "-MF"):
            if option in words:
                words[words.index(option) + 1] = str(target) + ".d"
        subprocess.run([str(build / "link_regions"), *words], cwd=command["directory"], check=True)
        ((file,), _), = images.kept(build, [target]).values()
        ptx = file.read_text(encoding="utf-8")
    shutil.rmtree(file.parent)
    return ptx


def main():
    build, programs = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    count = kernels = 0
    for files, _ in images.kept(build, programs).values():
        for file in files:
            ptx = file.read_text(encoding="utf-8")
            found, wrong = judge(ptx)
            if not found:
                continue
            count, kernels = count + 1, kernels + found
            print(f"{'not ' if wrong else ''}ok {count} - {images.title(ptx)}: {found} kernels whose threads store one value to one place")
            for line in wrong:
                print(f"# {line}")
    for bad, title, code in CASES:
        found, wrong = judge(compiled(build, CASE % code))
        count += 1
        print(f"{'ok' if found == 1 and bool(wrong) == bad else 'not ok'} {count} - {'seen' if bad else 'not seen'}: {title} {wrong}")
    print(f"{'ok' if kernels >= 100 else 'not ok'} {count + 1} - {kernels} kernels")
    print(f"1..{count + 1}")


if __name__ == "__main__":
    main()
