# Sourced by every example's `run`: as compat/lib.sh, and TXBROKER is the command of this checkout's environment.
set -- example "$@"
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
EXAMPLES=$CHECKOUT/compat/testing
TXBROKER=${TXBROKER:-$(dirname "$(command -v "${PYTHON:-python3}")")/txbroker}
export TXBROKER
[ -x "$TXBROKER" ] || { say "$TXBROKER is not there: set TXBROKER to the command txbroker, or PYTHON to an interpreter beside it"; exit 3; }
