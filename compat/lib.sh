# Sourced by every client's `run`: where clients are installed, and the programs that they need.
set -euo pipefail

CHECKOUT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${TXBROKER_TEST_CACHE:-$CHECKOUT/.cache}/compat
if [ $# -lt 1 ]; then
  echo "usage: $0 HOST:PORT,... [FEATURE ...]" >&2
  exit 2
fi
mkdir -p "$CACHE"
# Standard input belongs to the driver: nothing that is installed may read from it. Someone at a terminal confirms no changes of brokers.
if [ -t 0 ]; then exec 8</dev/null; else exec 8<&0; fi
exec </dev/null
# Only one run installs at a time.
exec 9>"$CACHE/lock"
flock 9

say() { echo "$*" >&2; }

# driver PROGRAM ARGUMENTS: exec the driver.
driver() {
  exec 9>&-
  exec "$@" <&8 8<&-
}

# need PROGRAM PACKAGE: install a Debian package when its program is missing.
need() {
  command -v "$1" >/dev/null && return
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "== apt-get install $2"
    { apt-get install -y --no-install-recommends "$2" || { apt-get update && apt-get install -y --no-install-recommends "$2"; }; } >&2
  fi
  command -v "$1" >/dev/null || { say "$1 is not installed; on Debian, as root: apt-get install $2"; exit 3; }
}

# python_client PACKAGE VERSION [EXTRAS]: create a virtual environment with this release of the client; its interpreter is $PYTHON_WITH_CLIENT.
python_client() {
  local place=$CACHE/$1-$2
  PYTHON_WITH_CLIENT=$place/bin/python
  if [ ! -e "$place/.complete" ]; then
    say "== pip install $1==$2"
    rm -rf "$place"
    "${PYTHON:-python3}" -m venv "$place"
    "$place/bin/pip" install --disable-pip-version-check -q "$1${3:-}==$2" >&2
    touch "$place/.complete"
  fi
}

# python_driver MODULE ARGUMENTS: run a driver of this checkout.
python_driver() {
  cd "$CHECKOUT"
  driver "${PYTHON_WITH_CLIENT:-${PYTHON:-python3}}" -m "$@"
}

# go_driver FOLDER MODULE ARGUMENTS: build the driver in that folder, with CLIENT_VERSION of the client's module if it is given, and run it.
go_driver() {
  local folder=$1 module=$2 source program
  shift 2
  PATH=$PATH:/usr/local/go/bin
  need go golang-go
  source=$CHECKOUT/compat/$folder
  if [ -n "${CLIENT_VERSION:-}" ]; then
    # Another version needs another go.mod: work on a copy of the folder.
    rm -rf "$CACHE/$folder-$CLIENT_VERSION"
    mkdir -p "$CACHE/$folder-$CLIENT_VERSION"
    cp -r "$source" "$CHECKOUT/compat/go_driving" "$CACHE/$folder-$CLIENT_VERSION/"
    source=$CACHE/$folder-$CLIENT_VERSION/$folder
    (cd "$source" && go get "$module@v$CLIENT_VERSION" && go mod tidy) >&2
  fi
  program=$CACHE/$folder${CLIENT_VERSION:+-$CLIENT_VERSION}.bin
  # Go builds only what changed.
  (cd "$source" && go build -o "$program" .) >&2
  export COMPAT=$CHECKOUT/compat
  driver "$program" "$@"
}

# node_driver FOLDER VERSION ARGUMENTS: install "${PACKAGES[@]}" from npm, the client first, and run the driver in that folder.
node_driver() {
  local folder=$1 place=$CACHE/$1-$2
  shift 2
  need node nodejs
  need npm npm
  if [ "$(cat "$place/.complete" 2>/dev/null)" != "${PACKAGES[*]}" ]; then
    say "== npm install ${PACKAGES[*]}"
    rm -rf "$place"
    mkdir -p "$place"
    (cd "$place" && npm install --no-save --no-package-lock --no-audit --no-fund --loglevel=error "${PACKAGES[@]}" >&2)
    echo "${PACKAGES[*]}" > "$place/.complete"
  fi
  CLIENT_PLACE=$place driver node "$CHECKOUT/compat/$folder/driver.mjs" "$@"
}
