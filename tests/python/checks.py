"""checks.py SIZES DATA COMMAND - the package shardloop, as it is installed; a line "ok NAME" or "not ok NAME: WHY" a check.

SIZES has a line "NAME BYTES" for each struct of the C headers; COMMAND is the command shardloop."""
import ctypes
import os
import signal
import sys
import tempfile
import threading
import time

import numpy as np

import shardloop as sl
from shardloop import library

SIZES, DATA, COMMAND = sys.argv[1:4]


def refused(text, call, kind=sl.Error, status=2):
    try:
        result = call()
    except kind as error:
        assert text in str(error), f"{error!r} has no {text!r}"
        assert kind is not sl.Error or error.status == status, f"status {error.status}"
        return error
    raise AssertionError(f"{text!r} was expected, not {result!r}")


def the_structs_have_the_sizes_of_c():
    sizes = dict(line.split() for line in open(SIZES))
    for name, size in sizes.items():
        struct, _, field = name.partition(".")
        own = getattr(getattr(library, struct), field).offset if field else ctypes.sizeof(getattr(library, struct))
        assert own == int(size), f"{name}: {own}, in C {size}"
    assert len(sizes) > 15


def a_mesh_is_read():
    mesh = sl.Mesh("data=2,model=3")
    assert mesh.size == 6 and mesh.axes == {"data": 2, "model": 3}
    assert [mesh.index(5, axis) for axis in ("data", "model", "other")] == [1, 2, 0]
    refused("'model=0'", lambda: sl.Mesh("model=0"))
    refused("6 coordinates", lambda: mesh.index(6, "data"), IndexError)


def collectives_are_those_of_numpy():
    rng = np.random.default_rng(0)
    # Two blocks are sent and divided along dims of 6 and 4; small whole numbers have exact sums.
    x = rng.integers(-9, 9, (6, 6, 4))
    for dtype in (np.float32, np.int32):
        per = x.astype(dtype)

        def program(c):
            mine = per[c.coordinate]
            out = {"sum": c.psum(mine, "model"), "max": c.pmax(mine, "*"), "both": c.psum(mine, "data,model"),
                   "gather": c.all_gather(mine, "model", dim=1), "scatter": c.psum_scatter(mine, "model"),
                   "across": c.all_to_all(mine, "data", split=1, concat=0),
                   "ring": c.ppermute(mine.T, "model", [(0, 1), (1, 2)]), "root": c.broadcast(mine, "model", 2)}
            if dtype == np.float32:
                out["mean"] = c.pmean(mine, "data")
            c.barrier()
            return out
        for r, out in enumerate(sl.run("data=2,model=3", program)):
            row, place = r // 3, r % 3
            model, data = per[3 * row:3 * row + 3], per[place::3]
            wanted = {"sum": model.sum(0), "max": per.max(0), "both": per.sum(0), "gather": np.concatenate(model, 1),
                      "scatter": model.sum(0)[2 * place:2 * place + 2], "root": model[2],
                      "across": np.concatenate([part[:, 2 * row:2 * row + 2] for part in data]),
                      "ring": model[place - 1].T if place else np.zeros((4, 6)), "mean": data.mean(0)}
            for name, value in out.items():
                assert value.dtype == dtype and np.array_equal(value, wanted[name]), f"{name} at {r}"


def odd_arrays_pass():
    def program(c):
        empty = c.psum(np.zeros((0, 3), np.float32), "x")
        strided = c.psum(np.arange(12, dtype=np.float32)[::3], "x")
        return empty.shape, strided.tolist(), float(c.psum(1.5, "x")), c.axis_index("x"), c.axis_size("x")
    assert sl.run("x=2", program)[1] == ((0, 3), [0, 6, 12, 18], 3.0, 1, 2)


def wrong_calls_are_errors_and_no_crash():
    ones = np.ones(4, np.float32)
    for kind, text, call in (
            (TypeError, "an array of float64", lambda c: c.psum(np.ones(3), "x")),
            (TypeError, "an array of <U1", lambda c: c.psum("a", "x")),
            (TypeError, "an array of >f4", lambda c: c.psum(np.ones(3, ">f4"), "x")),
            (TypeError, "int32 has no mean", lambda c: c.pmean(np.ones(3, np.int32), "x")),
            (ValueError, "7 dims", lambda c: c.psum(np.ones((1,) * 7, np.float32), "x")),
            (ValueError, "dim 0 of 4 does not divide by the 3", lambda c: c.psum_scatter(ones, "x")),
            (ValueError, "dim 1 of an array of 1 dims", lambda c: c.all_gather(ones, "x", 1)),
            (ValueError, "same dim", lambda c: c.all_to_all(np.ones((3, 3), np.float32), "x", 0, 0)),
            (ValueError, "root 3", lambda c: c.broadcast(ones, "x", 3))):
        error = refused(text, lambda: sl.run("x=3", call), status=3)
        assert type(error.__cause__) is kind, repr(error.__cause__)
    refused('"nope" is not a list of axes', lambda: sl.run("x=3", lambda c: c.psum(ones, "nope")))
    refused("the pair (0, 7)", lambda: sl.run("x=3", lambda c: c.ppermute(ones, "x", [(0, 7)])))
    refused("timeout is 0", lambda: sl.run("x=3", lambda c: None, timeout=0), ValueError)


def a_run_ends_for_all_with_one_line():
    def differs(c):
        return c.psum(np.ones(2 + c.coordinate, np.float32), "x")
    refused('calls over "x" differ', lambda: sl.run("x=2", differs), status=3)
    assert os.path.basename(__file__) in str(refused("returned", lambda: sl.run(
        "x=3", lambda c: c.coordinate and c.psum(np.ones(1, np.float32), "x")), status=3))

    def raises(c):
        if c.coordinate == 1:
            raise KeyError("lost\nkey %s")
        c.psum(np.ones(1, np.float32), "x")
    error = refused("coordinate 1 (x=1): KeyError", lambda: sl.run("x=3", raises), status=3)
    assert isinstance(error.__cause__, KeyError)


def ctrl_c_ends_a_run():
    def program(c):
        if c.coordinate == 0:
            os.kill(os.getpid(), signal.SIGINT)
        begin = time.monotonic()
        while c.psum(np.float32(time.monotonic() - begin), "x") < 20:
            pass
    signal.signal(signal.SIGINT, signal.default_int_handler) # a shell's background has none
    try:
        sl.run("x=2", program)
        assert False, "it has returned"
    except KeyboardInterrupt:
        pass
    assert sl.run("x=2", lambda c: int(c.psum(np.int32(1), "x"))) == [2, 2]


def a_coordinate_is_of_its_thread_and_run():
    kept = sl.run("x=1", lambda c: c)[0]
    refused("belongs to the thread", lambda: kept.psum(np.ones(1, np.float32), "x"), RuntimeError)

    def other_thread(c):
        said = []

        def call():
            try:
                c.barrier()
            except RuntimeError as error:
                said.append(str(error))
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return said
    assert "belongs to the thread" in sl.run("x=1", other_thread)[0][0]


def schedules_are_proven_and_simulated():
    schedule = sl.Schedule("1f1b", 2, 3)
    assert "1f1b" in sl.schedule_names() and schedule.stash == [2, 1]
    assert str(schedule).splitlines()[1] == "rank 1:   . 1F0 1B0 1F1 1B1 1F2 1B2", str(schedule)
    assert [a.kind for a in schedule.actions(1)][:3] == ["take of the activation", "forward", "backward"]
    told = schedule.simulate(forward=1, input_gradient=1, weight_gradient=1)
    assert told == {"step": 12, "bubble": 0.25}, told # (ranks - 1) / (microbatches + ranks - 1)
    path = os.path.join(FOLDER, "table.csv")
    schedule.write_csv(path)
    assert str(sl.Schedule.read_csv(path)) == str(schedule)
    refused('there is no schedule "nope"', lambda: sl.Schedule("nope", 2, 2))
    refused("missing.csv", lambda: sl.Schedule.read_csv("missing.csv"))
    refused("ranks is 2.5", lambda: sl.Schedule("1f1b", 2.5, 2), ValueError)
    refused("2 ranks", lambda: schedule.actions(2), IndexError)
    refused("cannot be written", lambda: schedule.write_csv("/dev/full"), OSError)


def tensors_are_what_was_written():
    path = os.path.join(FOLDER, "tensors")
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3).T, "b": np.array([1, -2], np.int32),
               "half": np.ones(3, np.float16), "number": np.float32(3), "none": np.zeros((0, 2), np.float32)}
    sl.write_tensors(path, tensors, {"key": "text \u00e4"}, checksums=True)
    read, notes = sl.read_tensors(path)
    assert notes["key"] == "text \u00e4" and sorted(read) == sorted(tensors)
    for name, array in tensors.items():
        assert read[name].dtype == array.dtype and read[name].shape == array.shape, name
        assert np.array_equal(read[name], array), name
    data = bytearray(open(path, "rb").read())
    data[-1] ^= 1
    open(path, "wb").write(data)
    refused("damaged", lambda: sl.read_tensors(path))
    header = b'{"x":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    open(path, "wb").write(len(header).to_bytes(8, "little") + header + b"\x80\x3f\x00\xc0")
    assert sl.read_tensors(path)[0]["x"].tolist() == [1, -2]
    refused("float64", lambda: sl.write_tensors(path, {"a": np.ones(3)}), TypeError)
    refused("128 bytes", lambda: sl.write_tensors(path, {"n" * 128: np.ones(3, np.float32)}), ValueError)
    refused("zero character", lambda: sl.write_tensors(path, {}, {"k": "\0"}), ValueError)
    refused("No such file", lambda: sl.write_tensors("/nonexistent/x", {"a": np.ones(3, np.float32)}))
    refused("/dev/full", lambda: sl.write_tensors("/dev/full", {"a": np.ones(3, np.float32)}))


def checkpoints_are_read():
    values, state, notes = sl.read_checkpoint(os.path.join(DATA, "run"))
    assert notes["step"] == "2" and values["blocks.0.input_dense.kernel"].shape == (8, 8)
    assert set(values) == {name for moment, name in state if moment == "first_moment"}
    assert sl.latest_checkpoint(os.path.join(DATA, "run")).endswith("step-00000002.safetensors")
    path = os.path.join(FOLDER, "none")
    sl.write_tensors(path, {"a": np.ones(1, np.float32)})
    refused("no checkpoint", lambda: sl.read_checkpoint(path))
    refused("no checkpoint", lambda: sl.latest_checkpoint(FOLDER))


def metrics_are_columns():
    path = os.path.join(DATA, "metrics")
    table, last = sl.read_metrics(path)
    assert table["step"].tolist() == [0, 1] and table["loss"][1] == last["final_loss"], (table, last)
    part = os.path.join(FOLDER, "part")
    open(part, "w").write('{"step":0,"loss":1,"norm":null}\n{"step":1,"loss":2,"eval_loss":5}\n{"step":2,"lo')
    table, last = sl.read_metrics(part)
    assert table["loss"].tolist() == [1, 2] and np.isnan(table["eval_loss"][0]) and last == {} and "norm" not in table
    open(part, "w").write("[1]\n")
    refused("line 1: no line of metrics", lambda: sl.read_metrics(part))


def plans_are_those_of_the_command():
    os.environ["SHARDLOOP_COMMAND"] = COMMAND
    told = sl.plan("memory", "looping_pipeline", mesh="data=1,model=2", layers=2, hidden=8, loops=1, overlap=False)
    assert [line["coordinate"] for line in told if "coordinate" in line] == [0, 1] and told[0]["parameters"] > 0, told
    refused("'x' is not NAME=SIZE", lambda: sl.plan("memory", "looping_pipeline", mesh="x"))


with tempfile.TemporaryDirectory() as FOLDER:
    for name, check in list(globals().items()):
        if callable(check) and getattr(check, "__module__", "") == "__main__" and name not in ("refused",):
            try:
                check()
                print("ok", name.replace("_", " "))
            except Exception as error:
                print("not ok", name.replace("_", " ") + ":", repr(error).replace("\n", " "))
