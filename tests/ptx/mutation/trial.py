"""trial.py - a mutant among the tests that run the block in which it lies, cheapest first, until one of them fails."""
import os
import resource
import shutil
import subprocess
import sys

CHECKER = 86  # exit status


class Candidate:
    """A test, or one point of it, that runs a block."""

    def __init__(self, test, point, seconds):
        self.test, self.point, self.seconds = test, point, seconds
        at = next(i for i, word in enumerate(test.command) if os.path.basename(word) == "covered")
        self.command = test.command[at + 2 :]
        self.name = test.name + (": " + point if point else "")

    def run(self, images, seed):
        """(who caught it, or None; what it said)"""
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
    """Those that run it, cheapest first: points of programs, which are run alone, and whole scripts. What failed as it was covered
    tells nothing."""
    found = []
    for test in tests:
        here = [point for point in test.points if point.runs(kernel, block)]
        if any(os.path.basename(word).startswith("test_") for word in test.command):
            found += [Candidate(test, point.name, point.seconds) for point in here if point.ok and point.name]
        elif here and all(point.ok for point in test.points):
            found.append(Candidate(test, None, sum(point.seconds for point in test.points)))
    return sorted(found, key=lambda candidate: candidate.seconds)


def try_out(mutant, tests, folder, seed, most_seconds):
    """Sets the mutant's caught (by whom), by (the test) and said."""
    chosen, left = candidates(tests, mutant.kernel.name, mutant.block), most_seconds
    mutant.caught, mutant.by, mutant.said = None, None, "no test runs it" if not chosen else "no test notices it"
    try:
        for candidate in chosen:
            if candidate.seconds > left and mutant.tried:
                mutant.said = "no test of %d s notices it" % most_seconds
                continue
            left -= max(candidate.seconds, 0.2)
            mutant.caught, said = candidate.run(folder, seed)
            if mutant.caught:
                mutant.by, mutant.said = candidate, said
                return
            mutant.tried.append(candidate.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
