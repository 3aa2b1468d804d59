#!/usr/bin/env bash
# Decides, and hands on the decision. What decides comes from the inputs of the action and from the
# base branch: the protocol and the logs of the baseline are those of BASE, never of the candidate.
# Inputs come as variables of the environment, so that a name cannot become a command.
set -euo pipefail
refuse() { echo "::error::$*" >&2; exit 2; }
cd "$GITHUB_WORKSPACE"
work="$(mktemp -d "$RUNNER_TEMP/gate.XXXXXX")"
python="$RUNNER_TEMP/evalstats-plugin/bin/python"
# No hook, monitor or replaced commit of the workspace's own repository.
export GIT_NO_REPLACE_OBJECTS=1
git=(git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c protocol.ext.allow=never)

options=(--junit "$work/gate.xml")
if [[ -n "$PROTOCOL" || -n "$BASELINE_LOGS" ]]; then
  [[ "$BASE" =~ ^[0-9a-f]{40,64}$ ]] || refuse "base '$BASE' is no commit: give its SHA"
  "${git[@]}" cat-file -e "$BASE^{commit}" 2>/dev/null ||
    "${git[@]}" fetch --quiet --depth=1 --no-recurse-submodules origin "$BASE"
  mkdir "$work/base"
  "${git[@]}" archive "$BASE" | tar -x -C "$work/base"
fi
inside() { # A path of the base branch: it must stay there.
  local path
  path="$(realpath -e "$work/base/$1")" || refuse "the base branch $BASE has no $1"
  [[ "$path/" == "$work/base/"* ]] || refuse "$1 lies outside the repository"
  printf %s "$path"
}
if [[ -n "$PROTOCOL" ]]; then path="$(inside "$PROTOCOL")"; options+=(--protocol "$path"); fi
if [[ -n "$BASELINE_LOGS" ]]; then
  path="$(inside "$BASELINE_LOGS")"; options+=(--baseline-logs "$path")
fi
[[ -z "$BASELINE" ]] || options+=(--baseline "$BASELINE")
[[ -z "$MARGIN" ]] || options+=(--margin "$MARGIN")
[[ -z "$MODELS" ]] || options+=(--models "$MODELS")
[[ -z "$LINK" ]] || options+=(--link "$LINK")
[[ "$NON_INFERIOR" != true ]] || options+=(--non-inferior)
while IFS= read -r name; do [[ -z "$name" ]] || options+=(--task "$name"); done <<< "$TASK"
while IFS= read -r name; do [[ -z "$name" ]] || options+=(--metric "$name"); done <<< "$METRIC"

# Isolated from the workspace; no configuration, and no plugin but our own adapters.
unset "${!EVALSTATS_@}"
code=0
"$python" -I -X utf8 -m evalstats_plugin --no-config --no-plugin '*' gate "${options[@]}" \
  --format markdown -- "$LOGS" > "$work/gate.md" || code=$?
case $code in
  0) decision=pass ;;
  3) decision=regressed ;;
  4) decision=inconclusive ;;
  *) refuse "the gate could not decide (exit code $code)" ;;
esac
cat "$work/gate.md" >> "$GITHUB_STEP_SUMMARY"
{
  echo "decision=$decision"
  echo "comment=$work/gate.md"
  echo "junit=$work/gate.xml"
} >> "$GITHUB_OUTPUT"
if [[ $code == 4 && "$FAIL_IF_INCONCLUSIVE" == false ]]; then code=0; fi
exit "$code"
