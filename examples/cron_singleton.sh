#!/usr/bin/env bash
# A job that cron starts on every machine in the same minute, and that runs on one of them.
#
#   examples/cron_singleton.sh
#
# On each machine, this line would be in the crontab, and the nodes in quorlock.toml:
#
#   0 3 * * *  quorlock run -q --at-least 5min --conflict-exit-code 0 --max-hold 1h cron/report -- report
#
# --at-least: a machine whose clock is behind does not run it again (docs/jobs.md).
# --conflict-exit-code 0: another machine ran it, which is not a failure that cron should report by
# mail.
# --max-hold: a job that hangs does not block tomorrow's run.
set -euo pipefail

# Here the machines are processes, and so are the five servers, which `quorlock demo` starts.
if [ -z "${QUORLOCK_NODES:-}" ]; then
    program=$(command -v quorlock || true)
    if [ -z "$program" ]; then
        cargo build --quiet --bin quorlock
        program=$(cd "$(dirname "$0")/.." && pwd)/target/debug/quorlock
    fi
    exec "$program" demo -- "$0"
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkfifo "$folder/others-have-asked"

# A report that runs until the other two machines have tried.
job='echo "$1 runs the report, fencing token $QUORLOCK_FENCE"
     read -r _ <"$2"
     echo "$1 has finished"'

for machine in eu-1 eu-2 us-1; do
    quorlock run --no-wait --at-least 5min --conflict-exit-code 0 --label "$machine" cron/report \
        -- sh -c "$job" sh "$machine" "$folder/others-have-asked" 2>>"$folder/refused" | tee -a "$folder/told" &
done
wait -n
wait -n
echo "two machines have nothing to do:"
sed 's/^/  /' "$folder/refused"
echo "go on" >"$folder/others-have-asked"
wait

# A fourth machine tries when the report has ended.
quorlock run --at-least 5min --conflict-exit-code 0 cron/report -- sh -c "$job" sh us-2 /dev/null 2>&1 \
    | tee -a "$folder/told"

[ "$(grep -c 'runs the report' "$folder/told")" = 1 ] || { echo "it ran more than once" >&2; exit 1; }
echo "it ran once"
