#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Other systems' files in build/sysroots, unpacked and not installed: no root, no containers.
#   bionic  glibc 2.27, older than what the wheels promise (Ubuntu 18.04)
#   focal   glibc 2.31 (Ubuntu 20.04)
#   arm64   glibc 2.36 and Python 3.11 for aarch64 (Debian 12)
#   tools   qemu-aarch64-static
# Needs apt-get of Debian or Ubuntu. Where an archive is not reached, its folder is missing, and the
# tests that need it are skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD/build/sysroots
mkdir -p "$root"
command -v apt-get >/dev/null || { echo "sysroots: no apt-get on this system" >&2; exit 0; }

# FOLDER ARCHITECTURE COMMAND...: apt-get with lists and a cache of its own, as if nothing was
# installed.
apt() {
  local state=$root/.apt/$1 architecture=$2
  shift 2
  apt-get -qq -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" \
    -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State::lists="$state/lists" -o Dir::State::status=/dev/null \
    -o Dir::Cache="$state/cache" -o APT::Sandbox::User= -o Acquire::Languages=none \
    -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o Debug::NoLocking=1 "$@"
}

# FOLDER ARCHITECTURE SOURCE: sets `state` up for apt.
lists() {
  state=$root/.apt/$1
  echo "sysroots: $1" >&2
  rm -rf "$state/cache/archives"
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
  echo "deb $3" >"$state/sources.list"
  apt "$1" "$2" -o APT::Update::Error-Mode=any update
}

# FOLDER: what apt has fetched.
unpack() {
  for package in "$root/.apt/$1"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$root/$1.new"
  done
  mv "$root/$1.new" "$root/$1"
}

# FOLDER ARCHITECTURE PACKAGE...: packages of Debian 12, and what they depend on.
debian() {
  local folder=$1 architecture=$2 keys=/usr/share/keyrings/debian-archive-keyring.gpg
  shift 2
  [ ! -e "$root/$folder" ] && [ -e $keys ] || return 0
  lists "$folder" "$architecture" "[signed-by=$keys] http://deb.debian.org/debian bookworm main" &&
    apt "$folder" "$architecture" --download-only --no-install-recommends -y install "$@" &&
    unpack "$folder"
}

# RELEASE SHA256: the libc6 that a release of Ubuntu came with. Debian has no keys of Ubuntu's.
ubuntu() {
  [ ! -e "$root/$1" ] || return 0
  lists "$1" amd64 "[trusted=yes] http://archive.ubuntu.com/ubuntu $1 main" 2>/dev/null || return 1
  (cd "$state/cache/archives" && apt "$1" amd64 download libc6 && echo "$2" ./*.deb | sha256sum -c --quiet) &&
    unpack "$1"
}

rm -rf "$root"/*.new
failed=0
debian tools "$(dpkg --print-architecture)" qemu-user-static || failed=1
debian arm64 arm64 python3.11-minimal libpython3.11-stdlib libstdc++6 || failed=1
ubuntu bionic 1e1eb86fd646aa68f7144ec692b837b6b352d215880c6a2d0c92c19d36938427 || failed=1
ubuntu focal 847a68e5f1ec2cd4e6fc191c5eaf0547445dd5c473c7617c068ba4441f63b292 || failed=1
[ "$failed" = 0 ] || echo "sysroots: not all of them; tests that need the others are skipped" >&2
