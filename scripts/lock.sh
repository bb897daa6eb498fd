#!/usr/bin/env bash
# Resolves the dependencies into requirements/: one file per group of pyproject.toml, every file
# of every platform by hash, no download address. Arguments go to uv: `--upgrade-package numpy`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

resolve() {
  local name=$1
  shift
  echo "lock: requirements/$name.txt"
  .venv/bin/python -m uv pip compile --quiet --universal --python-version 3.11 \
    --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock" \
    --output-file "requirements/$name.txt" "$@"
}

resolve dev pyproject.toml --group dev "$@"
resolve build --group build --constraints requirements/dev.txt
resolve bench --group bench --constraints requirements/dev.txt
resolve bytewax --group bytewax "$@"
resolve pathway --group pathway "$@"
