#!/usr/bin/env bash
# A job that cron starts on every machine at the same minute, and that runs on one of them.
#
#   examples/cron_singleton.sh
#
# On each machine, this line would stand in the crontab, and the nodes in quorlock.toml:
#
#   0 3 * * *  quorlock run -q --at-least 5min --conflict-exit-code 0 --max-hold 1h cron/report -- report
#
# --at-least: a machine whose clock is late does not run it again (docs/jobs.md).
# --conflict-exit-code 0: it ran somewhere else, which is no failure that cron should send mail about.
# --max-hold: a job that hangs does not keep tomorrow's away.
set -euo pipefail

# Here the machines are processes, and so are the five servers, which `quorlock demo` lends.
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

# A report that takes until the other two machines have asked.
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

# A fourth machine comes when the report has ended.
quorlock run --at-least 5min --conflict-exit-code 0 cron/report -- sh -c "$job" sh us-2 /dev/null 2>&1 \
    | tee -a "$folder/told"

[ "$(grep -c 'runs the report' "$folder/told")" = 1 ] || { echo "it ran more than once" >&2; exit 1; }
echo "it ran once"
