"""points - prints TAP for the scripts in this folder, and makes a folder for each to work in."""

import atexit
import os
import shutil
import signal
import sys
import tempfile

_count = 0


def point(name, bad):
    """Prints a point. It has passed if BAD, lines about faults, is empty."""
    global _count
    _count += 1
    print(f"{'not ' if bad else ''}ok {_count} - {name}", flush=True)
    for line in bad[:8]:
        print(f"# {line}")


def folder(parent=None):
    """Returns a new folder, which is removed at the script's end, whatever ends it."""
    path = os.path.realpath(tempfile.mkdtemp(dir=parent))
    atexit.register(shutil.rmtree, path, True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return path


def plan():
    print(f"1..{_count}")
