#!/bin/sh
# slurm.sh DRIVERS SOURCE - a Slurm of one node, started for this test alone: srun starts a run's processes, a task is
# killed, and the batch script of drivers/examples is stopped by its time limit, put back into the queue and goes on;
# prints TAP.
drivers=$(cd "$1" && pwd) source=$2
. "$source/tests/rigs/slurm.sh"
mkdir state spool.n1 bin
ln -s "$drivers/shardloop" bin/shardloop
PATH="$work/bin:$PATH"
port=$((20000 + $$ % 3000 * 3))
write_conf localhost $port >slurm.conf <<END
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=16 State=UNKNOWN
PartitionName=all Nodes=n1 Default=YES MaxTime=INFINITE State=UP
END
needs_pmix
slurmctld -D >slurmctld.log 2>&1 &
controller=$!
slurmd -N n1 -D >slurmd.log 2>&1 &
node=$!
trap 'scancel -u root 2>/dev/null; sleep 0.5; kill $controller $node 2>/dev/null; wait; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

until_true 30 is_idle n1
status=$?
grep -h error slurmctld.log slurmd.log >out
: >err
[ $status = 0 ]
point 'the node comes up'
[ $status = 0 ] || {
    plan
    exit
}

# ---- srun ----

small='--mesh data=2,model=2 --layers 4 --hidden 16 --batch 32 --microbatches 4 --schedule 1f1b'
run() { # ARGUMENT...: four processes
    timeout 120 srun --mpi=pmix -N1 -n4 --kill-on-bad-exit=1 "$drivers/looping_pipeline" --engine mpi $small "$@" >out 2>err </dev/null
    status=$?
}
"$drivers/looping_pipeline" $small --steps 10 --save threads --json >expected 2>err
run --steps 10 --save processes --json
losses() { sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }
[ $status = 0 ] && [ ! -s err ] && cmp -s threads/step-00000010.safetensors processes/step-00000010.safetensors &&
    [ "$(losses out)" = "$(losses expected)" ] && [ "$(losses out | wc -l)" = 10 ]
point 'srun: four tasks have the losses and the checkpoint of four threads'
run --steps 10 --mesh data=4,model=2
[ $status != 0 ] && grep -q '^looping_pipeline: .*8' err
point 'srun: another number of tasks than the mesh has is refused'

# tasks: the processes of the run, which slurmd's children are.
tasks() {
    for file in /proc/[0-9]*/environ; do
        process=${file#/proc/}
        process=${process%/environ}
        tr '\0' '\n' <"$file" 2>/dev/null | grep -qxF "SLURM_CONF=$SLURM_CONF" && tr '\0' '\n' <"/proc/$process/cmdline" 2>/dev/null |
            head -n 1 | grep -q "\(looping_pipeline\|transformer\|shardloop\)$" && echo "$process"
    done 2>/dev/null
}
: >metrics
timeout 120 srun --mpi=pmix -N1 -n4 --kill-on-bad-exit=1 "$drivers/looping_pipeline" --engine mpi $small --steps 100000000 \
    --metrics metrics --timeout 5 >out 2>err </dev/null &
pid=$!
until_true 60 grep -q '"step":3,' metrics
killed=$(tasks | tail -n 1)
[ -n "$killed" ] && kill -KILL "$killed"
wait $pid
status=$?
[ $status != 0 ] && [ $status -lt 124 ] || [ $status = 137 ] && grep -q 'srun: error: n1: task [0-3]: Killed' err
point 'a task is killed: the step ends, and srun says which'
until_true 30 sh -c '! squeue -h | grep -q .' && [ -z "$(tasks)" ]
point 'and nothing is left'

# ---- the batch script ----

shape='--model-dimension 16 --n-heads 2 --blocks 2 --layers-per-block 1 --sequence 8 --latent-dim 8 --rope-dim 4 --batch 4 --microbatches 2'
mesh='--mesh data=1,pipe=2,tensor=2'
whole=3000
has_ended() { ! squeue -h -j "$job" 2>/dev/null | grep -q .; }
last_step() { ls "$1/run" 2>/dev/null | sed -n 's/^step-0*\([0-9]*\).safetensors$/\1/p' | tail -n 1; }
# submit DIRECTORY SBATCH_OPTIONS -- ARGUMENT...: from there.
submit() {
    mkdir -p "$1"
    directory=$1 options=$2
    shift 2
    job=$(cd "$directory" && sbatch --parsable --nodes=1 --ntasks-per-node=4 $options "$source/drivers/examples/train.slurm" "$@" 2>../err)
}
"$drivers/transformer" train --data /usr/share/common-licenses $mesh $shape --steps $whole --save unbroken >out 2>err

# Slurm's limits are whole minutes: one is set when the run has begun, so short that the signal is due at once.
submit limit '--time=20 --signal=TERM@60' $mesh $shape --steps 100000000
until_true 60 grep -qs '"step":40,' limit/metrics.jsonl
scontrol update JobId="$job" TimeLimit=1 2>err
until_true 60 has_ended
cat limit/*.log >out
[ "$(scontrol show job "$job" | grep -c 'JobState=COMPLETED')" = 1 ] && grep -q 'interrupted after step [0-9]*, saved in run/' out
point "the signal before the time limit: the run saves, after step $(last_step limit), and the job has completed"

submit queue --requeue $mesh $shape --steps $whole
until_true 60 grep -qs '"step":40,' queue/metrics.jsonl
scontrol requeue "$job" >out 2>err
until_true 30 grep -qs 'interrupted after step' queue/*.log
first=$(last_step queue)
is_waiting() { squeue -h -j "$job" -o %r | grep -q BeginTime; } # a job that was put back does so for two minutes
until_true 30 is_waiting && scontrol update JobId="$job" StartTime=now 2>err
until_true 60 has_ended
cat queue/*.log >out
scontrol show job "$job" >err
grep -q 'JobState=COMPLETED' err && grep -q 'Restarts=1' err && [ "$first" -lt $whole ] && [ "$(last_step queue)" = $whole ]
point "a job that is put back into the queue after step $first goes on to the end"
[ "$(grep -c '"step"' queue/metrics.jsonl)" = $whole ] && cmp -s queue/run/step-00003000.safetensors unbroken/step-00003000.safetensors
point 'with each step once in its metrics, and the bytes of a run by threads that was not stopped'

plan
