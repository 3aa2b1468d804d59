#!/usr/bin/env bash
# Installs the package into an environment of its own, from the checkout of this very action: the
# ref that `uses:` names is the ref that decides.
set -euo pipefail
package="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
if ! grep -qs '^name = "evalstats-plugin"' "$package/pyproject.toml"; then
  echo "::error::$package is not evalstats-plugin: use the action where it is, as" \
    "uses: evalstats/evalstats-plugin/examples/ci@REF, rather than a copy of this folder" >&2
  exit 2
fi
environment="$RUNNER_TEMP/evalstats-plugin"
cd "$RUNNER_TEMP"
# Isolated (-I): nothing of the workspace or of PYTHONPATH is imported.
python3 -I -m venv "$environment"
"$environment/bin/python" -I -m pip install --quiet --disable-pip-version-check \
  "${package}[inspect,lm-eval]"
