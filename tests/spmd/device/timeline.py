"""timeline.py BUILD - checks that messages, sums and gathers are ordered by streams and events, without waits of the host, and
may run beside products; prints TAP.

    timeline.py --print BUILD PROGRAM ARGUMENT...    the last step of a coordinate: works of each stream, and their order

It reads the account of a GPU that computes nothing (tests/fake_cuda/fake.h). A work put into a stream comes after all
that is there, after the events that the stream awaits, and after works that the host has waited for or seen to be done
before the call. Two works without an order may run at the same time: they are beside each other. Queries
report an event's end late: otherwise a host would see every event done at once, because work on this GPU takes no time.
"""
import collections
import os
import sys
import tempfile

from null_cuda import EIGHT, NARROW, Points, run

STEPS, LATE = "4", "20"
PIPELINE = ("looping_pipeline", *EIGHT)
SHARDED = ("transformer", *NARROW, "--mesh", "data=4", "--engine", "nccl", "--fsdp", "--blocks", "4",
           "--loops", "4", "--schedule", "looped-bfs")


class Work:
    """A piece of work in a stream. CLOCK: for each stream, how many of its works precede this one or are this one."""

    def __init__(self, thread, stream, number, clock, kind, words):
        self.thread, self.stream, self.number, self.clock = thread, stream, number, clock
        self.kind, self.words = kind, words
        self.awaits = []  # works whose end it waits for, by events

    def comes_before(self, other):
        return other.clock[self.stream] >= self.number

    def is_beside(self, other):
        return not self.comes_before(other) and not other.comes_before(self)


class Account:
    def __init__(self, lines):
        self.works = []
        self.waits = []  # (number of works before, thread): waits of a host for a stream or an event
        self.streams = collections.defaultdict(collections.Counter)  # the clock of each one's end
        self.hosts = collections.defaultdict(collections.Counter)  # the works that each thread knows to be done
        self.marks, self.last, self.pending = {}, {}, collections.defaultdict(list)
        for where, kind, *words in lines:
            thread, _, stream = where.partition(".")
            self.read(thread, stream, kind, words)

    def read(self, thread, stream, kind, words):
        if kind == "mark":
            self.marks[words[0]] = (self.streams[stream] | self.hosts[thread], self.last.get(stream))
        elif kind == "await" and words[0] in self.marks:
            clock, work = self.marks[words[0]]
            self.streams[stream] = self.streams[stream] | clock
            if work and work.stream != stream:
                self.pending[stream].append(work)
        elif kind == "saw" and words[0] in self.marks:
            self.hosts[thread] |= self.marks[words[0]][0]
        elif kind == "call" and words[0] == "cudaStreamSynchronize":
            self.hosts[thread] |= self.streams[stream]
            self.waits.append((len(self.works), thread))
        elif stream and kind in ("launch", "product", "copy", "fill", "call"):
            clock = self.streams[stream] | self.hosts[thread]
            clock[stream] += 1
            self.streams[stream] = clock
            work = Work(thread, stream, clock[stream], clock, kind, words)
            work.awaits, self.pending[stream] = self.pending[stream], []
            self.last[stream] = work
            self.works.append(work)

    def step(self, thread):
        """Returns the works of a thread's last step, and the number of its host's waits within the step: a step ends with a wait."""
        ends = [number for number, whose in self.waits if whose == thread]
        for first, end in zip(ends[-2::-1], ends[:0:-1]):
            works = [work for work in self.works[first:end] if work.thread == thread]
            if sum(work.kind == "product" for work in works) > 2:
                return works
        return []


def read(build, record, program, *arguments):
    os.environ["FAKE_CUDA_LATE_MS"] = LATE
    command = os.path.join(build, "drivers", program) if os.sep not in program else program
    run(build, record, command, *arguments, "--steps", "1")
    result, lines = run(build, record, command, *arguments, "--steps", STEPS)
    return result, Account(lines)


def trainers(account):
    """Returns the threads that multiply."""
    return sorted({work.thread for work in account.works if work.kind == "product"}, key=int)


def beside(works, name):
    """Returns (number of calls of NAME in the step, number of those beside products of the coordinate)."""
    products = [work for work in works if work.kind == "product"]
    calls = [work for work in works if work.kind == "call" and work.words[0] == name]
    return len(calls), sum(any(product.is_beside(call) for product in products) for call in calls)


def look(account, names):
    """Returns, for the last step of each coordinate: calls by name, all and beside products; the number of steps; and calls in a
    computing stream."""
    found = {name: [0, 0] for name in names}
    mixed, steps = [], 0
    for thread in trainers(account):
        works = account.step(thread)
        steps += bool(works)
        computing = {work.stream for work in works if work.kind in ("product", "launch")}
        mixed += [work.words for work in works if work.kind == "call" and work.words[0] in names and work.stream in computing]
        for name in names:
            for i, count in enumerate(beside(works, name)):
                found[name][i] += count
    return found, steps, mixed


def check(points, build, record, job, about, *names):
    """Tests a job. The work beside products depends on the hosts' timing, too, so on a busy machine the job runs up to three
    times."""
    for _ in range(3):
        result, account = read(build, record, *job)
        found, steps, mixed = look(account, names)
        if all(count > 0 and 3 * free >= count for count, free in found.values()):
            break
    points.point(result.returncode == 0 and steps > 1 and not mixed,
                 f"{about}: in {steps} coordinates' steps, in which no host waits, NCCL's calls have streams of their own",
                 result.stderr[-300:], mixed[:3])
    for name in names:
        count, free = found[name]
        points.point(count > 0 and 3 * free >= count, f"{about}: {free} of {count} {name} are beside products", found)


def describe(works):
    kinds = collections.Counter(work.kind for work in works)
    if "call" in kinds:
        return f"{works[0].words[0]} {int(works[0].words[1])} bytes"
    names = {"launch": "regions", "product": "products", "copy": "copies", "fill": "fills"}
    return ", ".join(f"{count} {names[kind]}" for kind, count in sorted(kinds.items(), key=lambda item: -item[1]))


def print_step(build, program, *arguments):
    """Joins neighbours in a stream to rows if nothing divides them. A wait for a row is a wait for its last work."""
    with tempfile.TemporaryDirectory() as folder:
        result, account = read(build, os.path.join(folder, "record"), program, *arguments)
    if result.returncode:
        sys.exit(result.stderr)
    works = account.step(trainers(account)[0])
    awaited = {id(work) for one in works for work in one.awaits}
    rows, of, closed = [], {}, set()
    for work in works:
        row = next((row for row in reversed(rows) if row[0].stream == work.stream), None)
        if not row or work.kind == "call" or work.awaits or id(row) in closed:
            row = []
            rows.append(row)
        row.append(work)
        of[id(work)] = row
        if id(work) in awaited or work.kind == "call":
            closed.add(id(row))
    number = {id(row): i + 1 for i, row in enumerate(rows)}
    streams = {stream: i for i, stream in enumerate(dict.fromkeys(row[0].stream for row in rows))}
    products = [work for work in works if work.kind == "product"]
    print(f"{'row':>4} stream  {'what':<38} {'after':<10} products beside")
    for row in rows:
        after = sorted({number[id(of[id(work)])] for work in row[0].awaits if id(work) in of})
        free = sum(all(product.is_beside(work) for work in row) for product in products) if row[0].kind == "call" else ""
        print(f"{number[id(row)]:4} {streams[row[0].stream]:6}  {describe(row):<38} {','.join(map(str, after)):<10} {free}".rstrip())


def main():
    if sys.argv[1] == "--print":
        print_step(*sys.argv[2:])
        return
    build = sys.argv[1]
    points = Points()
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "record")
        check(points, build, record, PIPELINE, "a pipeline", "ncclSend", "ncclRecv", "ncclReduceScatter")
        check(points, build, record, SHARDED, "FSDP", "ncclAllGather", "ncclReduceScatter")
    print(f"1..{points.count}")


if __name__ == "__main__":
    main()
