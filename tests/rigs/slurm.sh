# slurm.sh - sourced by tests with a Slurm of their own, with $drivers and $source set. If Slurm cannot run, skips them all with
# a reason. Without systemd, cgroups or munge: the daemons trust each other (auth/none), and must trust no others.
skip_all() {
    echo "1..0 # SKIP $1"
    exit
}
for tool in slurmctld slurmd srun sbatch scontrol squeue; do
    command -v $tool >/dev/null || skip_all "$tool is not installed (Debian: slurmctld slurmd slurm-client)"
done
[ "$(id -u)" = 0 ] || skip_all 'slurmd runs as root'
mountpoint -q /sys/fs/cgroup || skip_all 'slurmd does not start where nothing is mounted on /sys/fs/cgroup'
"$drivers/looping_pipeline" --engine mpi --show-placement 2>&1 | grep -q 'not in this build' && skip_all 'there is no engine mpi'
case $(mpirun --version 2>/dev/null) in
*'Open MPI'*) ;;
*) skip_all 'srun starts Open MPI by PMIx, and Open MPI is not installed' ;;
esac
. "$source/tests/rigs/points.sh"
unset SLURM_JOB_ID
export SLURM_CONF="$work/slurm.conf" PATH="/usr/sbin:$PATH"

# write_conf CONTROLLER PORT: a configuration, to which the lines on stdin are added.
write_conf() {
    cat <<CONF
ClusterName=shardloop
SlurmctldHost=$1
SlurmctldPort=$2
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool.%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1
ReturnToService=2
KillWait=20
CONF
    cat
}

# needs_pmix: by which srun starts Open MPI. The configuration has been written.
needs_pmix() {
    srun --mpi=list 2>&1 | grep -q pmix || skip_all "this srun has no PMIx: $(srun --mpi=list 2>&1 | tr '\n' ' ')"
}

# until_true SECONDS COMMAND...: whether it succeeds within them.
until_true() {
    tries=$((10 * $1))
    shift
    until "$@"; do
        [ $((tries -= 1)) -gt 0 ] || return
        sleep 0.1
    done
}

is_idle() { sinfo -h -n "$1" -o %T 2>/dev/null | grep -qx idle; }
