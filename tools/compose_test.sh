#!/usr/bin/env bash
# Do the compose files work? Builds the image and runs everything on a Docker engine, kills, cuts and restarts it, and cleans up.
#   tools/compose_test.sh            all checks but those of other people's images; some minutes
#   tools/compose_test.sh CHECK …    only these, of: config build up rights demo kill partition restart reload token otel ollama runpod down registry
# Needs docker with Compose 2.24 or newer, curl and python3. It uses a project, a tag and ports of its own, so a luftpause that runs is left alone.
# otel pulls Jaeger (or JAEGER_IMAGE); ollama wants a server at OLLAMA_URL with OLLAMA_MODEL; runpod a pod: RUNPOD_POD_ID and RUNPOD_KEY.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export COMPOSE_PROJECT_NAME=luftpause-test LUFTPAUSE_REGISTRY=luftpause-test LUFTPAUSE_VERSION=test
export LUFTPAUSE_DATAPLANE_PORT=${LUFTPAUSE_DATAPLANE_PORT:-18080} LUFTPAUSE_RUNTIME_PORT=${LUFTPAUSE_RUNTIME_PORT:-17000}
export LUFTPAUSE_STATUS_PORT=${LUFTPAUSE_STATUS_PORT:-15001} JAEGER_PORT=${JAEGER_PORT:-16687}
export LUFTPAUSE_TOKEN='' LUFTPAUSE_CLUSTER_TOKEN=''
unset LUFTPAUSE_CONFIG
IMAGE=luftpause-test/luftpause:test
PROXY=http://127.0.0.1:$LUFTPAUSE_DATAPLANE_PORT MCP=http://127.0.0.1:$LUFTPAUSE_RUNTIME_PORT STATUS=http://127.0.0.1:$LUFTPAUSE_STATUS_PORT
OURS="scheduler dataplane runtime"
FAKES="fake-engine-a fake-engine-b fake-mcp"
IMAGE_BYTES_MAX=200000000
HEALTHY_SECONDS_MAX=${HEALTHY_SECONDS_MAX:-30}   # more, where the machine has other work
TMP=$(mktemp -d)
passed=0

ok() { passed=$((passed + 1)); echo "  ok    $*"; }
die() { echo "  FAIL  $*" >&2; exit 1; }
now() { date +%s%N; }
seconds_since() { awk -v ns=$(($(now) - $1)) 'BEGIN {printf "%.1f", ns / 1e9}'; }
get() { curl -fsS --noproxy '*' --max-time 45 "$@"; }
until_ok() { local end=$((SECONDS + $1)); shift; until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || return 1; sleep 0.5; done; }
# An image that Compose has built hands its labels down to every `docker run`: only `oneoff` tells those from a service's container.
container() { docker ps -aq --filter label=com.docker.compose.oneoff=False --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" --filter "label=com.docker.compose.service=$1"; }
healthy() { [ "$(docker inspect -f '{{.State.Health.Status}}' "$(container "$1")")" = healthy ]; }
all_healthy() { local s; for s in "$@"; do healthy "$s" || return 1; done; }
up() { docker compose "$@" >"$TMP/up" 2>&1 || { cat "$TMP/up" >&2; docker compose ps -a >&2; docker compose logs --tail 20 >&2; die "docker compose $*"; }; }

ask() { # [curl's options] one turn of a new run through the published port; prints the answer
  get -X POST "$PROXY/v1/chat/completions" -H 'content-type: application/json' "$@" \
    -d "{\"model\": \"${MODEL:-fake-1b}\", \"max_tokens\": 16, \"messages\": [{\"role\": \"user\", \"content\": \"Say hello, $RANDOM.\"}]}"
}
agents() { # N: sub-agents over MCP through the published port; with the command of a clone, or else of the image
  if [ -x .venv/bin/luftpause ]; then .venv/bin/luftpause loadgen --spawn "$1" --mcp "$MCP/mcp" --json --seconds-max 240
  else docker run --rm --network host -e LUFTPAUSE_TOKEN "$IMAGE" loadgen --spawn "$1" --mcp "$MCP/mcp" --json --seconds-max 240; fi
}
runs_not_completed() { get "$MCP/status" | python3 -c 'import json, sys; print(sum(run["state"] != "Completed" for run in json.load(sys.stdin)["runs"]))'; }
runs_have_begun() { # N: more runs than that, of which some go on: from then on a kill hits sub-agents, not their spawning
  get "$MCP/status" | python3 -c 'import json, sys; runs = json.load(sys.stdin)["runs"]; sys.exit(len(runs) < int(sys.argv[1]) or all(run["state"] == "Completed" for run in runs))' "$1"
}
runs_there() { get "$MCP/status" | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["runs"]))'; }
all_completed() { [ "$(runs_not_completed)" = 0 ]; }
kill_inside() { # SERVICE: kill -9 its process, as the kernel does when memory is short; `docker kill` would count as asked for
  docker compose exec -T "$1" python -c '
import os
for pid in filter(str.isdecimal, os.listdir("/proc")):
    stat = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    if pid != "1" and stat[1] == "1":
        os.kill(int(pid), 9)' 2>/dev/null || :
}
restarted() { [ "$(docker inspect -f '{{.RestartCount}}' "$(container "$1")")" -gt "$2" ]; }

replica_is_there() { # yes|no: the second engine is in the status
  local found=no
  get "$STATUS/status" >"$TMP/status" || return 1
  if grep -q '"fake-engine-b"' "$TMP/status"; then found=yes; fi
  [ $found = "$1" ]
}
jaeger_knows_all() {
  local s
  get "http://127.0.0.1:$JAEGER_PORT/api/services" >"$TMP/services" || return 1
  for s in $OURS; do grep -q "$s" "$TMP/services" || return 1; done
}
wikipedia_is_there() { get "$MCP/status" >"$TMP/status" && python3 -c 'import json, sys; sys.exit(not any(s["name"] == "wikipedia" and s["connected"] for s in json.load(open(sys.argv[1]))["servers"]))' "$TMP/status"; }

c_config() {
  local files
  for files in "" "-f compose.ollama.yaml" "-f compose.testbed.yaml" "-f compose.otel.yaml" "-f compose.testbed.yaml -f compose.runpod.yaml"; do
    # shellcheck disable=SC2086
    RUNPOD_POD_ID=pod RUNPOD_KEY=key docker compose -f compose.yaml $files config -q
  done
  if (unset RUNPOD_KEY; RUNPOD_POD_ID=pod docker compose -f compose.yaml -f compose.runpod.yaml config -q) 2>"$TMP/err"; then die "no RUNPOD_KEY, and nobody minds"; fi
  grep -q 'set it to the key' "$TMP/err" || die "the error doesn't say what to set: $(cat "$TMP/err")"
  ok "config: all sets of files; a variable that is missing is named"
}
c_build() {
  local t size; t=$(now)
  docker compose build >"$TMP/build" 2>&1 || { tail -40 "$TMP/build" >&2; die build; }
  ok "build in $(seconds_since "$t") s"
  t=$(now); docker compose build >"$TMP/build" 2>&1; ok "again, from cached layers, in $(seconds_since "$t") s"
  size=$(docker image inspect -f '{{.Size}}' "$IMAGE")
  [ "$size" -lt $IMAGE_BYTES_MAX ] || die "the image has $size bytes, at most $IMAGE_BYTES_MAX"
  ok "image: $((size / 1000000)) MB"
  docker run --rm --read-only --network none --cap-drop ALL "$IMAGE" version >/dev/null || die "docker run IMAGE version"
}
c_up() {
  local t; t=$(now)
  up up -d --wait --wait-timeout 300
  t=$(seconds_since "$t")
  # shellcheck disable=SC2086
  all_healthy $OURS $FAKES || die "not healthy"
  awk -v t="$t" -v most="$HEALTHY_SECONDS_MAX" 'BEGIN {exit t >= most}' || die "healthy after $t s, at most $HEALTHY_SECONDS_MAX"
  ok "up: all six healthy after $t s"
}
c_rights() {
  local s
  for s in $OURS $FAKES; do
    docker compose exec -T "$s" python -c '
import os
assert os.getuid() == os.getgid() == 10001, os.getuid()
status = dict(line.split(":\t", 1) for line in open("/proc/1/status").read().splitlines() if ":\t" in line)
assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0 and status["NoNewPrivs"] == "1", status
for folder in ("/", "/opt/luftpause", "/etc/luftpause", "/usr/local/bin"):
    try:
        open(f"{folder}/x", "w")
    except OSError:
        continue
    raise AssertionError(f"{folder} can be written")
open("/tmp/x", "w").close()' || die "$s may do too much"
    if docker port "$(container "$s")" | grep -v ' -> 127\.0\.0\.1:' | grep -q .; then die "$s is open to other machines"; fi
  done
  ok "rights: no root, no capabilities, read-only root file system, ports on this machine only"
}
c_demo() {
  local t
  ask >"$TMP/answer"; grep -q '"completion_tokens"' "$TMP/answer" || die "proxy: $(cat "$TMP/answer")"
  get "$STATUS/status" >"$TMP/status"; grep -q '"fake-engine-b"' "$TMP/status" || die "status"
  get "$STATUS/" >/dev/null || die "status page"
  t=$(now); agents 8 >"$TMP/agents" 2>&1 || { cat "$TMP/agents" >&2; die "sub-agents"; }
  ok "demo: a turn, the status, eight sub-agents with tools in $(seconds_since "$t") s, through published ports"
}
c_kill() {
  local s before runs pid
  for s in scheduler dataplane fake-engine-a fake-mcp; do
    before=$(docker inspect -f '{{.RestartCount}}' "$(container "$s")") runs=$(runs_there)
    agents 8 >"$TMP/agents" 2>&1 & pid=$!
    until_ok 60 runs_have_begun $((runs + 8)) || die "no sub-agents began"
    kill_inside "$s"
    until_ok 60 restarted "$s" "$before" || die "$s was not started again"
    until_ok 120 healthy "$s" || die "$s is not healthy again"
    wait $pid || { cat "$TMP/agents" >&2; die "sub-agents did not survive kill -9 of $s"; }
    ask >/dev/null || die "no answer after $s was killed"
    ok "kill -9 of $s under eight sub-agents: started again, all completed"
  done
  before=$(docker inspect -f '{{.RestartCount}}' "$(container runtime)") runs=$(runs_there)
  agents 8 >/dev/null 2>&1 & pid=$!
  until_ok 60 runs_have_begun $((runs + 8)) || die "no sub-agents began"
  kill_inside runtime
  until_ok 60 restarted runtime "$before" || die "runtime was not started again"
  until_ok 120 healthy runtime || die "runtime is not healthy again"
  wait $pid || :                                  # its client was cut off; the runs must not be
  until_ok 180 all_completed || die "$(runs_not_completed) runs did not complete"
  ok "kill -9 of runtime: its runs went on from the journal, all completed"
}
c_partition() {
  local net pid s; net=$(docker network ls -q --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME")
  agents 8 >"$TMP/agents" 2>&1 & pid=$!
  sleep 1
  docker network disconnect "$net" "$(container scheduler)"
  sleep 4
  (ask >"$TMP/held" || :) & local held=$!
  sleep 2; [ ! -s "$TMP/held" ] || die "a turn was placed without a scheduler"
  docker network connect --alias scheduler "$net" "$(container scheduler)"
  wait $held; grep -q completion_tokens "$TMP/held" || die "the turn that came meanwhile was not answered: $(cat "$TMP/held")"
  wait $pid || { cat "$TMP/agents" >&2; die "sub-agents did not survive the partition"; }
  ok "partition of the scheduler for 6 s: turns waited, all were answered"
  for s in fake-engine-a fake-engine-b; do
    docker network disconnect "$net" "$(container $s)"
    sleep 1
    ask >/dev/null || die "no answer without $s"
    docker network connect --alias $s "$net" "$(container $s)"
  done
  agents 4 >/dev/null 2>&1 || die "sub-agents after the partition of engines"
  ok "partition of each engine: the other one answered"
}
c_restart() {
  local before after
  before=$(get "$MCP/status" | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["runs"]))')
  docker compose restart >"$TMP/up" 2>&1 || die restart
  up up -d --wait --wait-timeout 300
  after=$(get "$MCP/status" | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["runs"]))')
  [ "$before" -gt 0 ] && [ "$before" = "$after" ] || die "$before runs before, $after after"
  up up -d --wait --force-recreate
  after=$(get "$MCP/status" | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["runs"]))')
  [ "$before" = "$after" ] || die "$before runs before, $after in new containers"
  ask >/dev/null || die "no answer after a restart"
  ok "restart, and new containers: all answer, and the $after runs are still there"
}
c_reload() {
  cp -r deploy/compose/fakes "$TMP/mine"; chmod -R a+rX "$TMP"
  export LUFTPAUSE_CONFIG=$TMP/mine
  # shellcheck disable=SC2086
  up up -d --wait $OURS
  sed -i '/fake-engine-b/d' "$TMP/mine/luftpause.yaml"
  until_ok 20 replica_is_there no || die "a replica that was removed is still there"
  cp deploy/compose/fakes/luftpause.yaml "$TMP/mine/new"; mv "$TMP/mine/new" "$TMP/mine/luftpause.yaml"
  until_ok 20 replica_is_there yes || die "a replica that was added is not there"
  unset LUFTPAUSE_CONFIG
  # shellcheck disable=SC2086
  up up -d --wait $OURS
  ok "reload: a folder of one's own; replicas removed and added while everything ran"
}
c_token() {
  local code
  export LUFTPAUSE_TOKEN=0123456789abcdef-of-a-test
  up up -d --wait
  for url in "$PROXY/v1/models" "$MCP/status" "$STATUS/status"; do
    code=$(curl -sS --noproxy '*' -o /dev/null -w '%{http_code}' "$url")
    [ "$code" = 401 ] || die "$url without a token: $code"
    get -H "Authorization: Bearer $LUFTPAUSE_TOKEN" "$url" >/dev/null || die "$url with the token"
  done
  ask -H "x-api-key: $LUFTPAUSE_TOKEN" >/dev/null || die "a turn with the token"
  agents 4 >"$TMP/agents" 2>&1 || { cat "$TMP/agents" >&2; die "sub-agents with the token"; }
  docker compose logs --no-color >"$TMP/logs" 2>&1
  if grep -q "$LUFTPAUSE_TOKEN" "$TMP/logs"; then die "the token is in a log"; fi
  export LUFTPAUSE_TOKEN=''
  up up -d --wait
  ok "token: 401 without it at all three doors, with it everything works; it is in no log"
}
c_otel() {
  export COMPOSE_FILE=compose.yaml:compose.otel.yaml
  up up -d --wait
  agents 2 >/dev/null 2>&1 || die "sub-agents"
  until_ok 60 jaeger_knows_all || die "Jaeger does not know all three services: $(cat "$TMP/services")"
  unset COMPOSE_FILE
  up up -d --wait --remove-orphans
  ok "otel: spans of all three services are in Jaeger"
}
c_ollama() {
  export COMPOSE_FILE=compose.yaml:compose.ollama.yaml OLLAMA_MODEL=${OLLAMA_MODEL:-llama3.2:1b}
  docker compose down -t 5 >/dev/null 2>&1
  # shellcheck disable=SC2086
  up up -d --build --wait $OURS
  [ -z "$(container fake-mcp)$(container fake-engine-a)" ] || die "fakes were started too"
  MODEL=$OLLAMA_MODEL ask >"$TMP/answer" || die "the model on the host does not answer"
  until_ok 120 wikipedia_is_there || die "the tools of Wikipedia are not there"
  docker compose down -v -t 5 >/dev/null 2>&1
  unset COMPOSE_FILE
  up up -d --wait
  ok "ollama: the model on the host answered, Wikipedia's tools are there"
}
c_runpod() {
  : "${RUNPOD_POD_ID:?}" "${RUNPOD_KEY:?}"
  export COMPOSE_FILE=compose.yaml:compose.testbed.yaml:compose.runpod.yaml${RUNPOD_TEST_FILE:+:$RUNPOD_TEST_FILE}
  # shellcheck disable=SC2086
  up up -d --wait $OURS
  MODEL=llama-3.2-1b ask >"$TMP/answer" || die "the pod does not answer"
  docker compose logs --no-color >"$TMP/logs" 2>&1
  if grep -qF "$RUNPOD_KEY" "$TMP/logs"; then die "the key is in a log"; fi
  unset COMPOSE_FILE
  up up -d --wait
  ok "runpod: the pod answered; its key is in no log"
}
c_down() {
  docker compose --profile '*' down -v --remove-orphans -t 5 >/dev/null 2>&1 || die down
  local left label="label=com.docker.compose.project=$COMPOSE_PROJECT_NAME"
  left=$(docker ps -aq --filter "$label")$(docker volume ls -q --filter "$label")$(docker network ls -q --filter "$label")
  [ -z "$left" ] || die "left over: $left"
  ok "down -v leaves nothing"
}
c_registry() { # as a client of the MCP registry runs it, by server.json alone
  local run
  run=$(python3 - "$IMAGE" "$LUFTPAUSE_RUNTIME_PORT" <<'PYTHON'
import json, shlex, sys
image, port = sys.argv[1:]
(package,) = json.load(open("server.json"))["packages"]
words = []
for each in package["runtimeArguments"]:
    value = each["value"].replace("127.0.0.1:7000:", f"127.0.0.1:{port}:")
    for name, variable in each.get("variables", {}).items():
        value = value.replace(f"{{{name}}}", "luftpause-test-registry" if name == "volume" else variable["default"])
    words += [each["name"], value]
for each in package["environmentVariables"]:
    if "value" in each:
        words += ["--env", f"{each['name']}={each['value']}"]
print(shlex.join([*words, image, *(each["value"] for each in package["packageArguments"])]))
PYTHON
)
  eval "docker run --detach --rm --name luftpause-test-registry $run" >/dev/null
  until_ok 180 get "$MCP/health" || { docker logs luftpause-test-registry >&2; docker stop luftpause-test-registry >/dev/null; die "registry"; }
  if agents 2 >"$TMP/agents" 2>&1; then run=0; else run=1; cat "$TMP/agents" >&2; fi
  docker stop --time 20 luftpause-test-registry >/dev/null
  docker volume rm luftpause-test-registry >/dev/null
  [ "$run" = 0 ] || die "sub-agents of one container"
  ok "registry: one container, run as server.json says, serves sub-agents"
}

# shellcheck disable=SC2154
trap 'code=$?; [ $code -eq 0 ] || docker compose --profile "*" down -v --remove-orphans -t 1 >/dev/null 2>&1 || :; rm -rf "$TMP"; exit $code' EXIT
[ $# -gt 0 ] || set -- config build up rights demo kill partition restart reload token down registry
for check in "$@"; do
  [ "$(type -t "c_$check")" = function ] || die "there is no check $check"
  "c_$check"
done
echo "$passed passed, 0 failed in $SECONDS s"
