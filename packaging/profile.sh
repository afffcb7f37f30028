# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Exports the variables that /etc/nccltune/profile.conf requests; by default it requests none.
# The exports are the same as those of `nccltune env`.
if [ -r /etc/nccltune/profile.conf ]; then
  nccltune_tuner='' nccltune_net='' nccltune_sendrecv=''
  # shellcheck source=/dev/null
  . /etc/nccltune/profile.conf
  if [ -n "$nccltune_tuner" ] && [ -z "${NCCL_TUNER_PLUGIN+set}" ]; then
    export NCCL_TUNER_PLUGIN=@LIBDIR@/libnccl-tuner-nccltune.so
    export NCCL_TUNER_CONFIG_FILE="$nccltune_tuner"
  fi
  if [ "$nccltune_net" = yes ] && [ -z "${NCCL_NET_PLUGIN+set}${NCCL_NET+set}" ]; then
    export NCCL_NET_PLUGIN=@LIBDIR@/libnccl-net-nccltune.so
    export NCCL_NET=nccltune
    export NCCL_NET_PLUGIN_REF_COUNT=1
  fi
  if [ "$nccltune_sendrecv" = yes ] && [ -z "${NCCLTUNE_SENDRECV+set}" ]; then
    export LD_PRELOAD="@LIBDIR@/libnccltune-sendrecv.so${LD_PRELOAD:+:$LD_PRELOAD}"
    export NCCLTUNE_SENDRECV=1
  fi
  unset nccltune_tuner nccltune_net nccltune_sendrecv
fi
