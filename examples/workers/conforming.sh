#!/bin/sh
# The handlers that `holdfast conform` tries, as commands of worker.sh:
#
#   holdfast conform -- ./worker.sh conform.echo="./conforming.sh echo" conform.items="./conforming.sh items" \
#     conform.slow="./conforming.sh slow" conform.fail="./conforming.sh fail"
payload=$(cat)
number() { printf '%s' "$payload" | sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p"; }

case $1 in
  echo) printf '{"result":%s}\n' "$payload" ;;
  fail) printf '{"error":%s}\n' "$payload"; exit 1 ;;
  slow) exec sleep "$(number seconds)" ;;
  items)
    count=$(number count) page=$(number page) n=${HOLDFAST_CURSOR#null}
    n=${n:-0}
    while [ "$n" -lt "$count" ]; do
      items='' end=$((n + page))
      while [ "$n" -lt "$end" ] && [ "$n" -lt "$count" ]; do
        items="$items,{\"key\":\"item-$n\",\"data\":{\"n\":$n}}" n=$((n + 1))
      done
      printf '{"items":[%s],"cursor":%s}\n' "${items#,}" "$n"
    done ;;
esac
