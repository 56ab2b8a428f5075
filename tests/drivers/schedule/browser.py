#!/usr/bin/env python3
"""browser.py BROWSER PAGE [DRAWING] - opens a page of the driver schedule in a headless Chromium, moves the mouse over
it, and turns its wheel; prints "boxes N", or, if the page is wrong, a line, with status 1. DRAWING is the same as SVG:
the page's text for a box is the title of the box in it."""
import json
import os
import re
import subprocess
import sys
import tempfile

WIDTH, HEIGHT = 1200, 700


def require(condition, *what):
    if not condition:
        sys.exit("page: " + " ".join(map(str, what)))


class Browser:
    """The browser's protocol over the two pipes of --remote-debugging-pipe: each message is JSON and a zero byte."""

    def __init__(self, path, profile):
        to_browser, self.writing = os.pipe()
        self.reading, from_browser = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
                 f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}", "about:blank"]
        # The browser expects the pipes at descriptors 3 and 4.
        shell = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(["bash", "-c", shell, path, *flags], pass_fds=(to_browser, from_browser),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.pending, self.number, self.session, self.events = b"", 0, None, []

    def receive(self):
        while b"\0" not in self.pending:
            more = os.read(self.reading, 1 << 16)
            require(more, "the browser has ended")
            self.pending += more
        message, self.pending = self.pending.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                require("error" not in answer, method, answer.get("error"))
                return answer["result"]
            self.events.append(answer)

    def wait(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.receive())

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        require("exceptionDetails" not in answer, expression, answer.get("exceptionDetails"))
        return answer["result"].get("value")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)


def titles_of(path):
    """Returns (row, action, stage, microbatches, begin, end) of each box of a drawing."""
    pattern = re.compile(r"<title>(?:(\S+): )?(?:stage (\d+), )?(\D+?)(?: of microbatch ([\d to]+))?, (\S+) to (\S+) ms</title>")
    with open(path) as file:
        return {(row, action, stage, microbatch, float(begin), float(end))
                for row, stage, action, microbatch, begin, end in pattern.findall(file.read())}


def check_hover(browser, titles, layer, number):
    x, y = browser.value(f"placeOf({layer}, 'forward', {number})")
    browser.mouse("mouseMoved", x, y)
    said = browser.value("said.innerText")
    told = re.match(r"(?:(\S+): )?(.+), stage (\d+), microbatch(?:es)? ([\d to]+) \(rank \d+(?:, loop \d+)?\)", said)
    require(told, "of a box it says", said)
    names = {row for row, *_ in titles}
    lines = [line.split("\t") for line in said.splitlines()[1:] if re.match(r"[^\t]+\t[-+\d.e]+\t[-+\d.e]+\t[-+\d.e]+$", line)]
    require(lines, "of times it says", said)
    of_actions = [line for line in lines if line[0] != "difference"]
    for name, begin, end, takes in of_actions:
        found = [t for t in titles if t[1:4] == (told[2], told[3], told[4]) and (t[0] == name or name not in names) and
                 all(abs(a - float(b)) <= 1e-3 * max(1, abs(a)) for a, b in ((t[4], begin), (t[5], end), (t[5] - t[4], takes)))]
        require(found, "no box of the drawing is", name, told[0], begin, end, takes)
    if {"predicted", "measured"} <= names:
        require([line[0] for line in lines] == ["predicted", "measured", "difference"], "there are not both times:", said)
        require(abs(float(lines[1][3]) - float(lines[0][3]) - float(lines[2][3])) <=
                1e-3 * max(float(line[3]) for line in of_actions), "difference:", said)


def view_of(browser):
    return [float(number) for number in browser.value("document.documentElement.dataset.view").split()]


def check_zoom(browser):
    whole = view_of(browser)
    x, y = browser.value("placeOf(0, 'forward', 0)")
    x = round(x)
    time = browser.value(f"timeAt({x})")
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-1000)
    near = view_of(browser)
    require(near[1] - near[0] < (whole[1] - whole[0]) / 4, "the wheel does not zoom:", whole, near)
    require(near[0] <= time <= near[1] and abs(browser.value(f"timeAt({x})") - time) < .01 * (near[1] - near[0]),
            "what is under the mouse moves away:", near, time)
    middle = [WIDTH / 2, y]
    browser.mouse("mousePressed", *middle, button="left", clickCount=1)
    browser.mouse("mouseMoved", middle[0] - 100, y, button="left")
    browser.mouse("mouseReleased", middle[0] - 100, y, button="left", clickCount=1)
    moved = view_of(browser)
    require(moved[0] > near[0] and abs((moved[1] - moved[0]) - (near[1] - near[0])) < 1e-6 * whole[1], "it does not move:", near, moved)
    for clicks in 1, 2:
        browser.mouse("mousePressed", *middle, button="left", clickCount=clicks)
        browser.mouse("mouseReleased", *middle, button="left", clickCount=clicks)
    require(view_of(browser) == whole, "a double click does not show all:", view_of(browser))
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="+", text="+")
    require(view_of(browser)[1] - view_of(browser)[0] < whole[1] - whole[0], "+ does not zoom")


def check(browser, page, drawing):
    target = browser.call("Target.createTarget", url="about:blank")["targetId"]
    browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in "Runtime", "Log", "Page", "Network":
        browser.call(domain + ".enable")
    browser.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)
    browser.call("Page.navigate", url="file://" + os.path.abspath(page))
    browser.wait("Page.loadEventFired")
    boxes = int(browser.value("document.documentElement.dataset.boxes"))
    if drawing:
        titles = titles_of(drawing)
        for layer in range(browser.value("data.layers.length")):
            for number in range(0, boxes, max(1, boxes // 4)):
                if browser.value(f"tracks[{layer}].flatMap(t => t.main).filter(b => data.kinds[b.kind][0] == 'forward').length") > number:
                    check_hover(browser, titles, layer, number)
    check_zoom(browser)
    for event in browser.events:
        method, params = event.get("method"), event.get("params", {})
        require(method != "Runtime.exceptionThrown", "the script fails:", params)
        require(method != "Log.entryAdded" or params["entry"]["level"] != "error", params)
        require(method != "Network.requestWillBeSent" or params["request"]["url"].startswith("file:"), "it loads", params)
    print("boxes", boxes)


def main():
    path, page, *drawing = sys.argv[1:]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(path, profile)
        try:
            check(browser, page, drawing[0] if drawing else None)
        finally:
            browser.process.kill()
            browser.process.wait()


main()
