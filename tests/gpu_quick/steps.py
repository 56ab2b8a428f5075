"""steps.py FILE - a line for each step of the benchmark on GPUs in FILE: its name, its verdict, its predicted
and its measured time."""
import json
import math
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    for line in file:
        try:
            result = json.loads(line)
        except ValueError:
            continue  # a note in between
        if not str(result.get("benchmark", "")).startswith("article_step"):
            continue
        predicted = result.get("predicted", {}).get("ms")
        said = f"predicted {predicted:.2f} by the figures of {result['predicted_for']}" if predicted else "no prediction"
        good = math.isfinite(result.get("first_loss", 0.0))
        wrong = "" if good else "its loss is no number; "
        print(f"{result['benchmark']} {'passed' if good else 'FAILED'} {wrong}measured {result['plain']['ms']:.2f} ms, "
              f"cuBLAS alone {result['library_ms']:.2f}, {said}")
