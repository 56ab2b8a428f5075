"""points.py - shared by the tests of benchmarks: adds the folder of the modules to the path, and prints points in TAP."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

count = 0


def point(right, text):
    global count
    count += 1
    print(f"{'ok' if right else 'not ok'} {count} - {text}", flush=True)


def plan():
    print(f"1..{count}")
