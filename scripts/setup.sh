#!/usr/bin/env bash
# Makes .venv with the locked dependencies and the package itself, and sees that Spark has a Java.
# Safe to repeat: when nothing changed it does nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
stamp=$venv/.anabranch-setup
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
export DIST_EXTRA_CONFIG=$PWD/scripts/wheels.cfg

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# The scripts of an environment hold its absolute path, so a moved project needs a new one.
wanted() { { pwd; cat requirements/build.txt requirements/dev.txt pyproject.toml; } | cksum; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Every Python on the PATH that can make an environment, python3 first.
pythons() {
  local name path
  for name in python3 python3.13 python3.12 python3.11; do
    for path in $(type -aP "$name"); do
      if new_enough "$path" && "$path" -c 'import ensurepip, venv' 2>/dev/null; then printf '%s\n' "$path"; fi
    done
  done
}

# The first of them, unless another one runs plain code in less than nine tenths of its time: one
# that was built without profile-guided optimisation costs a quarter of everything done in Python.
find_python() {
  local path time chosen= least=
  if [ -n "${ANABRANCH_PYTHON-}" ]; then
    new_enough "$ANABRANCH_PYTHON" || fail "ANABRANCH_PYTHON ($ANABRANCH_PYTHON) is no Python 3.11 or newer."
    printf '%s\n' "$ANABRANCH_PYTHON"
    return
  fi
  for path in $(pythons); do
    time=$("$path" -I scripts/python_speed.py) || continue
    if [ -z "$chosen" ] || [ $((time * 10)) -lt $((least * 9)) ]; then chosen=$path least=$time; fi
  done
  [ -n "$chosen" ] ||
    fail "Python 3.11 or newer, able to make a virtual environment, is needed and none of python3, python3.13, python3.12, python3.11 is; install one (on Debian python3 and python3-venv) and run make setup again."
  printf '%s\n' "$chosen"
}

# An environment made elsewhere, with an old Python or by half is replaced; any other is kept and
# completed.
usable() {
  new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1 &&
    { [ ! -e "$stamp" ] || [ "$(sed -n 2p "$stamp")" = "$PWD" ]; }
}

make_environment() {
  local python
  ! usable || return 0
  python=$(find_python)
  say "making $venv with $python, $("$python" --version); ANABRANCH_PYTHON would name another"
  "$python" -m venv --clear "$venv" || fail "$python cannot make a virtual environment."
}

pip() { "$venv/bin/python" -m pip install -qq "$@"; }

# Where pip was given a place of its own to download from and uv was not, uv would look elsewhere.
uv_fits() {
  [ -n "${UV_DEFAULT_INDEX-}${UV_INDEX_URL-}" ] ||
    ! "$venv/bin/python" -m pip config list | grep '\.index-url=' >/dev/null
}

# uv takes two thirds of the time that pip takes.
fast() {
  uv_fits && "$venv/bin/uv" pip install -q --python "$venv/bin/python" "$@"
}

# The tools come first, from the lock: setuptools builds pyspark, which has no wheel, and this package.
install() {
  local tree=(--no-build-isolation --require-hashes -r requirements/dev.txt)
  local package=(--no-build-isolation --no-deps -e .)
  say "installing the locked dependencies; the first time this downloads about 700 MB and takes a minute or more"
  pip --require-hashes -r requirements/build.txt
  if ! { fast "${tree[@]}" && fast "${package[@]}"; }; then
    say "with pip instead of uv"
    pip "${tree[@]}"
    pip "${package[@]}"
  fi
}

# Spark looks for Java in this order too.
java_command() {
  if [ -n "${JAVA_HOME-}" ]; then printf '%s\n' "$JAVA_HOME/bin/java"; else command -v java || true; fi
}

# Spark starts the JVM with the vector module, which some runtimes leave out.
java_fits() {
  local java major
  java=$(java_command)
  [ -n "$java" ] || return 1
  major=$("$java" --add-modules jdk.incubator.vector -version 2>&1 |
    sed -n 's/.* version "\([0-9]*\).*/\1/p') || return 1
  [ "${major:-0}" -ge 17 ]
}

ensure_java() {
  local package=openjdk-17-jre-headless
  ! java_fits || return 0
  if [ -n "${JAVA_HOME-}" ]; then
    fail "JAVA_HOME ($JAVA_HOME) is no Java 17 or newer with the module jdk.incubator.vector, which Spark needs; unset it or let it name one."
  fi
  if [ "$(id -u)" -ne 0 ] || [ ! -f /etc/debian_version ]; then
    fail "Spark needs Java 17 or newer with the module jdk.incubator.vector (Debian: $package); install it, put java on the PATH or set JAVA_HOME, and run make setup again."
  fi
  say "no Java for Spark found: installing $package with apt-get"
  export DEBIAN_FRONTEND=noninteractive
  if ! apt-get -qq update || ! apt-get -qq install -y --no-install-recommends "$package" >/dev/null; then
    fail "apt-get could not install $package; install a Java 17 or newer by hand and run make setup again."
  fi
  java_fits || fail "$package is installed, but the java on the PATH ($(java_command)) is not Java 17 or newer with jdk.incubator.vector."
}

if [ "$(sed -n 1p "$stamp" 2>/dev/null || true)" != "$(wanted)" ]; then
  make_environment
  rm -f "$stamp"
  install
  printf '%s\n%s\n' "$(wanted)" "$PWD" >"$stamp"
  say "$venv is ready"
  new=yes
fi
ensure_java
if [ -n "${new-}" ]; then
  say "making an archive of Spark's Java classes in the background: from then on Spark starts faster"
  setsid "$venv/bin/python" -m anabranch.spark.class_archive </dev/null >/dev/null 2>&1 &
fi
