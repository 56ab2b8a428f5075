#!/bin/sh
# scripts.sh DRIVERS SOURCE - the batch script trains, is stopped and goes on, with something in Slurm's place; the Dockerfile
# names existing files; prints TAP.
drivers=$1 source=$2
. "$source/tests/rigs/points.sh"
script=$source/drivers/examples/train.slurm
image=$source/drivers/examples/Dockerfile

# ---- the batch script ----

sh -n "$script" >out 2>err
status=$?
[ $status = 0 ] && [ ! -s err ]
point 'sh reads the batch script'

# sbatch reads its options up to the first command, and ignores them after it.
awk '/^#SBATCH/ { if (late) print; if ($0 !~ /^#SBATCH --[a-z-]+=[^ ]+$/) print } !/^#/ && NF { late = 1 }' "$script" >out 2>err
[ ! -s out ] && [ "$(grep -c '^#SBATCH' "$script")" -ge 5 ]
point 'all options for sbatch come before the first command'

option() {
    sed -n "s/^#SBATCH --$1=//p" "$script"
}
places=$(sed -n 's/^mesh=//p' "$script" | tr ',' '\n' | sed 's/.*=//' | awk 'BEGIN { n = 1 } { n *= $1 } END { print n }')
[ "$places" = $(($(option nodes) * $(option ntasks-per-node))) ]
point "the mesh has as many coordinates as there are tasks ($places)"

# In srun's place: says its options, and starts the processes if this build has engine mpi, or else threads.
mkdir bin
ln -s "$drivers/shardloop" bin/shardloop
cat >bin/srun <<END
#!/bin/sh
while [ "\${1#--}" != "\$1" ]; do
    echo "\$1" >>options
    shift
done
if ! "$drivers/transformer" train --engine mpi --steps 0 2>&1 | grep -q 'needs .* processes' || ! command -v mpirun >/dev/null; then
    set -- \$(echo "\$*" | sed 's/--engine mpi/--engine local/')
    exec "\$@"
fi
exec "$source/tests/mpirun" $places "\$@"
END
chmod +x bin/srun
PATH=$work/bin:$PATH
small='--model-dimension 32 --n-heads 2 --blocks 1 --layers-per-block 2 --sequence 16 --latent-dim 8 --rope-dim 8 --batch 4 --microbatches 2'
# shellcheck disable=SC2086
timeout 60 sh "$script" $small --steps 3 >out 2>err </dev/null
status=$?
[ $status = 0 ] && [ -e run/step-00000003.safetensors ]
point 'it trains, and saves'
timeout 60 sh "$script" --steps 5 >out 2>err </dev/null
status=$?
[ $status = 0 ] && [ -e run/step-00000005.safetensors ] && [ "$(sed -n 's/^{"step":\([0-9]*\),.*/\1/p' metrics.jsonl | tr '\n' ' ')" = '0 1 2 3 4 ' ]
point 'the next job goes on with the options that the run had'
[ "$(sort -u options | tr '\n' ' ')" = '--kill-on-bad-exit=1 --mpi=pmix ' ]
point 'srun gets the options of the documentation'

# ---- the Dockerfile ----

# Continued lines become one.
sed -e ':more' -e '/\\$/{N;s/ *\\\n */ /;tmore' -e '}' "$image" | grep -v '^#' | grep . >lines
grep -vE '^(FROM|COPY|WORKDIR|RUN|USER|ENTRYPOINT|CMD) ' lines >out
[ ! -s out ] && head -n 1 lines | grep -q '^FROM debian:12 AS build$'
point 'the Dockerfile has instructions of a Dockerfile'
sed -n 's/^RUN //p' lines >commands
sh -n commands >out 2>err
status=$?
[ $status = 0 ] && [ ! -s err ] && [ -s commands ]
point 'sh reads its commands'
grep -o '\./[a-z/_]*' commands | while read -r path; do
    [ -x "$source/$path" ] || echo "there is no $path"
done >out
grep -o -- '--preset [a-z]*' commands | sort -u | while read -r _ preset; do
    grep -q "\"name\": \"$preset\"" "$source/CMakePresets.json" || echo "there is no preset $preset"
done >>out
[ ! -s out ] && grep -q 'drivers/quickstart' commands
point 'paths and presets that it names are there'
plan
