#!/usr/bin/env python3
"""test_against.py - --against: the verdicts about two builds whose programs print chosen times, and the choice of the parent
commit; prints TAP."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest.mock

sys.dont_write_bytecode = True

from points import ROOT, plan, point

import compare
import noise
import parent
from programs import Failure, json_lines

# ---- judging


class Stub:
    """Makes a build whose programs print the times of a list, again and again."""

    def __init__(self, folder, *times):
        folder.mkdir()
        self.program = folder / "bench"
        self.program.write_text(
            '#!/bin/sh\ncd "$(dirname "$0")"\nread -r first rest <times\necho "$rest $first" >times\n'
            'echo run >>runs\n[ "$first" != none ] || { echo "bench: no such option" >&2; exit 2; }\necho "{\\"ms\\":$first}"\n')
        self.program.chmod(0o755)
        (folder / "times").write_text(" ".join(map(str, times)) + "\n")
        self.runs = folder / "runs"
        self.watch, self.quick = noise.Watch(), True

    def count(self):
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0


def take(suite):
    return json_lines([suite.program])[0]["ms"]


def judged(work, new, old, margin=0.1):
    """Returns the verdict about builds with these times, and the number of runs of each. The machine has no other load."""
    ours, other = Stub(work / "new", *new), Stub(work / "old", *old)
    with unittest.mock.patch.object(noise, "ALLOWED", 1e9):
        line = compare.judge("stub", take, ours, other, margin)
    runs = ours.count(), other.count()
    for folder in ("new", "old"):
        shutil.rmtree(work / folder)
    return line, runs


def judgements(work):
    line, runs = judged(work, [12], [10])
    point(line["verdict"] == "slower" and runs == (13, 13), "a slower build: two races of six pairs, and it is told")
    point(line["before"] == 1.2 and line["ratio"] == 1.2, "both ratios are told")
    line, runs = judged(work, [10], [10])
    point(line["verdict"] == "same" and runs == (7, 7), "equal builds: one race")
    point(judged(work, [10.8], [10])[0]["verdict"] == "same", "8 % are within the limit of 10 %")
    point(judged(work, [10.8], [10], 0.05)[0]["verdict"] == "slower", "and beyond one of 5 %")
    point(judged(work, [8], [10])[0]["verdict"] == "faster", "a faster one")
    line, runs = judged(work, [10] + 6 * [15] + 6 * [10], [10])
    point(line["verdict"] == "same" and runs == (13, 13) and line["before"] == 1.5, "noise: slower in the first race alone is not slower")
    line, runs = judged(work, [9, 15, 10, 9, 14, 10], [10])
    point(line["verdict"] == "?" and runs == (7, 7), "times that swing: not certain, and no second race")
    line, runs = judged(work, [10], ["none"])
    point(line is None and runs == (1, 1), "an older build that does not know an option is left out")
    try:
        judged(work, ["none"], [10])
        point(False, "a build of ours that fails is no matter of speed")
    except Failure as failure:
        point(failure.status == 2 and "no such option" in str(failure), "a build of ours that fails is no matter of speed")


class Told(compare.Suite):
    """Makes a build whose programs print the same number for all figures."""

    def __init__(self):
        super().__init__(".", quick=True)

    def ours(self, program, *options):
        size = compare.GRADIENT_BYTES if program.endswith("collectives") else None
        return [{"ms": 3.0, "us": 3000.0, "operation": "psum_gradients", "group": 2, "bytes": size, "dtype": "f32", "gflop": 1.0,
                 "gflops": 1000 / 3, "samples_ms": [3.0], "line_ns": [1, 1]}]

    def timed_start(self, program, *options):
        return 3.0, [{"floor_ms": 1.0}, {"floor_ms": 1.0}]


def cases():
    for name in ("notebook_step", "transformer_step", "generate", "collectives", "schedule_overhead", "startup"):
        point([take(Told()) for take in compare.CASES[name].values()] == [3.0] * len(compare.CASES[name]), f"{name} is measured")
    known = {name for some in compare.CASES.values() for name in some}
    point(set(compare.OMITTED) < known, "each case that --quick omits is a case")


# ---- the parent


def git(*words):
    names = [word for who in ("author", "committer") for word in (f"GIT_{who.upper()}_NAME=a", f"GIT_{who.upper()}_EMAIL=a@b")]
    done = subprocess.run(["env", "HOME=/nonexistent", *names, "git", "-c", "init.defaultBranch=main", *words], capture_output=True, text=True)
    return done.stdout.strip()


def commit(name, text):
    pathlib.Path(name).parent.mkdir(exist_ok=True)
    pathlib.Path(name).write_text(text)
    git("add", "-A")
    git("commit", "-qm", name)
    return git("rev-parse", "HEAD")


def absent(text, what):
    try:
        parent.find()
        point(False, what)
    except parent.Absent as reason:
        point(text in str(reason) and "\n" not in str(reason), what)


def parents(work):
    os.chdir(work)
    absent("no clone", "a folder without a repository")
    git("init", "-q")
    absent("no clone", "a repository without a commit")
    first = commit("a.c", "one")
    absent("none of the last 1 commits has other code", "a first commit has no parent")
    second = commit("a.c", "two")
    point(parent.find() == first, "the commit before")
    commit("docs/page.md", "words")
    commit("tests/test.c", "a test")
    point(parent.find() == first, "words and tests are no code: the commit before the last code")
    pathlib.Path("a.c").write_text("three")
    point(parent.find() == git("rev-parse", "HEAD"), "code that is not committed is compared with the last commit")
    git("checkout", "-q", "a.c")
    pathlib.Path("b.c").write_text("new")
    point(parent.find() == git("rev-parse", "HEAD"), "and so is a new file that git does not know")
    pathlib.Path("b.c").unlink()
    git("clone", "-q", "--depth", "2", f"file://{work}", "clone")
    os.chdir("clone")
    absent("shallow: it ends 2 commits back", "a shallow clone that does not reach it")
    os.chdir(work)
    with unittest.mock.patch.dict(os.environ, PATH="/nonexistent"):
        absent("no git", "a machine without git")
    point(second != first, "two commits")


def builds(folder):
    """Tests a project whose build takes no time: each commit is built once, and removed when another commit is the parent."""
    work, tools = folder / "work", folder / "tools"  # the parent's tree may be mounted over work
    (work / "build").mkdir(parents=True)
    os.chdir(work)
    (work / ".gitignore").write_text("/build/\n")
    git("init", "-q")
    tools.mkdir()
    (tools / "cmake").write_text('#!/bin/sh\necho "$PWD $*" >>"$TOLD"\nmkdir -p build/host/benchmarks\n[ ! -e broken.c ]\n')
    (tools / "cmake").chmod(0o755)
    told = folder / "told"
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "TOLD": str(told)}
    first = commit("a.c", "one")
    commit("a.c", "two")
    with unittest.mock.patch.dict(os.environ, environment):
        made = parent.make()
        said = told.read_text().splitlines()
        point(made == pathlib.Path(f"build/parent/{first}/build/host") and made.is_dir() and len(said) == 2, "configured and built")
        point((made.parents[1] / "a.c").read_text() == "one", "of the parent's files")
        point(said[1].endswith("--build --preset host --target benchmarks/all looping_pipeline transformer"), "only what is compared")
        parent.make()
        point(len(told.read_text().splitlines()) == 2, "a second time it is there already")
        third = commit("broken.c", "three")
        parent.make()
        point([path.name for path in pathlib.Path("build/parent").iterdir()] == [git("rev-parse", "HEAD^")], "that of another commit goes")
        commit("a.c", "four")
        try:
            parent.make()
            point(False, "a parent that does not build is skipped")
        except parent.Absent as reason:
            point(str(reason) == f"{third[:8]} does not build (log: build/parent.log)", "a parent that does not build is skipped")
    parent.tell([], "no <git>")
    summary = subprocess.run([sys.executable, ROOT / "tests/summary.py", parent.WRITTEN], capture_output=True, text=True)
    point("skipped under speed: beside the parent commit: no <git>" in summary.stdout and "1 skipped" in summary.stdout, "what is skipped is counted")
    parent.tell([{"comparison": "a", "verdict": "slower"}, {"comparison": "b, c", "verdict": "?"}])
    summary = subprocess.run([sys.executable, ROOT / "tests/summary.py", parent.WRITTEN], capture_output=True, text=True)
    point(summary.returncode == 1 and "failed under speed: a\n" in summary.stdout and "1 passed, 1 failed" in summary.stdout, "and a slowdown fails")
    pathlib.Path(parent.WRITTEN).with_suffix(".tested").write_text("12\n0m0.5s 0m0.5s\n1m2.5s 0m1.5s\n")
    summary = subprocess.run([sys.executable, ROOT / "tests/summary.py", parent.WRITTEN], capture_output=True, text=True)
    point(summary.stdout.splitlines()[-2].split() == ["speed", "-", "-", "12", "64"], "seconds of tests, and those of the CPU, stand in a table")


cases()
for test in (judgements, parents, builds):
    with tempfile.TemporaryDirectory() as folder:
        test(pathlib.Path(folder))
        os.chdir(ROOT)
plan()
