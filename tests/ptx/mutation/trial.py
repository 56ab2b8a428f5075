"""trial.py - a mutant under the tests that run its block, until one of them fails: first the tests that are about
its kernel, with least work, as the executor counts it. No time decides which are run, so that a busy machine finds the same."""
import math
import os
import resource
import shutil
import subprocess
import sys

CHECKER = 86  # exit status
ROUNDS = 4  # in which a test is run by other seeds, if no other is left: orders and numbers of blocks are drawn


class Candidate:
    """A test, or one point of it, that runs a block of a kernel, as POINTS of it were covered."""

    def __init__(self, test, name, points, kernel):
        self.test, self.point, self.seconds = test, name, sum(point.seconds for point in points)
        own, every = (sum(works) for works in zip(*((point.work.get(kernel, 0), sum(point.work.values())) for point in points)))
        # Tests of other subjects have a small share of the kernel. Of tests with about the same share the shorter ones come first.
        self.order = int(math.log2(every / own)), every
        at = next(i for i, word in enumerate(test.command) if os.path.basename(word) == "covered")
        self.command = test.command[at + 2 :]
        self.title = test.name + (": " + name if name else "")

    def run(self, images, seed):
        """(the test that caught it, or None; its output)"""
        limit = int(5 + 6 * self.seconds)
        environment = os.environ | self.test.environment | {"SL_PTX_IMAGES": str(images), "SL_PTX_SEED": str(seed)}
        if self.point:
            environment["SL_TEST_FILTER"] = self.point
        process = subprocess.Popen(self.command, cwd=self.test.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, errors="replace", start_new_session=True,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 2)))
        try:
            said, _ = process.communicate(timeout=60 * limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return "tests", "no end"
        if "was not translated" in said:
            sys.exit("mutants: " + said)
        lines = said.splitlines()
        report = [line for line in lines if line.startswith("ptx:")]
        if process.returncode == CHECKER or report:
            return "the checker", report[0][5:] if report else "status 86"
        failed = [line for line in lines if line.startswith("not ok")]
        if failed or process.returncode:
            return "tests", failed[0] if failed else "exit status %d" % process.returncode
        return None, ""


def candidates(tests, kernel, block):
    """Candidates that run it, in their order: points of programs, which are run alone, and whole scripts. A point that failed under covered
    says nothing."""
    found = []
    for test in tests:
        here = [point for point in test.points if point.runs(kernel, block)]
        if any(os.path.basename(word).startswith("test_") for word in test.command):
            found += [Candidate(test, point.name, [point], kernel) for point in here if point.ok and point.name]
        elif here and all(point.ok for point in test.points):
            found.append(Candidate(test, None, test.points, kernel))
    return sorted(found, key=lambda candidate: (candidate.order, candidate.title))


def try_out(mutant, tests, folder, seed, most):
    """Sets the mutant's caught (by whom), by (the test) and said. MOST: so many runs of tests."""
    chosen = candidates(tests, mutant.kernel.name, mutant.block)[:most]
    mutant.caught, mutant.by = None, None
    mutant.said = "none of %d tests that run it notices it" % len(chosen) if chosen else "no test runs it"
    runs = [(candidate, 100 * seed + turn) for turn in range(ROUNDS) for candidate in chosen]
    try:
        for candidate, own in runs[:most]:
            mutant.caught, said = candidate.run(folder, own)
            if mutant.caught:
                mutant.by, mutant.said = candidate, said
                return
            mutant.tried.append(candidate.title)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
