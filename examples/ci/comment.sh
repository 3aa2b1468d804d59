#!/usr/bin/env bash
# Writes the decision as one comment on the pull request, and renews it at every push.
set -euo pipefail
marker="<!-- evalstats-plugin gate ${COMMENT_ID} -->"
body="$(mktemp "$RUNNER_TEMP/comment.XXXXXX")"
{ printf '%s\n' "$marker"; head -c 60000 "$COMMENT"; } > "$body"
# Only a comment of the account that writes it: anybody can put a marker into theirs.
id="$(gh api --paginate "repos/$GITHUB_REPOSITORY/issues/$NUMBER/comments?per_page=100" --jq \
  ".[] | select(.user.login == \"$AUTHOR\" and (.body | startswith(\"$marker\"))) | .id" |
  tail -n 1)"
if [[ -n "$id" ]]; then
  gh api --silent --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$id" -F "body=@$body"
else
  gh api --silent --method POST "repos/$GITHUB_REPOSITORY/issues/$NUMBER/comments" -F "body=@$body"
fi
