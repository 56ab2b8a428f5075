"""samples - medians, their intervals, and the interval of a ratio of two.

An interval of a median is distribution-free: from one of the sorted values to the one as far from the other end, so
that the true median lies between with at least CONFIDENCE, whatever the values' distribution. Too few values reach less
with the whole range, which is then told.
"""

import math
import statistics

CONFIDENCE = 0.95
MARGIN = 0.05  # by which a ratio's interval must be away from 1 to be called a change


def coverage(count, skipped):
    """How certainly the median of the population lies between COUNT values' sorted ones, but for SKIPPED at each end."""
    outside = sum(math.comb(count, i) for i in range(skipped + 1))
    return max(0.0, 1 - 2 * outside / 2**count)


def median_interval(values):
    """(low, high, confidence) of the median of VALUES."""
    values, skipped = sorted(values), 0
    while 2 * skipped + 3 < len(values) and coverage(len(values), skipped + 1) >= CONFIDENCE:
        skipped += 1
    return values[skipped], values[-1 - skipped], coverage(len(values), skipped)


def of_runs(runs):
    """The report of several processes' RUNS, lists of the times of their steps.

    Steps of a process resemble each other more than those of two, so the interval is not narrower than that of the
    processes' own medians."""
    every = [value for run in runs for value in run]
    low, high, confidence = median_interval(every)
    if len(runs) > 1:
        least, most, _ = median_interval([statistics.median(run) for run in runs])
        low, high = min(low, least), max(high, most)
    told = {"ms": statistics.median(every), "ms_min": min(every), "ms_max": max(every)}
    return told | {"interval_ms": [low, high], "confidence": confidence, "samples": len(every), "processes": len(runs)}


def width(told):
    """Of the interval, as a part of the median."""
    low, high = told["interval_ms"]
    return (high - low) / told["ms"]


def ratio_of_medians(new, old):
    """(ratio, low, high, confidence) of two results of of_runs that have nothing to do with each other."""
    low, high = new["interval_ms"][0] / old["interval_ms"][1], new["interval_ms"][1] / old["interval_ms"][0]
    return new["ms"] / old["ms"], low, high, min(new["confidence"], old["confidence"])


def ratio_of_pairs(pairs):
    """The same of PAIRS (new, old), each measured one right after the other."""
    ratios = [new / old for new, old in pairs]
    return (statistics.median(ratios), *median_interval(ratios))


def of_rounds(runs):
    """The ratio to the floor of several processes' RUNS, which tell those of their rounds; nothing without them."""
    ratios = [ratio for run in runs for ratio in run.get("ratios", ())]
    if not ratios:
        return {}
    low, high, confidence = median_interval(ratios)
    return {"ratio": statistics.median(ratios), "ratio_interval": [low, high], "ratio_confidence": confidence}


def verdict(ratio, margin=MARGIN):
    """"slower", "faster", "same" (within the margin), or "?": the interval allows several of these."""
    _, low, high, confidence = ratio
    if confidence < CONFIDENCE:
        return "?"
    if low > 1 + margin:
        return "slower"
    if high < 1 - margin:
        return "faster"
    return "same" if low >= 1 - margin and high <= 1 + margin else "?"
