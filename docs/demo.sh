#!/usr/bin/env bash
# The demo: Python's own standard library goes from text to a token store that answers SQL, and from there to a small
# model that was trained on it, writes a line of code and answers over HTTP.
# Every command is printed as you would type it. Everything lies in demo-out/ afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
OUT=demo-out
# Threads of torch that wait asleep are much faster beside other programs, a little slower alone.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY-PASSIVE}"
rm -rf "$OUT" && mkdir -p "$OUT/text"

if [ -t 1 ] && [ -z "${NO_COLOR-}" ]; then BOLD=$'\033[1m' PLAIN=$'\033[0m'; else BOLD='' PLAIN=''; fi
say() { printf '\n%s%s%s\n' "$BOLD" "$*" "$PLAIN"; }
run() { printf '$'; for word in "$@"; do case $word in *[*\ ]*) printf ' "%s"' "$word" ;; *) printf ' %s' "$word" ;; esac; done; printf '\n'; "$@"; }
ask() { printf '\n%s\n$ astrai inspect %s --sql "%s"\n' "$1" "$OUT/store" "$2"; astrai inspect "$OUT/store" --sql "$2"; }

library=$(python -c 'import sysconfig; print(sysconfig.get_paths()["stdlib"])')
for entry in "$library"/*; do
    case "${entry##*/}" in
        *.py | [a-z_]*) [ -e "$entry" ] && ln -s "$entry" "$OUT/text/" ;;
    esac
done
rm -f "$OUT"/text/{site-packages,dist-packages,__pycache__,config-*,lib-dynload}
say "1. Text: the standard library of this Python, linked into $OUT/text"

say "2. A tokenizer, trained on it"
run astrai tokenizer train "$OUT/text/**/*.py" -o "$OUT/tokenizer" --vocab-size 8192

say "3. A token store"
run astrai preprocess "$OUT/text/**/*.py" -o "$OUT/store" -c demo --tokenizer "$OUT/tokenizer"

say "4. What is in it"
run astrai inspect "$OUT/store"

say "5. Questions, in SQL"
ask "Which files gave the most tokens?" \
    "SELECT source, num_tokens, num_trained FROM documents ORDER BY num_tokens DESC LIMIT 5"
ask "Will the model be trained on this sentence, and where does it stand?" \
    "SELECT source, split FROM documents JOIN (SELECT document_id, string_agg(decode(sequence), '' ORDER BY piece) AS text FROM segments GROUP BY ALL) USING (document_id) WHERE contains(text, 'Beautiful is better than ugly')"
ask "What was not taken, and why?" \
    "SELECT source, position, reason FROM rejects ORDER BY source LIMIT 5"
ask "Does every token have its place?" \
    "SELECT what, reason, sum(count) AS tokens FROM ledger WHERE balance = 'tokens' GROUP BY ALL ORDER BY ALL"

say "6. One row as training will see it"
run astrai inspect "$OUT/store" --show 1

say "7. The proof"
run astrai inspect "$OUT/store" --verify

say "8. A model, trained on the store"
run astrai train --data "$OUT/store" --model nano -o "$OUT/model" --window 128 --batch-tokens 1024 --lr 3e-3 --warmup 20 --max-steps 400

say "9. It goes on with a line of code"
run astrai generate "$OUT/model" --prompt "import os" --max-tokens 40 --seed 1

say "10. It answers over HTTP"
printf '$ astrai serve %s/model --port 0 &\n' "$OUT"
astrai serve "$OUT/model" --port 0 2>"$OUT/server.log" >&2 &
SERVER=$!
trap 'kill "$SERVER" 2>/dev/null || true' EXIT
until URL=$(grep -o 'http://[^ ]*' "$OUT/server.log" | head -n 1) && [ -n "$URL" ]; do
    kill -0 "$SERVER" || { cat "$OUT/server.log"; exit 1; }
    sleep 0.2
done
cat "$OUT/server.log"
QUESTION='{"model": "model", "stream": true, "max_tokens": 6, "messages": [{"role": "user", "content": "import"}]}'
if command -v curl >/dev/null; then
    printf "\$ curl -N %s/chat/completions -H 'content-type: application/json' -d '%s'\n" "$URL" "$QUESTION"
    curl -sS -N "$URL/chat/completions" -H 'content-type: application/json' -d "$QUESTION"
else
    python - "$URL" "$QUESTION" <<'PY'
import sys, urllib.request

request = urllib.request.Request(sys.argv[1] + "/chat/completions", sys.argv[2].encode(), {"content-type": "application/json"})
for line in urllib.request.urlopen(request):
    print(line.decode(), end="")
PY
fi
kill "$SERVER" && wait "$SERVER" 2>/dev/null || true

say "Everything lies in $OUT/: tokenizer, store, model (checkpoints and metrics.jsonl), server.log"
