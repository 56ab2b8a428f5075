"""Plans of runs, by the command shardloop plan."""
import json
import os
import subprocess

from shardloop import library


def plan(what, driver, **options):
    """The output of `shardloop plan WHAT --driver DRIVER`, as a list of dicts: WHAT is "memory" (a dict for each
    coordinate) or "search" (a dict for each layout). OPTIONS are the driver's: mesh="data=2,model=2", wgrad_group=2, and
    True for an option without a value. The command is $SHARDLOOP_COMMAND, or shardloop on the path."""
    call = [os.environ.get("SHARDLOOP_COMMAND", "shardloop"), "plan", str(what), "--driver", str(driver), "--json"]
    for name, value in options.items():
        if value is not None and value is not False:
            call.append("--" + name.replace("_", "-"))
            if value is not True:
                call.append(str(value))
    done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise library.Error(done.stderr.strip() or f"{call[0]} ended with status {done.returncode}", done.returncode)
    return [json.loads(line) for line in done.stdout.splitlines()]
