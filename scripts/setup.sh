#!/usr/bin/env bash
# Installs what the project needs on a Debian 12-like machine: packages (as root or through sudo) and, where asked for, Python
# packages in .venv. Quick when nothing is missing.
#
#   scripts/setup.sh                   what building needs
#   scripts/setup.sh --with-download   also .venv with what scripts/download_hf_assets.py needs
#   scripts/setup.sh --with-tests      also pytest in it (implies --with-download)
#   scripts/setup.sh --with-train      also .venv with what training needs: torch, and Arrow for Parquet data
#   scripts/setup.sh --with-torch      the peers of the interop tests as well (implies --with-tests and --with-train)
#   scripts/setup.sh --with-fuzz       also clang's fuzzer runtime
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

package_lists=(scripts/apt-packages.txt)
requirements=()
for option in "$@"; do
  case "$option" in
    --with-download) requirements+=(requirements/download.txt) ;;
    --with-tests) requirements+=(requirements/download.txt requirements/test.txt) ;;
    --with-train) requirements+=(requirements/data.txt requirements/train.txt) ;;
    --with-torch) requirements+=(requirements/{download,test,data,train,interop,datasets}.txt) ;;
    --with-fuzz) package_lists+=(scripts/apt-packages-fuzz.txt) ;;
    *) echo "setup.sh: unknown option $option (want --with-download, --with-tests, --with-train, --with-torch or --with-fuzz)" >&2; exit 2 ;;
  esac
done

# Runs a command whose output matters only when it fails.
logged() {
  mkdir -p build
  if ! "$@" >build/setup.log 2>&1; then
    cat build/setup.log >&2
    exit 4
  fi
}

install_packages() {
  local wanted missing=() installed
  mapfile -t wanted < <(sed '/^#/d; /^$/d' "${package_lists[@]}")
  # dpkg-query exits with 1 when it does not know one of the names; what it does know is still printed.
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null || true)
  local package
  for package in "${wanted[@]}"; do
    grep -qx "installed $package" <<<"$installed" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  echo "setup: installing ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: run as root, or install: ${missing[*]}" >&2; exit 4; }
    as_root=(sudo)
  fi
  logged "${as_root[@]}" apt-get update
  logged "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}

# The first Python that is new enough and can make virtual environments.
find_python() {
  local candidate
  for candidate in ${MILEPOST_PYTHON:-} python3 /usr/bin/python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "setup: need Python 3.11 to 3.14 with the venv module (set MILEPOST_PYTHON to one)" >&2
  exit 4
}

# Brings .venv up to one requirements file, unless its stamp says that this was done.
install_requirements() {
  local file=$1 stamp want
  stamp=.venv/stamp-$(basename "$file" .txt)
  want=$(sha256sum <"$file")
  [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return
  echo "setup: installing $file into .venv"
  logged .venv/bin/python -m pip install --disable-pip-version-check --requirement "$file"
  echo "$want" >"$stamp"
}

install_packages
if [ ${#requirements[@]} -gt 0 ]; then
  # A folder that was moved here, or whose Python is gone, is of no use.
  if ! .venv/bin/python -c '' 2>/dev/null; then
    rm -rf .venv
    python=$(find_python)
    echo "setup: making .venv with $("$python" --version)"
    "$python" -m venv .venv
  fi
  for file in "${requirements[@]}"; do
    install_requirements "$file"
  done
fi
