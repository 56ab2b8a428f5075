"""device.py - PTX given as text, translated and executed: the executor's functions for tests (executor/launch.h).

Device(LIBRARY) is the executor's shared library. A fault ends the process that it happens in, so launches that may have one
run in a child: outcome().
"""
import ctypes
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "translate"))
import text  # noqa: E402 (its folder is the translator's)
import translate  # noqa: E402

HEAD = ".version 8.3\n.target sm_90\n.address_size 64\n"
DEVICE, MANAGED, HOST = 0, 1, 2  # enum ptx_memory
FAULT = 86


class Memory:
    """BYTES that device code may touch. DATA is copied there from the host; None: they are never written."""

    def __init__(self, device, size, data=None, kind=DEVICE):
        self.device, self.size = device, size
        self.room = ctypes.create_string_buffer(size + 1024)
        self.at = (ctypes.addressof(self.room) + 511) // 256 * 256  # others' memory lies at least 256 bytes away
        device.library.ptx_memory_take(ctypes.c_void_p(self.at), ctypes.c_size_t(size), kind)
        if data is not None:
            self.put(data)

    def put(self, data, offset=0, told=True):
        ctypes.memmove(self.at + offset, bytes(data), len(data))
        if told:
            self.device.library.ptx_memory_written(ctypes.c_void_p(self.at + offset), ctypes.c_size_t(len(data)))

    def free(self):
        self.device.library.ptx_memory_free(ctypes.c_void_p(self.at))

    def bytes(self):
        return ctypes.string_at(self.at, self.size)


class Program:
    """A module: its kernels can be launched."""

    def __init__(self, device, source, registers):
        self.device, self.library = device, device.library
        lines = translate.translate([text.Module(HEAD + source)], registers)
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:  # a child may never come to the end of its program
            file.write("".join(json.dumps(line) + "\n" for line in lines))
            file.flush()
            self.module = ctypes.c_void_p(self.library.ptx_open(file.name.encode()))

    def launch(self, name, parameters=b"", blocks=1, threads=32, dynamic=0):
        kernel = ctypes.c_void_p(self.library.ptx_find(self.module, name.encode()))
        self.library.ptx_launch(self.module, kernel, blocks, threads, dynamic, parameters, ctypes.c_size_t(len(parameters)))


class Device:
    def __init__(self, library):
        self.library = ctypes.CDLL(os.path.abspath(library))
        self.library.ptx_open.restype = ctypes.c_void_p
        self.library.ptx_find.restype = ctypes.c_void_p
        self.library.ptx_find.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        self.library.ptx_launch.restype = None

    def memory(self, size, data=None, kind=DEVICE):
        return Memory(self, size, data, kind)

    def program(self, source, registers=None):
        """REGISTERS of a thread, by kernel, as far as ptxas has counted them."""
        return Program(self, source, registers)


def outcome(action, seed=None):
    """(exit status, stderr, result of ACTION as JSON or None) of ACTION() in a child, under SL_PTX_SEED."""
    told, said = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.dup2(told.fileno(), 2)
        if seed is not None:  # C's own environment, which os.environ changes
            os.environ["SL_PTX_SEED"] = str(seed)
        status = 1
        try:
            said.write(json.dumps(action()).encode())
            said.flush()
            status = 0
        except Exception as error:  # pylint: disable=broad-except
            os.write(2, repr(error).encode())
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    told.seek(0)
    said.seek(0)
    text_of = said.read()
    return status, told.read().decode(errors="replace"), json.loads(text_of) if text_of else None


class Points:
    """TAP."""

    def __init__(self):
        self.count = self.failed = 0

    def point(self, good, name, why=""):
        self.count += 1
        self.failed += not good
        print("%sok %d - %s" % ("" if good else "not ", self.count, name))
        for line in ([] if good else str(why).splitlines()[:20]):
            print("# " + line)

    def plan(self):
        print("1..%d" % self.count)
        return 1 if self.failed else 0
