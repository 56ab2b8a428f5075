"""SPMD programs on meshes of threads, pipeline schedules, and files of runs, by the library shardloop.

docs/python.md shows each part with commands. An input that the library refuses raises Error with the library's line."""
from shardloop.files import latest_checkpoint, read_checkpoint, read_metrics, read_tensors, write_tensors
from shardloop.library import Error
from shardloop.planning import plan
from shardloop.schedules import Action, Schedule, schedule_names
from shardloop.spmd import Coordinate, Mesh, run

__all__ = ["Action", "Coordinate", "Error", "Mesh", "Schedule", "latest_checkpoint", "plan", "read_checkpoint",
           "read_metrics", "read_tensors", "run", "schedule_names", "write_tensors"]
