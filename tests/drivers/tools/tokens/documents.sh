#!/bin/sh
# documents.sh DRIVERS DATA - transformer --document-mask: documents in one sequence compute as in their own, in several
# layouts; refusals. Prints TAP.
driver=$1/transformer
tokenizer=$2/tokenizers/gpt2.json
. "$(dirname "$0")/../../../rigs/points.sh"

# A document is a line, and its newline the token that begins the next one.
latent="--model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --blocks 1 --layers-per-block 2 --sequence 160"
grouped="--attention gqa --model-dimension 16 --n-heads 4 --kv-heads 2 --blocks 1 --layers-per-block 2 --sequence 160"
learned="$grouped --rope-dim 0 --learned-positions 160"
mask='--document-mask --document-token 10'
for n in 1 2 3 4 5 6; do
    printf '\nLine %s: %s.' $n "$(seq -s' ' $n $((2 * n)))"
done >lines
printf '\n' >>lines # ends the last document
for n in $(seq 30); do cat lines; done >text

# ---- the same as in sequences of their own ----

# sum: the sum of the losses that the last call has told.
sum() {
    echo "$(values loss) $(values tokens)" | awk '{ printf "%.9g\n", $1 * $2 }'
}
[ "$(wc -c <lines)" -le 161 ]
point 'all lines are in one sequence'
for kind in latent grouped learned; do
    eval "model=\$$kind"
    call train $model --data text --batch 4 --steps 30 --lr 0.01 --mesh data=1 --save $kind $mask
    [ $status = 0 ]
    point "$kind: a training"
    # A saved run has its mask.
    call evaluate --params $kind --eval-data lines --mesh data=1 --batch 1 --json
    sum >made
    tail -n +2 lines | while read -r line; do
        printf '\n%s\n' "$line" >document
        call evaluate --params $kind --no-document-mask --eval-data document --mesh data=1 --batch 1 --json
        [ $status != 0 ] || sum
    done | awk '{ s += $1 } END { printf "%.9g\n", s }' >apart
    [ $status = 0 ] && [ "$(cat made)" != 0 ] && near 1e-5 made apart
    point "$kind: the losses in one sequence are those apart"
    call evaluate --params $kind --no-document-mask --eval-data lines --mesh data=1 --batch 1 --json
    sum >seen
    [ $status = 0 ] && ! near 1e-3 seen made
    point "$kind: without the mask they are others"
done

# ---- layouts ----

# Two rows of tokens, which are every step's batch.
header='{"tokens":{"dtype":"I32","shape":[2,161],"data_offsets":[0,1288]}}'
{
    printf "\\$(printf %03o ${#header})\0\0\0\0\0\0\0%s" "$header"
    printf "$(head -c 322 text | od -An -v -tu1 | awk '{ for (i = 1; i <= NF; i++) printf "\\%03o\\0\\0\\0", $i }')"
} >rows
for kind in latent learned; do
    eval "model=\$$kind"
    train="train $model --data text --batch 4 --steps 4 --lr 0.01 --json $mask"
    call $train --mesh data=1 --microbatches 4
    values loss >one
    for layout in 'pipe=2 --microbatches 4' 'pipe=2 --schedule gpipe --microbatches 4' 'pipe=2 --schedule zbv --blocks 2 --microbatches 4' \
        'data=1 --microbatches 4 --recompute selective' 'pipe=2 --microbatches 4 --recompute full' 'data=1 --microbatches 4 --no-fuse'; do
        case $layout in
        *blocks*) call $train --mesh data=1 --blocks 2 --microbatches 4 && values loss >wanted ;;
        *) cp one wanted ;;
        esac
        call $train --mesh $layout
        values loss >loss
        [ $status = 0 ] && cmp -s loss wanted
        point "$kind: the same bits on $layout"
    done
    for layout in data=2 tensor=2 'data=2,pipe=2 --accumulate 2' 'data=1 --microbatches 1'; do
        call $train --mesh $layout
        values loss >loss
        [ $status = 0 ] && near 1e-4 loss one
        point "$kind: the same within rounding on $layout"
    done
    call $train --mesh data=1 --microbatches 4 --storage bf16
    values loss >half
    call $train --mesh pipe=2 --microbatches 4 --storage bf16
    values loss >loss
    [ $status = 0 ] && cmp -s loss half && near 0.02 half one
    point "$kind: --storage bf16, the same bits on pipe=2"
    # A small step against the gradient lessens the loss by lr x norm^2.
    call train $model --data rows --batch 2 --steps 2 --optimizer sgd --lr 1e-4 --clip 1e9 --mesh data=1,pipe=2 --json $mask --vocab-size 128
    values loss >loss
    [ $status = 0 ] && paste -s loss | awk -v norm="$(values norm | head -n 1)" '{ d = ($1 - $2) / (1e-4 * norm * norm); exit !(d > 0.95 && d < 1.05) }'
    point "$kind: the gradient is that of the loss"
done
call train $grouped --data text --batch 4 --steps 2 --mesh data=1 --dry-run --json $mask
[ $status = 0 ] && grep -q '"batch":' out
point 'what it would take'

# ---- tokens ----

for n in 1 2 3 4 5 6 7 8 9; do echo "{\"text\": \"Document $n is a text of its own, and no other.\"}"; done >documents.jsonl
small="--model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --blocks 1 --layers-per-block 2 --sequence 48"
call train $small --data documents.jsonl --tokenizer "$tokenizer" --validation 0 --batch 2 --steps 2 --mesh data=2 --json --document-mask
values loss >made
call train $small --data documents.jsonl --tokenizer "$tokenizer" --validation 0 --batch 2 --steps 2 --mesh data=2 --json --document-mask \
    --document-token "$(printf '<|endoftext|>' | "$1/tokens" encode --tokenizer "$tokenizer")"
values loss >loss
[ $status = 0 ] && cmp -s made loss
point "the tokenizer's token that ends a text begins documents"

# ---- refusals ----

refused '--document-mask: no tokenizer says which token ends a text: give --document-token' train $latent --data text --document-mask
refused '--document-token: is read only with --document-mask' train $latent --data text --document-token 10
refused '--document-token 256: the vocabulary has 0 to 255' train $latent --data text --document-mask --document-token 256
refused '--document-token: "-2" is not an integer from -1' train $latent --data text --document-mask --document-token -2
echo '{"messages": [{"role": "assistant", "content": "a"}]}' >chats.jsonl
refused '--document-mask: is read only without --chat' train $latent --chat chats.jsonl --document-mask
echo '{"prompt": "a", "choices": ["b", "c"], "answer": 0}' >questions.jsonl
refused '--document-mask: is read only without --choices' evaluate $latent --choices questions.jsonl --document-mask

plan
