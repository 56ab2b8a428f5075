#!/usr/bin/env python3
"""relay.py DRIVERS - two network namespaces act as hosts. Packets between them go through this program, by /dev/net/tun: it drops
packets, doubles them, and delays each for another time, so their order changes. A run by MPI over both hosts ends with the bytes of
a run by threads. If the network falls silent, the run ends with a verdict. Prints TAP. With SL_TEST_LONG set, more and worse
networks."""

import ctypes
import fcntl
import hashlib
import heapq
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

drivers = os.path.abspath(sys.argv[1])
long = bool(os.environ.get("SL_TEST_LONG"))
TUNSETIFF, TUN_WITHOUT_HEADER, NEW_NETWORK = 0x400454CA, 0x1001, 0x40000000
hosts = [f"slr{number}-{os.getpid()}" for number in (1, 2)]
points = 0


def skip(reason):
    print(f"1..0 # SKIP {reason}")
    sys.exit()


def point(name, bad):
    global points
    points += 1
    print(f"{'not ' if bad else ''}ok {points} - {name}", flush=True)
    for line in bad:
        print(f"# {line}")


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True).returncode == 0


def open_cable(host, address):
    """Returns the end of a cable in the host's namespace: reading takes the packets that the host sends, writing gives it packets.
    The calling thread, a child's, moves to the namespace."""
    with open(f"/var/run/netns/{host}") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "setns")
    cable = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(cable, TUNSETIFF, struct.pack("16sH22s", b"cable", TUN_WITHOUT_HEADER, b""))
    for words in (("link", "set", "lo", "up"), ("addr", "add", f"{address}/24", "dev", "cable"), ("link", "set", "cable", "up")):
        subprocess.run(["ip", *words], check=True)
    return cable


def relay(loss, double, delay, ready, silent_at=None):
    """Runs until it is killed. Writes its counts of packets to READY after each change."""
    cables = [open_cable(host, f"10.214.77.{number + 1}") for number, host in enumerate(hosts)]
    chance, waiting, order = random.Random(1), [], 0
    counts = {"relayed": 0, "lost": 0, "doubled": 0, "overtaken": 0}
    last, told, began = [0, 0], 0.0, time.monotonic()
    os.write(ready, b"ready\n")
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, number, to, packet = heapq.heappop(waiting)
            counts["overtaken"] += number < last[to]
            last[to] = max(last[to], number)
            counts["relayed"] += 1
            try:
                os.write(cables[to], packet)
            except OSError:
                pass  # its queue is full: lost
        if now > told + 0.2:
            os.pwrite(ready, (" ".join(f"{word} {count}" for word, count in counts.items()) + "\n").ljust(100).encode(), 6)
            told = now
        readable, _, _ = select.select(cables, [], [], min(0.2, max(0, waiting[0][0] - now)) if waiting else 0.2)
        for cable in readable:
            packet = os.read(cable, 65536)
            if silent_at is not None and now > began + silent_at or chance.random() < loss:
                counts["lost"] += 1
                continue
            twice = chance.random() < double
            counts["doubled"] += twice
            for _ in range(1 + twice):
                order += 1
                heapq.heappush(waiting, (now + chance.uniform(*delay), order, 1 - cables.index(cable), packet))


class Network:
    """Two hosts, and the relay between them in a process of its own."""

    def __init__(self, *how, **more):
        for host in hosts:
            ip("netns", "add", host)
        self.told = os.open(os.path.join(work, "told"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.child = os.fork()
        if not self.child:
            try:
                relay(*how, self.told, **more)
            finally:
                os._exit(1)
        end = time.monotonic() + 5
        while not os.pread(self.told, 6, 0) and time.monotonic() < end:
            time.sleep(0.01)

    def close(self):
        """Returns the relay's counts."""
        words = os.pread(self.told, 200, 6).decode().split()
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)
        os.close(self.told)
        for host in hosts:
            for process in subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True).stdout.split():
                os.kill(int(process), signal.SIGKILL)
            ip("netns", "del", host)
        return {word: int(count) for word, count in zip(words[::2], words[1::2])}


def run(engine, *more, seconds=90):
    """Returns status and stderr of the run."""
    job = [os.path.join(drivers, "looping_pipeline"), "--hidden", "64", "--batch", "32", "--microbatches", "4", "--layers", "4", "--mesh", "data=2,model=2",
           "--save", saved, "--engine", engine, *(more or ("--steps", "12"))]
    shutil.rmtree(saved, ignore_errors=True)
    if engine == "mpi":
        job = ["ip", "netns", "exec", hosts[0], "unshare", "--uts", "sh", "-c", f'hostname {hosts[0]}; exec "$@"', "sh", "mpirun", "--oversubscribe",
               "--bind-to", "none", "--host", "10.214.77.1:2,10.214.77.2:2", "-n", "4", *job]
    with open(os.path.join(work, "err"), "w+") as err:
        process = subprocess.Popen(job, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, env=environment, start_new_session=True)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = "hangs"
        err.seek(0)
        return status, err.read()


def checkpoint():
    names = sorted(name for name in os.listdir(saved)) if os.path.isdir(saved) else []
    if not names:
        return "none"
    with open(os.path.join(saved, names[-1]), "rb") as file:
        return names[-1] + " " + hashlib.sha256(file.read()).hexdigest()


if not shutil.which("mpirun") or "Open MPI" not in subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout:
    skip("Open MPI is not installed")
if not shutil.which("ip"):
    skip("iproute2 is not installed")
if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
    skip("/dev/net/tun cannot be opened here")
if not ip("netns", "add", hosts[0]) or not ip("netns", "exec", hosts[0], "true"):
    skip("network namespaces are not allowed here")
ip("netns", "del", hosts[0])
work = tempfile.mkdtemp()
saved = os.path.join(work, "saved")
remote = os.path.join(work, "remote")  # takes the place of ssh
with open(remote, "w") as script:
    script.write(f'#!/bin/sh\nhost=slr${{1##*.}}-{os.getpid()}\nshift\nexec ip netns exec $host unshare --uts sh -c "hostname $host; $*"\n')
os.chmod(remote, 0o755)
environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm_rsh_agent": remote,
               "OMPI_MCA_btl": "tcp,vader,self", "OMPI_MCA_btl_tcp_if_include": "10.214.77.0/24", "OMPI_MCA_oob_tcp_if_include": "10.214.77.0/24"}

networks = [("loses 1 % of the packets, doubles 5 %, holds them back for up to 3 ms", 0.01, 0.05, (0, 0.003))]
if long:
    networks += [("holds packets back for 1 ms", 0, 0, (0.001, 0.001)), ("doubles half of the packets", 0, 0.5, (0, 0.0005)),
                 ("loses 5 % of the packets", 0.05, 0, (0, 0.0005)), ("holds packets back for up to 20 ms", 0, 0, (0, 0.02)),
                 ("loses 3 %, doubles 20 %, holds back for up to 10 ms", 0.03, 0.2, (0, 0.01))]
run("local")
whole = checkpoint()
for name, loss, double, delay in networks:
    network = Network(loss, double, delay)
    began = time.monotonic()
    status, err = run("mpi")
    seconds = time.monotonic() - began
    counts = network.close()
    bad = [] if status == 0 and checkpoint() == whole != "none" else [f"status {status}, {checkpoint()} in place of {whole}: {err[-500:]!r}"]
    wanted = (("lost", loss), ("doubled", double), ("overtaken", delay[1] - delay[0]))
    bad += [f"no packet was {word}" for word, share in wanted if share and not counts.get(word)]
    point(f"the network {name}: the same bytes", bad)
    print(f"# {seconds:.1f} s; packets: {', '.join(f'{count} {word}' for word, count in counts.items())}")
if long:
    network = Network(0, 0, (0, 0.001), silent_at=6)
    status, err = run("mpi", "--steps", "1000000", "--timeout", "2", seconds=20)  # Open MPI's launcher waits for the other host's
    network.close()
    point("the network falls silent: a verdict", [] if status != 0 and "no sign of it for 2 s" in err else [f"status {status}: {err[-800:]!r}"])
print(f"1..{points}")
shutil.rmtree(work)
