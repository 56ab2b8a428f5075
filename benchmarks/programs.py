"""programs - runs programs that print JSON, and says why something cannot be measured."""

import json
import re
import subprocess
import sys


class Failure(Exception):
    """Something cannot be measured; TEXT is the reason, in one line, and STATUS the program's exit status."""

    def __init__(self, text, status=1):
        super().__init__(text)
        self.status = status


def output(command):
    """Returns the output of COMMAND."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise Failure(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if any(map(str.isalnum, line))]
        raise Failure(said[-1] if said else f"{command[0]}: exit status {done.returncode}", done.returncode)
    return done.stdout


def json_lines(command):
    """Returns the JSON objects that COMMAND prints. C prints NaN and infinity in its own way."""
    return [json.loads(re.sub(r":-?nan\b", ":NaN", line)) for line in output(command).splitlines() if line.startswith("{")]


def note(text):
    print(text, file=sys.stderr, flush=True)
