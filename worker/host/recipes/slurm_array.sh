#!/bin/sh
#SBATCH --job-name=sandbox-worker
#SBATCH --array=0-19
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=/dev/null
#SBATCH --signal=B:TERM@60
# One run per task of an array: RUNS/N/input.json -> RUNS/N/attempt-K/, the outcome of the K-th try.
#
#   sbatch --export=ALL,RUNS=$PWD/runs,WORKER=$PWD/dist/sandbox-worker.pyz,ATTEMPTS=3 slurm_array.sh
#
# The exit code of the run decides (README): 75, run it again: the task is requeued, up to ATTEMPTS tries in all (the last try
# says `mask` itself, because it knows its number). 69 and everything else: never again. A task that Slurm itself ends gets SIGTERM
# first (--signal, scancel), the run then stops in order and leaves its outcome. A task that was killed without that, or whose node
# died, has no result.json and is requeued by Slurm; what is left of it is cleaned up and told by `recover`.
set -u
: "${RUNS:?the directory with a numbered directory for each task}" "${WORKER:?sandbox-worker.pyz}"
attempts=${ATTEMPTS:-3}
python=${PYTHON:-python3}
task=$RUNS/${SLURM_ARRAY_TASK_ID:?start me with sbatch}

number=1
while [ -e "$task/attempt-$number" ]; do
    if [ -e "$task/attempt-$number/run.lock" ] && [ ! -e "$task/attempt-$number/result.json" ]; then
        "$python" -I -S "$WORKER" recover "$task/attempt-$number" >/dev/null || :
    fi
    number=$((number + 1))
done
if [ "$number" -gt "$attempts" ]; then exit 69; fi
out=$task/attempt-$number
mkdir -p "$out"

# The input document with this try's number and directory; nothing but Python is needed to write JSON well.
"$python" -I -S - "$task/input.json" "$out" "$number" "$attempts" >"$out/input.json" <<'END' || exit 65
import json, sys
source, out, number, attempts = sys.argv[1:]
with open(source, encoding="utf-8") as file:
    document = json.load(file)
document.update(directory=out, run_attempt=int(number), run_max_attempts=int(attempts))
json.dump(document, sys.stdout)
END

stopped=
trap 'stopped=1; kill -TERM "$run" 2>/dev/null' TERM INT
"$python" -I -S "$WORKER" run "$out/input.json" >"$out/run.out" 2>"$out/run.err" &
run=$!
wait "$run"
code=$?
while kill -0 "$run" 2>/dev/null; do    # a signal ends `wait`, not the run
    wait "$run"
    code=$?
done
trap - TERM INT
if [ "$code" = 0 ] && [ ! -s "$out/run.out" ]; then code=66; fi    # an empty WORKER is a program that does nothing, with success
if [ "$code" = 75 ] && [ -z "$stopped" ]; then
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
fi
exit "$code"
