#!/bin/sh
# A remote worker for Holdfast in POSIX shell, with curl (7.71 or newer) and awk: see docs/protocol.md.
#   HOLDFAST_URL=http://localhost:8080 HOLDFAST_KEY=hf_… worker.sh TYPE=COMMAND [TYPE=COMMAND …]
# Runs one job at a time: COMMAND, with the payload on its standard input and HOLDFAST_JOB_ID, HOLDFAST_ATTEMPT and
# HOLDFAST_CURSOR in its environment. Each line that it prints is a part of a report, as a JSON object:
#   {"items":[{"key":"a","data":1}],"cursor":1} or {"progress":10} is stored at once,
#   {"result":…} or {"error":{"kind":"fatal","message":"…"}} is kept for the end.
# With the exit code 0 the job is done, otherwise it has failed; the end of standard error is the attempt's log.
# SIGTERM tells it to stop: the job was canceled or paused, or is another worker's, or the worker ends.
set -u; umask 077; export LC_ALL=C
[ -n "${HOLDFAST_URL:-}" ] || { echo "HOLDFAST_URL is not set" >&2; exit 2; }
[ $# -gt 0 ] || { echo "usage: worker.sh TYPE=COMMAND …" >&2; exit 2; }
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
chance() { od -An -N8 -tx1 /dev/urandom | tr -d ' \n'; }
id=$(uname -n | tr -cd 'A-Za-z0-9._-')-$$-$(chance)
echo "Content-Type: application/json" >"$dir/head" # a file: the arguments of a process are everybody's to read
[ -z "${HOLDFAST_KEY:-}" ] || echo "Authorization: Bearer $HOLDFAST_KEY" >>"$dir/head"
types=$(for one; do printf '"%s"\n' "${one%%=*}"; done | paste -sd, -)
signals=0 pulling='' curl='' child=''

json() { # FILE PATH…: the values at these paths (.jobs[0].payload), as they stand in the file; a line each
  awk '
    function ws() { while (substr(s, p, 1) ~ /[ \t\r]/) p++ }
    function text() { match(substr(s, p), /^"([^"\\]|\\.)*"/); p += RLENGTH }
    function value(path,   from, c, n, name) {
      ws(); from = p; c = substr(s, p, 1)
      if (c == "{" || c == "[") {
        for (n = 0; p <= length(s) && c !~ /[]}]/; n++) {
          p++; ws(); c = substr(s, p, 1); if (c ~ /[]}]/) break
          if (substr(s, from, 1) == "{") { name = p; text(); name = "." substr(s, name + 1, p - name - 2); ws(); p++ }
          else name = "[" n "]"
          value(path name); ws(); c = substr(s, p, 1)
        }
        p++
      } else if (c == "\"") text(); else while (substr(s, p, 1) ~ /[-+.0-9a-zA-Z]/) p++
      found[path] = substr(s, from, p - from)
    }
    BEGIN { while ((getline line < ARGV[1]) > 0) s = s line " "; p = 1; value("")
            for (i = 2; i < ARGC; i++) print found[ARGV[i]] }' "$@"
}

post() { # VERB WAIT BODY: one call, repeated until it is answered; the answer is in $status and the file VERB
  printf '%s' "$3" >"$dir/$1.body" && : >"$dir/$1"
  curl -sS -o "$dir/$1" -w '%{http_code}' -H "@$dir/head" --data-binary "@$dir/$1.body" --max-time $((10 + $2)) \
    --retry 9 --retry-all-errors --retry-max-time 120 "$HOLDFAST_URL/worker/$1" >"$dir/$1.status" &
  curl=$! && ended "$curl"
  status=$(cat "$dir/$1.status")
}

ended() { while :; do wait "$1"; code=$?; kill -0 "$1" 2>/dev/null || return 0; done; } # signals interrupt `wait`
failure() { printf '"error":{"kind":"%s","message":"%s"}' "${2:-retryable}" "$1"; }
stop() { [ -s "$dir/why" ] || printf '%s' "$1" >"$dir/why"; kill -TERM "$child" 2>/dev/null; }
alive() { kill -0 $$ 2>/dev/null || { stop dead; false; }; } # kill -9 of the worker leaves its children behind

heed() { # VERB PREFIX: obey what an answer says of the job
  case $(json "$dir/$1" "$2.owned" "$2.directive" .directive | paste -sd, -) in
    false,*) stop over ;;
    true,'"cancel"',*) stop cancel ;;
    true,'"pause"',*) stop pause ;;
    *'"drain"'*) : >"$dir/drain" ;;
  esac
}

keep() { # in the background: keep the lease, and hear what becomes of the job
  trap 'kill "$curl" 2>/dev/null; exit' TERM
  pause=$((lease < 3000 ? 1 : lease > 60000 ? 20 : lease / 3000))
  while alive && [ ! -s "$dir/why" ]; do
    began=$(date +%s)
    post extend $pause "{\"worker_id\":\"$id\",\"leases\":[{$ref}],\"wait_sec\":$pause}"
    [ "$status" != 200 ] || heed extend '.leases[0]'
    [ $(($(date +%s) - began)) -ge $pause ] || { sleep $pause & wait $!; }
  done
  sleep 5 & wait $! && kill -KILL "$child" 2>/dev/null
  alive || { echo STOP 1<>"$dir/out"; rm -rf "$dir"; }
}

reports() { # in the background: send what the command prints, line by line
  trap '' TERM INT && seq=0
  while IFS= read -r line <&3 && alive && [ "$line" != STOP ] && [ ! -s "$dir/why" ]; do
    case $line in '{"result":'* | '{"error":'*) printf '%s' "$line" >"$dir/last"; continue ;; esac
    post report 0 "{\"worker_id\":\"$id\",$ref,\"seq\":$((seq += 1)),${line#?}"
    case $status in
      200) heed report '' ;;
      409) stop over ;; # the job has ended, or is another worker's
      *) failure "a report was refused: HTTP $status" >"$dir/refused"; kill -TERM "$child" 2>/dev/null; break ;;
    esac
  done
}

pulled() { # the job in the answer of a pull, as every message names it; nothing if there is none
  json "$dir/pull" '.jobs[0].job_id' '.jobs[0].attempt' | paste -sd, - | sed -n 's/^\(".*"\),/"job_id":\1,"attempt":/p'
}

outcome() { # how the job has ended, as members of a report
  if [ -s "$dir/refused" ]; then cat "$dir/refused"; return; fi
  last=$(sed 's/^{//; s/}$//' "$dir/last")
  case $result,$last in
    *,'"error":'*) printf '%s' "$last" ;;
    0,*) printf '"done":true%s' "${last:+,$last}" ;;
    *) failure "exit code $result" ;;
  esac
  tail -c 4000 "$dir/err" | tr -cd '\12\40-\176' | awk '
    BEGIN { printf ",\"log\":\"" } { gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); printf "%s\\n", $0 } END { printf "\"" }'
}

work() { # run the job that was pulled
  type=$(json "$dir/pull" '.jobs[0].type') lease=$(json "$dir/pull" '.jobs[0].lease_remaining_ms')
  for one; do [ "\"${one%%=*}\"" != "$type" ] || command=${one#*=}; done
  json "$dir/pull" '.jobs[0].payload' >"$dir/payload"
  rm -f "$dir/out" && mkfifo "$dir/out" && exec 3<>"$dir/out" && : >"$dir/why" && : >"$dir/last" && : >"$dir/refused"
  HOLDFAST_JOB_ID=$(json "$dir/pull" '.jobs[0].job_id' | tr -d '"') HOLDFAST_ATTEMPT=${ref##*:} \
    HOLDFAST_CURSOR=$(json "$dir/pull" '.jobs[0].cursor') \
    sh -c "exec $command" <"$dir/payload" >"$dir/out" 2>"$dir/err" 3<&- &
  child=$!
  reports & reader=$!
  keep 3<&- & keeper=$!
  ended $child && result=$code && echo STOP >&3
  ended $reader && exec 3<&-; why=$(cat "$dir/why")
  case $why in
    over) echo "{$ref} had ended, or is another worker's: its outcome is dropped" >&2 ;;
    '') post report 0 "{\"worker_id\":\"$id\",$ref,$(outcome)}"
        [ "$status" = 200 ] || echo "{$ref}: its outcome was refused: HTTP $status" >&2
        case $status in 413 | 422) post report 0 "{\"worker_id\":\"$id\",$ref,$(failure "HTTP $status" fatal)}" ;; esac
        ;;
    *) post release 0 "{\"worker_id\":\"$id\",\"leases\":[{$ref}],\"reason\":\"told to $why\"}" ;;
  esac
  kill "$keeper" 2>/dev/null; wait "$keeper" 2>/dev/null; child=''
}

told() { # the first signal drains, the second one interrupts the command
  signals=$((signals + 1)); [ -z "$pulling" ] || kill "$curl" 2>/dev/null
  [ $signals -lt 2 ] || [ -z "$child" ] || stop drain
}
trap told TERM INT; echo "worker $id pulls $types from $HOLDFAST_URL" >&2

while [ $signals = 0 ] && [ ! -e "$dir/drain" ]; do
  asked="\"worker_id\":\"$id\",\"types\":[$types],\"request_id\":\"$(chance)\"" began=$(date +%s) pulling=1
  post pull 20 "{$asked,\"wait_sec\":20}"; pulling=''
  if [ $signals -gt 0 ]; then # a job may be on the way: the same request gets it, too, and it is handed back
    post pull 0 "{$asked}"
    ref=$(pulled) && [ -z "$ref" ] || post release 0 "{\"worker_id\":\"$id\",\"leases\":[{$ref}]}"
    break
  fi
  case $status in 40[0134] | 422) echo "the server refuses: $(cat "$dir/pull")" >&2; exit 2 ;; esac
  [ "$status" != 200 ] || [ "$(json "$dir/pull" .directive)" != '"drain"' ] || : >"$dir/drain"
  ref=$(pulled)
  if [ "$status" = 200 ] && [ -n "$ref" ]; then work "$@"
  elif [ $(($(date +%s) - began)) -le 1 ]; then sleep 1 & wait $!; fi
done
