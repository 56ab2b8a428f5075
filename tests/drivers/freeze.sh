#!/bin/sh
# freeze.sh DRIVERS DATA - parameters that --freeze names keep their bits, and take no gradients and no state; prints TAP.
drivers=$1
data=$(cd "$2" && pwd) tool=$(cd "$(dirname "$0")" && pwd)/published/published.py
[ ! -w /dev/shm ] || export TMPDIR="${TMPDIR:-/dev/shm}" # in memory, where syncing is short
. "$(dirname "$0")/../rigs/points.sh"
driver=$drivers/transformer

for n in 0 1 2 3 4 5 6 7 8 9; do echo "Line $n of a text that is long enough to be divided, not to be read."; done >text
model='--model-dimension 32 --n-heads 2 --blocks 2 --layers-per-block 2 --sequence 16 --latent-dim 8 --rope-dim 4'
common="--data text --batch 8 --microbatches 4 --wgrad-group 2 --lr 0.01 --json"

# train DIR ARGUMENT...: trains from initial values, and saves in DIR.
train() {
    rm -rf "$1"
    directory=$1
    shift
    call train $model $common --save "$directory" "$@"
}

# names DIR: prints the names of its tensors.
names() {
    python3 - "$1"/*.safetensors <<'END'
import json, sys
with open(sys.argv[-1], "rb") as file:
    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
print("\n".join(sorted(name for name in header if name != "__metadata__")))
END
}

# bits DIR PATTERN [other]: prints the bytes of the values whose names match; with a third argument, of all others.
bits() {
    python3 - "$@" <<'END'
import fnmatch, glob, hashlib, json, sys
directory, pattern, *other = sys.argv[1:]
path = sorted(glob.glob(directory + "/*.safetensors"))[-1]
with open(path, "rb") as file:
    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    data = file.read()
found = 0
for name, tensor in sorted(header.items()):
    if name == "__metadata__" or name.startswith("optimizer."): continue
    if any(fnmatch.fnmatchcase(name, one) for one in pattern.split(",")) == bool(other): continue
    begin, end = tensor["data_offsets"]
    found += 1
    print(name, hashlib.md5(data[begin:end]).hexdigest())
assert found
END
}

# freezes PATTERN ARGUMENT...: a step does not change matching tensors, and changes all others as without --freeze.
freezes() {
    pattern=$1
    shift
    train begin --steps 0 "$@"
    train all --steps 1 "$@"
    train some --steps 1 "$@" --freeze "$pattern" --check-replicas --gradients gradients
    if [ $status = 0 ]; then
        bits begin "$pattern" >expected && bits some "$pattern" >got && cmp -s expected got &&
            bits all "$pattern" other >expected && bits some "$pattern" other >got && cmp -s expected got &&
            bits begin "$pattern" other >got && ! cmp -s expected got
    else
        false
    fi
    point "frozen: $pattern: $*"
}

# ---- frozen and trained tensors ----

pattern='blocks.0.*' # the next layout has the next one

for layout in --mesh=data=1 '--mesh data=2,pipe=2,tensor=2' '--mesh data=2,pipe=2 --schedule looped-bfs --loops 2 --zero 2' \
    '--mesh data=2,tensor=2 --fsdp --recompute full' '--mesh data=2,pipe=2 --no-fsdp --zero 0' \
    '--mesh data=2,pipe=2 --no-fsdp --zero 2 --storage bf16 --recompute selective' '--mesh pipe=2 --schedule zbv --loops 2' \
    '--mesh pipe=2 --spread-head vocabulary --vocab-size 8192 --schedule looped-bfs --loops 2' '--mesh pipe=2 --spread-head rows --schedule looped-bfs --loops 2' \
    '--mesh data=2,tensor=2 --vocabulary-parallel --precision bf16' '--mesh data=2 --accumulate 2 --microbatches 2' \
    '--mesh data=2,pipe=2 --schedule looped-bfs --loops 2 --offload optimizer,activations,weights' \
    '--mesh data=2 --fsdp --no-prefetch --wgrad-group 1' '--mesh data=2 --experts 4 --shared-experts 1' \
    '--mesh data=2,tensor=2 --optimizer sgd --attention gqa --mlp silu --norm layer --qk-norm'; do
    with_latents=$model
    case $layout in *gqa*) model=${model%% --latent-dim*} ;; esac
    freezes "$pattern" $layout
    model=$with_latents
    case $pattern in
    blocks*) pattern='*.kernel,*embedding*' ;;
    *kernel*) pattern='*.bias,*gamma' ;;
    *) pattern='blocks.0.*' ;;
    esac
done

# ---- several steps, in several layouts ----

train once --steps 4 --mesh data=1 --freeze 'blocks.0.*,*.bias'
bits once '*' >expected
[ $status = 0 ] && [ -s expected ]
point 'a run on one coordinate'
for layout in '--mesh pipe=2' '--mesh pipe=4 --schedule 1f1b' '--mesh pipe=2 --schedule looped-bfs --loops 2' '--mesh pipe=2 --schedule zbv --loops 2' \
    '--recompute full --mesh pipe=2' '--mesh data=1 --offload optimizer'; do
    train other --steps 4 $layout --freeze 'blocks.0.*,*.bias'
    [ $status = 0 ] && bits other '*' | cmp -s - expected
    point "the same bits over stages and schedules: $layout"
done

# ---- gradients and memory ----

train some --steps 1 --mesh data=1 --freeze 'blocks.*' --gradients gradients
names some >names
[ $status = 0 ] && grep -q '^blocks\.0\.' names && ! grep -q '^optimizer\..*blocks\.' names && grep -q '^optimizer\.' names &&
    ! head -c 20000 gradients | grep -qa '"blocks\.' && head -c 20000 gradients | grep -qa '"'
point 'no state and no gradients are saved'
for layout in --mesh=data=1 '--mesh data=2,pipe=2,tensor=2' '--mesh data=2 --no-fsdp --zero 2' '--mesh data=2,pipe=2 --schedule looped-bfs --loops 2 --offload optimizer,weights'; do
    for freeze in 'blocks.*' 'blocks.1.*,*.bias'; do
        call train $model $common --steps 1 $layout --dry-run
        values optimizer >all_states
        values gradients >all_gradients
        values kept >all_kept
        call train $model $common --steps 1 $layout --freeze "$freeze" --dry-run
        values optimizer >states
        values gradients >gradients
        values kept >kept
        # Numbers of the dry run and of the last line, which has all coordinates in it.
        planned=$(grep -o '"\(parameters\|gradients\|optimizer\|kept\|recomputed\|workspace\|handover\|caches\|batch\|offloaded\)":[0-9]*' out)
        train held --steps 1 $layout --freeze "$freeze"
        held=$(grep '"memory"' out | sed 's/.*"memory":\[//' | grep -o '"\(parameters\|gradients\|optimizer\|kept\|recomputed\|workspace\|handover\|caches\|batch\|offloaded\)":[0-9]*')
        [ $status = 0 ] && [ "$planned" ] && [ "$planned" = "$held" ] &&
            [ "$(awk '{ s += $1 } END { print s }' kept)" -lt "$(awk '{ s += $1 } END { print s }' all_kept)" ] &&
            [ "$(awk '{ s += $1 } END { print s }' gradients)" -lt "$(awk '{ s += $1 } END { print s }' all_gradients)" ] &&
            [ "$(awk '{ s += $1 } END { print s }' states)" -le "$(awk '{ s += $1 } END { print s }' all_states)" ]
        point "held as planned, and less: $freeze $layout"
    done
done

# ---- going on ----

train whole --steps 4 --mesh data=2,pipe=2 --freeze 'blocks.0.*'
train half --steps 2 --mesh data=2,pipe=2 --freeze 'blocks.0.*'
call train --resume half --steps 4 --save half
[ $status = 0 ] && cmp -s half/step-00000004.safetensors whole/step-00000004.safetensors
point '--resume takes the pattern over'
refused 'freeze is blocks.0.* in the checkpoint, and blocks.1.* here' train --resume half --steps 5 --freeze 'blocks.1.*'
train all --steps 1 --mesh data=2,pipe=2
call train --resume all --steps 2 --freeze 'blocks.0.*'
[ $status = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -q 'the model has no tensor optimizer\.[a-z_]*\.blocks\.0\.' err
point 'a run that has frozen nothing does not go on with less state'
call train --params all --steps 1 --data text --batch 8 --freeze 'blocks.1.*'
[ $status = 0 ]
point '--params: another run may freeze what it likes'
call evaluate --params half
[ $status = 0 ] && [ ! -s err ]
point 'evaluate takes what has been trained'

# A published tensor that holds three parameters has no gradient if one of them is frozen.
python3 "$tool" tokens tokens.safetensors
call train --model "$data/published/gpt2" --data tokens.safetensors --mesh data=1,pipe=2 --sequence 16 --batch 4 --steps 1 --freeze '*.gqa.k.kernel,*.gqa.q.bias' --gradients gradients
python3 - gradients >left <<'END'
import json, sys
with open(sys.argv[1], "rb") as file:
    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
print(sum("c_attn" in name for name in header), sum("c_proj" in name for name in header))
END
[ $status = 0 ] && [ "$(cat left)" = '0 8' ]
point 'gradients under published names: what is frozen in part has none'

# ---- patterns that are wrong ----

for driver in "$drivers/looping_pipeline" "$drivers/loss_equality"; do
    for pattern in 'blocks.0.*' '*.kernel' '*.bias'; do
        call --mesh data=2,model=2 --layers 4 --hidden 16 --batch 32 --microbatches 4 --steps 3 --json --freeze "$pattern"
        [ $status = 0 ] && [ ! -s err ]
        point "${driver##*/} --freeze $pattern"
    done
    refuses 'freeze: no parameter matches "nope"' --mesh data=2,model=2 --layers 4 --hidden 16 --freeze nope
done
driver=$drivers/transformer
for mesh in data=1 data=2,pipe=2; do
    refused 'freeze: no parameter matches "block.*": names are those in checkpoints' train $model $common --mesh $mesh --freeze 'block.*'
    refused 'freeze: no parameter matches "nope"' train $model $common --mesh $mesh --freeze 'blocks.0.*,nope'
    refused 'freeze: no parameter matches ""' train $model $common --mesh $mesh --freeze 'blocks.0.*,'
    refused 'freeze: "*" matches all parameters: none is left to train' train $model $common --mesh $mesh --freeze '*'
done
plan
