"""samples - medians, their intervals, and the interval of a ratio of two.

An interval of a median is distribution-free: it goes from one of the sorted values to the one as far from the other end.
With a probability of at least CONFIDENCE the true median lies between them, whatever the values' distribution. If there are
too few values, the interval is the whole range, with a lower confidence.
"""

import math
import statistics

CONFIDENCE = 0.95
MARGIN = 0.05  # a ratio is a change if its interval is at least this far from 1


def coverage(count, skipped):
    """Returns the probability that the median of the population lies within COUNT sorted values, SKIPPED at each end left out."""
    outside = sum(math.comb(count, i) for i in range(skipped + 1))
    return max(0.0, 1 - 2 * outside / 2**count)


def median_interval(values):
    """Returns (low, high, confidence) of the median of VALUES."""
    values, skipped = sorted(values), 0
    while 2 * skipped + 3 < len(values) and coverage(len(values), skipped + 1) >= CONFIDENCE:
        skipped += 1
    return values[skipped], values[-1 - skipped], coverage(len(values), skipped)


def of_runs(runs):
    """Returns the report of several processes' RUNS, lists of the times of their steps.

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
    """Returns the interval's width relative to the median."""
    low, high = told["interval_ms"]
    return (high - low) / told["ms"]


def ratio_of_medians(new, old):
    """Returns (ratio, low, high, confidence) of two results of of_runs, measured independently."""
    low, high = new["interval_ms"][0] / old["interval_ms"][1], new["interval_ms"][1] / old["interval_ms"][0]
    return new["ms"] / old["ms"], low, high, min(new["confidence"], old["confidence"])


def ratio_of_pairs(pairs):
    """Returns the same for PAIRS (new, old), each measured one right after the other."""
    ratios = [new / old for new, old in pairs]
    return (statistics.median(ratios), *median_interval(ratios))


def of_rounds(runs):
    """Returns the ratio to the floor over several processes' RUNS, from the ratios of their rounds; nothing without these."""
    ratios = [ratio for run in runs for ratio in run.get("ratios", ())]
    if not ratios:
        return {}
    low, high, confidence = median_interval(ratios)
    return {"ratio": statistics.median(ratios), "ratio_interval": [low, high], "ratio_confidence": confidence}


def verdict(ratio, margin=MARGIN):
    """Returns "slower", "faster", "same" (within the margin), or "?" if the interval allows several of these."""
    _, low, high, confidence = ratio
    if confidence < CONFIDENCE:
        return "?"
    if low > 1 + margin:
        return "slower"
    if high < 1 - margin:
        return "faster"
    return "same" if low >= 1 - margin and high <= 1 + margin else "?"
