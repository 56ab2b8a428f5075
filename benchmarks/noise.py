"""noise - other programs' use of the machine during a measurement."""

import os
import statistics

ALLOWED = 0.05  # if other programs take a larger share of the cores, the machine is not quiet
SLOWED = 0.85  # if the median rate of multiply-adds over the best is lower, something unseen slows the cores


def processor_seconds():
    """Returns (all, idle, stolen by other machines): seconds of all cores since the machine started."""
    with open("/proc/stat") as stat:
        ticks = [int(word) for word in stat.readline().split()[1:9]]
    user, nice, system, idle, waiting, interrupts, soft, stolen = (tick / os.sysconf("SC_CLK_TCK") for tick in ticks)
    return user + nice + system + idle + waiting + interrupts + soft + stolen, idle + waiting, stolen


def ours():
    """Returns the processor seconds of this process and of the processes that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def runnable():
    """Returns the number of other threads that are ready to run."""
    with open("/proc/loadavg") as load:
        return max(0, int(load.read().split()[3].partition("/")[0]) - 1)


class Watch:
    """Adds up the time that other programs took within a block: with watch: run(...)."""

    def __init__(self):
        self.all = self.others = self.stolen = 0.0
        self.queue = 0
        self.rates = {}  # rates of multiply-adds between steps, by dtype

    def __enter__(self):
        self.queue = max(self.queue, runnable())
        self.began = processor_seconds(), ours()

    def __exit__(self, *_):
        before, own = self.began
        every, idle, stolen = (now - then for now, then in zip(processor_seconds(), before))
        self.all += every
        self.stolen += stolen
        self.others += max(0.0, every - idle - stolen - (ours() - own))

    def saw(self, line):
        """Notes the rates in LINE, a program's output, if it has any."""
        rates = [line[name] for name in ("fma_gflops", "fma_gflops_min") if line.get(name)]
        self.rates.setdefault(line.get("dtype"), []).extend(rates)

    def told(self):
        cores, every = os.cpu_count(), max(self.all, 1e-9)
        told = {"others": cores * self.others / every, "stolen": cores * self.stolen / every, "queue": self.queue}
        speeds = [statistics.median(rates) / max(rates) for rates in self.rates.values() if rates]
        if speeds:
            told["speed"] = min(speeds)
        told["quiet"] = (self.others + self.stolen) / every <= ALLOWED and told.get("speed", 1) >= SLOWED
        return told


def sentence(told):
    """Returns the reason why the machine was not quiet."""
    reasons = []
    if told["others"] >= 0.01:
        reasons.append(f"other processes took {told['others']:.2f} cores")
    if told["stolen"] >= 0.01:
        reasons.append(f"other machines took {told['stolen']:.2f} cores")
    if told.get("speed", 1) < SLOWED:
        reasons.append(f"the cores' multiply-adds ran at {100 * told['speed']:.0f} % of their best rate")
    return ", ".join(reasons) or "others used it"
