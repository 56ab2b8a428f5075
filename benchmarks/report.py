"""report - the machine's description, and tables of results."""

import datetime
import os
import pathlib
import platform
import re
import subprocess
import time

import distance
import noise
import predictions
import prices
import published
import samples
import stages
import synthesis
from suite import LONG
from synthesis import random_models


def first_match(pattern, text, otherwise):
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1) if match else otherwise


def busy_cores():
    """Returns the number of busy cores, whichever machine's programs keep them busy."""
    times = []
    for pause in 0.5, 0:
        with open("/proc/stat") as stat:
            times.append([int(word) for word in stat.readline().split()[1:9]])  # the last is the time that other machines took
        time.sleep(pause)
    ticks = [after - before for before, after in zip(*times)]
    return os.cpu_count() * (1 - (ticks[3] + ticks[4]) / max(1, sum(ticks)))  # idle, waiting for disks


def machine(build, level="native"):
    cpu = first_match(r"^model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), platform.machine())
    cache = (build / "CMakeCache.txt").read_text() if (build / "CMakeCache.txt").exists() else ""
    compiler = first_match(r"^CMAKE_C_COMPILER:\w+=(.*)", cache, "")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout if compiler else ""
    libraries = subprocess.run(["ldd", build / "benchmarks/bench_step"], capture_output=True, text=True).stdout
    onednn = os.path.realpath(first_match(r"libdnnl\S* => (\S+)", libraries, "none"))
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "level": level,
        "compiler": version.partition("\n")[0] or "unknown",
        "onednn": first_match(r"\.so\.(.*)", onednn, "none"),
        "kernel": platform.release(),
        "busy": busy_cores(),
        "date": datetime.date.today().isoformat(),
    }


# ---- tables


def rounded(value):
    """Returns VALUE with 9 significant digits."""
    if isinstance(value, dict):
        return {name: rounded(element) for name, element in value.items()}
    if isinstance(value, list):
        return [rounded(element) for element in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def print_table(rows, words=2):
    """Prints ROWS. The first WORDS columns hold words, the others numbers."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) if i < words else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def milliseconds(value):
    if value is None:
        return ""
    return f"{value:.6f}" if value < 0.001 else f"{value:.3f}" if value < 1 else f"{value:.1f}"


def interval(run):
    """Returns the median's interval as text; with ? if there are too few samples to be certain."""
    if "interval_ms" not in run:
        return ""
    return " - ".join(map(milliseconds, run["interval_ms"])) + ("" if run["confidence"] >= samples.CONFIDENCE else " ?")


def row(benchmark, who, run, floor, ours):
    return [
        benchmark,
        " ".join([who, run.get("version", "")]).strip(),
        str(run.get("threads", "")),
        *(milliseconds(run.get(name)) for name in ("ms_min", "ms")),
        interval(run),
        milliseconds(floor or None),
        f"{run.get('ratio', run['ms'] / floor):.2f}" if floor else "",
        f"{run.get('ratio_to_ours', run['ms'] / ours['ms']):.2f}",
        f"{run['peak_bytes'] / 1e6:.0f}" if "peak_bytes" in run else "",
    ]


def print_results(results):
    rows = [["benchmark", "who", "threads", "min ms", "median", "95 % of it", "floor", "/ floor", "/ ours", "peak MB"]]
    for result in results:
        if result["benchmark"] in LONG:
            continue
        floor = result["floor_ms"]
        rows.append(row(", ".join(filter(None, (result["benchmark"], result.get("precision")))), "ours", result, floor, result))
        if "plain" in result:
            rows.append(row("", "ours, plain", result["plain"], floor, result))
        rows += [row("", f"ours, {name}", run, "", result) for name, run in result.get("ours", {}).items()]
        rows += [row("", name, run, floor, result) for name, run in result.get("peer_runs", {}).items()]
    print_table(rows)


def size(count):
    for unit in ("B", "KB", "MB"):
        if count < 1024 or unit == "MB":
            return f"{count:.3g} {unit}"
        count /= 1024


def print_calls(result):
    """Prints microseconds of calls by operation, group and size, ours and then the peers'; then those of hand-overs."""
    whose = {"ours": result["calls"]} | result["peer_calls"]
    sizes = sorted({line["bytes"] for line in result["calls"] if line["operation"] == "psum"})
    names = dict.fromkeys((line["operation"], line["group"]) for line in result["calls"])
    rows = [["us a call", "over", "who", *map(size, sizes)]]
    for operation, group in names:
        if operation in ("hand_over", "psum_gradients"):
            continue
        for who, lines in whose.items():
            calls = [line for line in lines if (line["operation"], line["group"]) == (operation, group)]
            times = [f"{line['us']:.3g}" for line in sorted(calls, key=lambda line: line["bytes"])]
            if times:
                label = [operation, str(group)] if who == "ours" else ["", ""]
                rows.append([*label, who, *times, *[""] * (len(sizes) - len(times))])
    print()
    print_table(rows, 3)
    rows = [["us a hand-over of 16 KB", "around", "messages", *whose]]
    for line in result["calls"]:
        if line["operation"] == "hand_over":
            same = [find_hand_over(lines, line) for lines in whose.values()]
            rows.append(["", str(line["group"]), str(line["messages"]), *same])
    print()
    print_table(rows)


def find_hand_over(lines, wanted):
    keys = "operation", "group", "messages"
    found = (line["us"] for line in lines if [line.get(key) for key in keys] == [wanted[key] for key in keys])
    return "".join(f"{us:.3g}" for us in found)


PLACES = {"near": "second-level cache", "shared": "shared cache", "memory": "memory"}


def print_products(result):
    """Prints a table for each dtype: GFLOP/s of a core by rows, and their share of the core's multiply-adds."""
    for fma in result["fma"]:
        lines = [line for line in result["products"] if line["dtype"] == fma["dtype"]]
        counts = sorted({line["rows"] for line in lines})
        rows = [["GFLOP/s (share)", "weights", "in", "who", *(f"{count} rows" for count in counts)]]
        last = None
        for key in dict.fromkeys((line["product"], line["in"], line["out"], line["where"], line["who"]) for line in lines):
            kind, inputs, outputs, where, who = key
            cells = {line["rows"]: f"{line['gflops']:.0f} ({100 * line['share']:.0f} %)" for line in lines
                     if (line["product"], line["in"], line["out"], line["where"], line["who"]) == key}
            label = ["", "", ""] if key[:4] == last else [kind, f"{inputs} x {outputs}", PLACES[where]]
            rows.append([*label, who, *(cells.get(count, "") for count in counts)])
            last = key[:4]
        text = "{dtype}: multiply-adds alone reach {gflops:.0f} GFLOP/s ({level}), {instructions_a_cycle:.2f} instructions"
        print("\n" + (text + " a cycle of a clock of {clock_ghz:.2f} GHz").format(**fma))
        print_table(rows, 4)


def print_attention(result):
    """Prints attention's GFLOP/s of a core beside those of products of the same sizes."""
    rows = [["GFLOP/s", "heads' width", "sequence", "attention", "products", "share"]]
    last = None
    for line in result["attention"]:
        rates = (f"{line[name]:.1f}" for name in ("gflops", "products_gflops"))
        label = "" if line["pass"] == last else line["pass"]
        rows.append([label, str(line["width"]), str(line["sequence"]), *rates, f"{100 * line['ratio']:.0f} %"])
        last = line["pass"]
    print()
    print_table(rows, 1)


def print_notes(results):
    for result in results:
        if not result.get("noise", {}).get("quiet", True):
            rounds = f"; {result['processes']} processes were measured" if "processes" in result else ""
            print(f"{result['benchmark']}: the machine was not quiet: {noise.sentence(result['noise'])}{rounds}")
        if "gflops_peak" in result:
            rates = "{gflops_peak:.0f} GFLOP/s, {bandwidth_gbs:.1f} GB/s".format(**result)
            parts = "the machine"
            if "products_ms" in result:
                parts = "{products_ms:.1f} ms of products + {optimizer_ms:.1f} ms of optimizer".format(**result)
            by = f" (by {result['peak_by']})" if "peak_by" in result else ""
            print(f"{result['benchmark']}: the floor is {parts}, at {rates}{by}")
        if "ratio_of_best" in result:
            low, high = result["ratio_interval"]
            turns = f"{result['ratio']:.3f} of the floor turn by turn ({low:.3f} - {high:.3f})"
            print(f"{result['benchmark']}: {turns}, {result['ratio_of_best']:.3f} of the best of all floors")
        if "theory_ms" in result:
            rates = "reading {read_gbs:.1f} GB/s".format(**result)
            if "fma_gflops" in result:  # absent for bf16 at a level that cannot multiply it
                rates = "multiply-adds {fma_gflops:.0f} GFLOP/s, ".format(**result) + rates
            print(f"{result['benchmark']}: {milliseconds(result['theory_ms'])} ms in theory: by themselves, {rates}")
        if "tokens_per_second" in result:
            print("{benchmark}: {tokens_per_second:.0f} tokens a second".format(**result))
        if "paused_ms" in result:
            text = "startup: {ratio:.2f} of the floor turn by turn; {paused_ms:.1f} ms behind a pause or another program"
            print(text.format(**result))
        if "share" in result:
            text = "collectives: the psum of all gradients over 2, at {:.0f} % of the bandwidth, {:.0f} % with cold caches"
            print(text.format(100 * result["share"], 100 * result["cold_share"]))
        if "threads_ms" in result:
            text = "processes: {ratio:.2f} of what eight threads take for the step, {threads_ms:.1f} ms, which stands as the floor"
            print(text.format(**result))
        if "ns_per_action" in result:
            times = "{ns_per_action:.0f} ns an action, {ns_per_action_looping:.0f} ns with hand-overs".format(**result)
            print(f"schedule_overhead: {times} to itself")


def print_all(results, absent, about):
    level = "" if about["level"] == "native" else f", forced down to {about['level']}"
    print("{cpu}, {cores} cores{0}, {busy:.1f} busy; oneDNN {onednn}; {compiler}; {date}\n".format(level, **about))
    print_results(results)
    for name, reason in absent.items():
        print(f"absent: {name}: {reason}")
    print_notes(results)
    for result in results:
        if "calls" in result:
            print_calls(result)
        if result.get("distances", {}).get("rows"):
            distance.print_summary(result["distances"], print_table)
        if "products" in result:
            print_products(result)
        if "attention" in result:
            print_attention(result)
        if "published" in result:
            published.print_table(result["published"], print_table)
        if "prices" in result:
            prices.print_table(result["prices"], print_table)
        if "exactness" in result:
            prices.print_exact(result["exactness"], print_table)
        if "predictions" in result:
            predictions.print_table(result["predictions"], print_table)
        if "stages" in result:
            stages.print_table(result["stages"], print_table)
        if "synthesis" in result:
            synthesis.print_table(result["synthesis"], print_table)
        if "random_models" in result:
            random_models.print_table(result["random_models"], print_table)


def print_comparison(lines):
    rows = [["benchmark", "", "old ms", "new ms", "new / old", "95 % of it"]]
    for line in lines:
        low, high = line["interval"]
        certain = "" if line["confidence"] >= samples.CONFIDENCE else " ?"
        times = milliseconds(line["old_ms"]), milliseconds(line["ms"])
        said = line["verdict"].replace("?", "not certain")
        rows.append([line["comparison"], said, *times, f"{line['ratio']:.3f}", f"{low:.3f} - {high:.3f}{certain}"])
    print()
    print_table(rows)
    for line in lines:
        if not line.get("noise", {}).get("quiet", True):
            print(f"{line['comparison']}: the machine was not quiet: {noise.sentence(line['noise'])}")


# ---- on GPUs


def percent(run, share):
    return f"{100 * run[share]:.1f} %" if share in run else ""


def print_gpu(results, absent, about):
    """Prints the results of --gpu. A step's bound is the time of cuBLAS alone; a ratio to a peer is below 1 if ours is faster."""
    gpus = ", ".join(about["gpus"]) or "no GPU: a small model, whose times mean nothing"
    print("{0}; engine {engine}; {cpu}, {cores} cores; {compiler}; {date}".format(gpus, **about))
    print(", ".join(f"{name} {value}" for name, value in about["model"].items()) + "\n")
    rows = [["step", "who", "min ms", "median", "max", "cuBLAS alone", "its share", "ours / it"]]
    quoted = {result["benchmark"]: result for result in results if "tokens_per_second" in result}
    for result in results:
        if result["benchmark"] == "launch" or result["benchmark"] in quoted:
            continue
        bound, whose = result["library_ms"], {"ours, looping": result, "ours, plain": result["plain"]}
        for who, run in (whose | result["peer_runs"]).items():
            times = [milliseconds(run[name]) for name in ("ms_min", "ms", "ms_max")]
            label = result["benchmark"] if run is result else ""
            ratio = f"{result['ms'] / run['ms']:.2f}"
            name = " ".join([who, run.get("version", "")]).strip()
            rows.append([label, name, *times, milliseconds(bound), f"{100 * bound / run['ms']:.1f} %", ratio])
    print_table(rows)
    for name, reason in absent.items():
        print(f"absent: {name}: {reason}")
    predicted = {result["benchmark"]: result["predicted"] for result in results if "predicted" in result}
    if predicted:
        figures = next(result["predicted_for"] for result in results if "predicted" in result)
        print(f"\npredicted for one GPU, plain, by the figures of {figures}:", *gpu_model.table(predicted), sep="\n")
    if quoted:
        print("\nmeasured:", *gpu_model.speeds(quoted), sep="\n")
        print("\npredicted:", *gpu_model.speeds({name: result for name, result in predicted.items() if name in quoted}), sep="\n")
    for result in results:
        if result["benchmark"] == "launch":
            print("launch: {region_us:.1f} us a target region, {product_us:.1f} a product,".format(**result), end=" ")
            if "graph_region_us" in result:
                print("{step_region_us:.2f} a region of 1000 ({step_region_done_us:.2f} until it is done), "
                      "{graph_region_us:.2f} in graphs ({graph_region_done_us:.2f}),".format(**result), end=" ")
            print("{product_and_wait_us:.1f} with the wait".format(**result))
        elif "peak_tflops" in result:
            shares = percent(result, "products_share_of_peak"), percent(result, "step_share_of_peak")
            text = "{}: of {:.0f} TFLOP/s the products reach {} by themselves, the step {}"
            print(text.format(result["benchmark"], result["peak_tflops"], *shares))
        elif result["benchmark"] not in quoted:
            print(f"{result['benchmark']}: the peak of this GPU is not known here: no share of it")
