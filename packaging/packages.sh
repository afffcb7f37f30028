#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# packages.sh FOLDER [WHEEL...]: write a deb and an rpm of each WHEEL into FOLDER.
# Without WHEEL, packages of all wheels in FOLDER are written.
set -euo pipefail

fail() {
  printf 'error: %s\nhint:  %s\n' "$1" "$2" >&2
  exit 3
}

for tool in dpkg-deb rpmbuild; do
  command -v $tool >/dev/null || fail "no $tool" "install it (Debian: dpkg rpm; Red Hat: dpkg rpm-build)"
done
folder=$(realpath "$1")
shift
shopt -s nullglob
wheels=("$@")
[ $# -gt 0 ] || wheels=("$folder"/nccltune-*.whl)
[ ${#wheels[@]} -gt 0 ] || fail "no wheel in $folder" "make wheels"
mapfile -t wheels < <(realpath "${wheels[@]}")
cd "$(dirname "$0")/.."

# fill TREE LIBDIR LICENSE: copy all files that a package installs into the folder TREE. LIBDIR and
# LICENSE are the paths after the installation.
fill() {
  install -d "$1$2" "$1/etc/nccltune" "$1/etc/profile.d" "$(dirname "$1$3")"
  cp -r "$stage/wheel/nccltune/native/lib/." "$1$2"
  sed "s|@LIBDIR@|$2|g" packaging/profile.sh >"$1/etc/profile.d/nccltune.sh"
  cp packaging/profile.conf "$1/etc/nccltune/profile.conf"
  cp LICENSE "$1$3"
  chmod -R u=rwX,go=rX "$1"
}

for wheel in "${wheels[@]}"; do
  # nccltune-VERSION-py3-none-PLATFORM.whl
  IFS=- read -r _ version _ _ platform <<<"$(basename "$wheel" .whl)"
  case $platform in
    *_x86_64) machine=x86_64 debian=amd64 ;;
    *_aarch64) machine=aarch64 debian=arm64 ;;
    *) fail "$wheel is for $platform" "make wheels" ;;
  esac
  # The package needs the glibc version in the tag of the wheel (manylinux_2_28: glibc 2.28). If the
# tag names no version, the package needs the glibc version of this machine.
  if [[ $platform =~ ^manylinux_([0-9]+)_([0-9]+)_ ]]; then
    glibc=${BASH_REMATCH[1]}.${BASH_REMATCH[2]}
  else
    glibc=$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)
  fi
  stage=$PWD/build/packages/$machine
  rm -rf "$stage"
  mkdir -p "$stage"
  python3 -m zipfile -e "$wheel" "$stage/wheel"

  fill "$stage/deb" "/usr/lib/$machine-linux-gnu/nccltune" /usr/share/doc/nccltune-plugins/copyright
  mkdir "$stage/deb/DEBIAN"
  printf '%s\n' /etc/nccltune/profile.conf /etc/profile.d/nccltune.sh >"$stage/deb/DEBIAN/conffiles"
  sed -e "s|@VERSION@|$version|; s|@ARCHITECTURE@|$debian|; s|@GLIBC@|$glibc|" \
    packaging/control >"$stage/deb/DEBIAN/control"
  dpkg-deb --root-owner-group --build "$stage/deb" "$folder"

  fill "$stage/rpm" /usr/lib64/nccltune /usr/share/licenses/nccltune-plugins/LICENSE
  rpmbuild -bb --quiet --target "$machine-linux" --define "_topdir $stage/rpmbuild" \
    --define "_rpmdir $folder" --define "_rpmfilename %{name}-%{version}-%{release}.%{arch}.rpm" \
    --define "version $version" --define "glibc $glibc" --define "tree $stage/rpm" \
    packaging/nccltune-plugins.spec
done
