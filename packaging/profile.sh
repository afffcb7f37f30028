# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Exports the variables that /etc/nccltune/profile.conf requests; by default it requests none.
# The exports are those of `nccltune env`, without CUDA_DEVICE_MAX_CONNECTIONS. A variable that the environment or the user's
# nccl.conf sets keeps its value: NCCL would prefer an exported one to that file. A user who has
# chosen another plugin gets nothing of ours in its place.
if [ -r /etc/nccltune/profile.conf ]; then
  nccltune_tuner='' nccltune_net='' nccltune_sendrecv=''
  # shellcheck source=/dev/null
  . /etc/nccltune/profile.conf

  # nccltune_bad NAME VALUE EXPECTED: complain about a line of profile.conf, which is ignored.
  nccltune_bad() {
    printf 'nccltune: /etc/nccltune/profile.conf: %s=%s is ignored: %s\n' "$1" "$2" "$3" >&2
  }
  # nccltune_on NAME VALUE: whether VALUE is a yes.
  nccltune_on() {
    case $2 in
      [Yy] | [Yy][Ee][Ss] | [Tt][Rr][Uu][Ee] | [Oo][Nn] | 1) return 0 ;;
      '' | [Nn] | [Nn][Oo] | [Ff][Aa][Ll][Ss][Ee] | [Oo][Ff][Ff] | 0) ;;
      *) nccltune_bad "$1" "$2" 'neither yes nor no' ;;
    esac
    return 1
  }

  # nccltune_free NAME...: whether the user has set none of these.
  nccltune_free() {
    for nccltune_name in "$@"; do
      if eval "[ -n \"\${$nccltune_name+set}\" ]" ||
        grep -qs "^$nccltune_name=" "${NCCL_CONF_FILE:-${HOME-}/.nccl.conf}"; then
        return 1
      fi
    done
  }

  case $nccltune_tuner in
    '' | [Nn][Oo]) ;;
    /*)
      if nccltune_free NCCL_TUNER_PLUGIN; then
        export NCCL_TUNER_PLUGIN=@LIBDIR@/libnccl-tuner-nccltune.so
        ! nccltune_free NCCL_TUNER_CONFIG_FILE || export NCCL_TUNER_CONFIG_FILE="$nccltune_tuner"
      fi
      ;;
    *) nccltune_bad nccltune_tuner "$nccltune_tuner" 'not the absolute path of a file of rules' ;;
  esac
  if nccltune_on nccltune_net "$nccltune_net" && nccltune_free NCCL_NET_PLUGIN NCCL_NET; then
    export NCCL_NET_PLUGIN=@LIBDIR@/libnccl-net-nccltune.so
    export NCCL_NET=nccltune
    ! nccltune_free NCCL_NET_PLUGIN_REF_COUNT || export NCCL_NET_PLUGIN_REF_COUNT=1
  fi
  if nccltune_on nccltune_sendrecv "$nccltune_sendrecv" && nccltune_free NCCLTUNE_SENDRECV; then
    export LD_PRELOAD="@LIBDIR@/libnccltune-sendrecv.so${LD_PRELOAD:+:$LD_PRELOAD}"
    export NCCLTUNE_SENDRECV=1
  fi
  unset nccltune_tuner nccltune_net nccltune_sendrecv nccltune_name
  unset -f nccltune_bad nccltune_on nccltune_free
fi
