#!/usr/bin/env python3
"""interactive.py DRIVER ARGUMENT... - types at a pseudo terminal, and reads the answers; prints points in TAP without a plan.
The driver's ARGUMENTs are those of a conversation of any text."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

PROMPT = "\n> "  # an editor writes it again without a newline
failed = 0


class Terminal:
    def __init__(self, arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "vt100"
            os.execv(arguments[0], arguments)
        self.text = ""

    def read(self, seconds):
        ready, _, _ = select.select([self.fd], [], [], seconds)
        try:
            more = os.read(self.fd, 65536).decode("utf-8", "replace") if ready else ""
        except OSError:
            more = None
        if more:
            self.text += re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", more)
        return more

    def wait_for(self, what, count=1, seconds=60):
        """Waits until the output contains WHAT for the COUNTth time."""
        end = time.time() + seconds
        while self.text.count(what) < count and time.time() < end:
            if self.read(0.2) is None:
                break
        return self.text.count(what) >= count

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def finish(self, seconds=60):
        """Waits for the driver's end and returns its exit status."""
        end = time.time() + seconds
        while time.time() < end:
            self.read(0.1)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while self.read(0.1):
                    pass
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return None


points = 0


def point(passed, name, terminal):
    global failed, points
    points += 1
    failed += not passed
    print(f"{'ok' if passed else 'not ok'} - {name}")
    if not passed:
        for line in terminal.text[-2000:].splitlines():
            print(f"# {line}")


def main(driver, arguments):
    edits = "libedit" in subprocess.run(["ldd", driver], capture_output=True, text=True).stdout
    one = [driver, *arguments, "--mesh", "data=1", "--answer", "5"]
    piped = subprocess.run(one, input="ab\ncd\n", capture_output=True, text=True).stdout.splitlines()

    t = Terminal(one)
    shown = t.wait_for(PROMPT)
    t.type("axx\x7f\x7fb\n")
    point(shown and t.wait_for(piped[0]) and t.wait_for(PROMPT, 2), "a line that is corrected, and its answer", t)
    t.type("zz\x03")
    given_up = t.wait_for(PROMPT, 3)
    t.type("cd\n")
    point(given_up and t.wait_for(piped[1]) and t.wait_for(PROMPT, 4), "Ctrl-C gives up a line", t)
    t.type("\x04")
    point(t.finish() == 0, "Ctrl-D ends", t)

    if edits:
        t = Terminal(one)
        t.wait_for(PROMPT)
        time.sleep(0.5)  # until the terminal leaves the keys to the editor
        t.type("b\x01a\n")  # to the beginning of the line
        point(t.wait_for(piped[0]) and t.wait_for(PROMPT, 2), "keys move in a line", t)
        before = t.text.count("ab")
        time.sleep(0.5)
        t.type("\x10")  # the line before
        point(t.wait_for("ab", before + 1), "lines before come back", t)
        t.type("\n")
        t.wait_for(PROMPT, 3)
        t.type("\x04")
        t.finish()

    for mesh in "data=1", "pipe=2", "data=2,tensor=2":
        t = Terminal([driver, *arguments, "--mesh", mesh, "--answer", "1000000", "--sequence", "200000", "--length", "200000",
                      "--temperature", "0"])
        t.wait_for(PROMPT)
        before = len(t.text)
        t.type("a\n")
        while len(t.text) < before + 30:
            if t.read(1) is None:
                break
        t.type("\x03")
        back = t.wait_for(PROMPT, 2)
        t.type("\x04")
        point(back and t.finish() == 0, f"Ctrl-C stops an answer on {mesh}", t)

    t = Terminal(one)
    t.wait_for(PROMPT)
    os.kill(t.pid, signal.SIGTERM)
    point(t.finish() == 0, "SIGTERM ends, as Ctrl-D does", t)
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(os.path.abspath(sys.argv[1]), sys.argv[2:]) else 0)
