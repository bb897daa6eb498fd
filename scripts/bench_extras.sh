#!/usr/bin/env bash
# Installs what only `make bench` needs: best effort, a word about what has to be left out.
#
# What Spark's own baselines need goes into .venv. The other systems get an environment each,
# .bench/<name>, because their needs contradict ours and must not change the versions we measure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

say() { printf 'bench: %s\n' "$*"; }

wanted() { { pwd; .venv/bin/python --version; cat "requirements/$1.txt"; } | cksum; }

# Only wheels: a system that would have to be compiled here is left out.
fill() { "$1" -m pip install -qq --require-hashes --only-binary :all: -r "requirements/$2.txt"; }

install_baseline() {
  fill .venv/bin/python bench || say "protobuf cannot be installed: transformWithState is left out"
}

install_peer() {
  local name=$1 home=.bench/$1
  [ "$(cat "$home/.stamp" 2>/dev/null || true)" != "$(wanted "$name")" ] || return 0
  rm -rf "$home"
  say "installing $name for comparison"
  if .venv/bin/python -m venv "$home" && fill "$home/bin/python" "$name" 2>"$home/errors"; then
    wanted "$name" >"$home/.stamp"
  else
    say "$name cannot be installed on $(.venv/bin/python --version): it is left out ($(tail -n 1 "$home/errors" 2>/dev/null || true))"
    rm -rf "$home"
  fi
}

install_baseline
install_peer bytewax
install_peer pathway
