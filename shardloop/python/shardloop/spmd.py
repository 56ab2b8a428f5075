"""Meshes, and programs that run at each of their coordinates, on threads of this process."""
import ctypes
import sys
import threading

import numpy

from shardloop import library
from shardloop.library import Error, check, lib

_DTYPES = {"float32": library.F32, "bfloat16": library.BF16, "int32": library.I32}
_sites = {} # the lines of calls, which verdicts name: they outlive every run


class Mesh:
    """Named axes: Mesh("data=2,model=4"). The last axis is the fastest; `axes` is {name: size}."""

    def __init__(self, text):
        self._struct, error = library.sl_mesh(), library.sl_error()
        check(lib.sl_mesh_parse(self._struct, str(text).encode(), error), error)
        self.text = str(text)
        self.size = self._struct.size
        self.axes = {axis.name.decode(): axis.size for axis in self._struct.axis[:self._struct.axes]}

    def index(self, coordinate, axis):
        """COORDINATE's index along AXIS."""
        if not 0 <= coordinate < self.size:
            raise IndexError(f"there are {self.size} coordinates, not one called {coordinate}")
        return lib.sl_mesh_index(self._struct, coordinate, list(self.axes).index(axis)) if axis in self.axes else 0

    def __repr__(self):
        return f"Mesh({self.text!r})"


class _Ended(Exception):
    """The run has ended at another coordinate, or a call was refused: the struct of this one has the line."""


class Coordinate:
    """The place at which a program runs, as the program sees it. Arrays are numpy's, of float32, int32 or bfloat16; results are
    new arrays. AXIS is an axis of the mesh, several with commas between them, or "*" for all. All members of a group
    make the same calls over it, in the same order. Of use only while the program runs, and in its thread."""

    def __init__(self, pointer, mesh, interrupted):
        self._self, self.mesh, self.coordinate = pointer, mesh, pointer.contents.coordinate
        self._interrupted = interrupted
        self._groups, self._thread, self._has_ended = {}, threading.get_ident(), False
        for axis in [*mesh.axes, "*"]: # at every coordinate, whichever it uses
            self._group(axis)

    def axis_index(self, axis):
        return self.mesh.index(self.coordinate, axis)

    def axis_size(self, axis):
        return self.mesh.axes.get(axis, 1)

    def _try(self, status):
        if status != library.OK:
            raise _Ended(status)

    def _group(self, axis):
        if self._interrupted.is_set():
            raise KeyboardInterrupt
        if self._has_ended or self._thread != threading.get_ident():
            raise RuntimeError("a coordinate belongs to the thread of its program, while that runs")
        if axis not in self._groups:
            group = library.sl_group()
            self._try(lib.sl_group_axes(self._self, str(axis).encode(), group))
            self._groups[axis] = group
        return self._groups[axis]

    def _make(self, call):
        frame = sys._getframe(1)
        while frame.f_code.co_filename == __file__ and frame.f_back:
            frame = frame.f_back
        site = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self._try(lib.sl_call(self._self, _sites.setdefault(site, site.encode("utf-8", "replace")), call))

    def _call(self, name, axis, x, out_shape, *arguments):
        """The call sl_describe_NAME(group, dtype, x, out, ...) over AXIS."""
        group = self._group(axis)
        out = numpy.empty(out_shape, x.dtype)
        call = getattr(lib, "sl_describe_" + name)(group, _DTYPES[x.dtype.name], x.ctypes.data, out.ctypes.data,
                                                   *arguments)
        self._make(call)
        return out

    def psum(self, x, axis):
        """The sum of X over the coordinates along AXIS, in their order."""
        x = _array(x)
        return self._call("psum", axis, x, x.shape, x.size)

    def pmean(self, x, axis):
        """The mean; of floats."""
        x = _array(x)
        if x.dtype == numpy.int32:
            raise TypeError("pmean: int32 has no mean: use float32")
        return self._call("pmean", axis, x, x.shape, x.size)

    def pmax(self, x, axis):
        """The elementwise maximum; a NaN anywhere gives NaN."""
        x = _array(x)
        return self._call("pmax", axis, x, x.shape, x.size)

    def broadcast(self, x, axis, root=0):
        """X of the member at position ROOT; all give an X of the same shape."""
        x = _array(x)
        size = self._group(axis).size
        if not 0 <= root < size:
            raise ValueError(f"broadcast: root {root} is none of the {size} coordinates along {axis}")
        return self._call("broadcast", axis, x, x.shape, x.size, root)

    def ppermute(self, x, axis, permutation):
        """X of the member that sends to this one: PERMUTATION has pairs (source, destination). Else zeros."""
        x = _array(x)
        pairs = numpy.ascontiguousarray(permutation, numpy.int32).reshape(-1, 2)
        return self._call("ppermute", axis, x, x.shape, x.size, len(pairs), pairs.ctypes.data)

    def all_gather(self, x, axis, dim=0):
        """The members' X side by side along DIM."""
        x = _array(x)
        dim, size = _dim(x, dim), self._group(axis).size
        shape = list(x.shape)
        shape[dim] *= size
        return self._call("all_gather_dim", axis, x, shape, x.ndim, x.ctypes.shape_as(ctypes.c_size_t), dim)

    def psum_scatter(self, x, axis, dim=0):
        """This coordinate's part along DIM of the sum of all members' X."""
        x = _array(x)
        dim = _dim(x, dim)
        shape = _divided(x, dim, self._group(axis).size, "psum_scatter", axis)
        return self._call("psum_scatter_dim", axis, x, shape, x.ndim, x.ctypes.shape_as(ctypes.c_size_t), dim)

    def all_to_all(self, x, axis, split, concat):
        """Parts of X along SPLIT go to the members; the members' parts lie side by side along CONCAT."""
        x = _array(x)
        split, concat = _dim(x, split), _dim(x, concat)
        if split == concat:
            raise ValueError("all_to_all: split and concat are the same dim")
        size = self._group(axis).size
        shape = _divided(x, split, size, "all_to_all", axis)
        shape[concat] *= size
        return self._call("all_to_all", axis, x, shape, x.ndim, x.ctypes.shape_as(ctypes.c_size_t), split, concat)

    def barrier(self, axis="*"):
        """Returns when all members have come as far."""
        self._make(lib.sl_describe_barrier(self._group(axis)))

    def progress(self):
        """Tells the others that this coordinate computes: one that is not heard of for `timeout` seconds is absent."""
        self._group("*")
        self._try(lib.sl_progress(self._self))


def _array(x):
    x = numpy.asarray(x)
    if x.dtype == numpy.float64 and x.ndim == 0:
        x = x.astype(numpy.float32) # a number of Python's
    if x.dtype.name not in _DTYPES or not x.dtype.isnative:
        raise TypeError(f"an array of {x.dtype}: use one of {', '.join(_DTYPES)}")
    if x.ndim > library.MAX_DIMS:
        raise ValueError(f"an array of {x.ndim} dims: the most are {library.MAX_DIMS}")
    return x.copy() if x.ndim == 0 else numpy.ascontiguousarray(x)


def _dim(x, dim):
    if not -x.ndim <= dim < x.ndim:
        raise ValueError(f"dim {dim} of an array of {x.ndim} dims")
    return dim % x.ndim


def _divided(x, dim, size, name, axis):
    if x.shape[dim] % size:
        raise ValueError(f"{name}: dim {dim} of {x.shape[dim]} does not divide by the {size} coordinates along {axis}")
    shape = list(x.shape)
    shape[dim] //= size
    return shape


def run(mesh, program, *arguments, timeout=30.0, checked=True):
    """Calls PROGRAM(coordinate, *ARGUMENTS) at each coordinate of MESH, a Mesh or its text, in a thread for each. Returns
    the results by coordinate.

    An exception of PROGRAM ends the run for all, and is the cause of the Error that this raises; so does a call that
    another coordinate does not make (`checked`), or waits for longer than TIMEOUT seconds. Programs share Python's lock:
    numpy's and the library's functions run at the same time, Python's own lines one after another."""
    mesh = mesh if isinstance(mesh, Mesh) else Mesh(mesh)
    if not timeout > 0:
        raise ValueError(f"timeout is {timeout}, and must be above 0 seconds")
    engine, error, verdict = library.sl_engine(), library.sl_error(), library.sl_error()
    check(lib.sl_engine_open(engine, b"local", error), error)
    engine.timeout, engine.checked, engine.error = timeout, checked, ctypes.pointer(verdict)
    results, raised, status, interrupted = [None] * mesh.size, [], [], threading.Event()

    def at_coordinate(pointer, unused):
        coordinate = None
        try:
            coordinate = Coordinate(pointer, mesh, interrupted)
            results[coordinate.coordinate] = program(coordinate, *arguments)
            return library.OK
        except _Ended as ended:
            return ended.args[0]
        except BaseException as exception: # it ends the run: nothing goes on above a callback
            raised.append(exception)
            line = f"{type(exception).__name__}: {exception}".encode("utf-8", "replace").replace(b"\0", b"")
            return lib.sl_fail(pointer, library.FAILED, b"%s", line[:700])
        finally:
            if coordinate:
                coordinate._has_ended = True

    callback = library.PROGRAM(at_coordinate)
    # Beside the caller's thread, which then hears of Ctrl-C: the run ends with the next call of a coordinate.
    has_ended = threading.Event()

    def run_all():
        status.append(lib.sl_run(mesh._struct, engine, callback, None))
        has_ended.set()
    threading.Thread(target=run_all).start()
    while not has_ended.is_set():
        try:
            has_ended.wait(0.1)
        except KeyboardInterrupt:
            interrupted.set()
    if interrupted.is_set():
        raise KeyboardInterrupt
    if status[0] != library.OK:
        line = verdict.message.decode("utf-8", "replace") or f"a program returned status {status[0]}"
        raise Error(line, status[0]) from (raised[0] if raised else None)
    return results
