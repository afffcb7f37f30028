/* SPDX-License-Identifier: Apache-2.0
 *
 * Control interface of the tuner plugin, for a program that measures: force a choice on the running
 * communicators of this process, let go of it, and read back what NCCL offered and what was
 * decided. Plain C, found with dlsym in libnccl-tuner-nccltune.so.
 *
 * It acts on the whole process. NCCL needs the same choice on every rank, so every process of a
 * communicator makes the same call between the same two collectives. All functions may be called
 * from any thread. While nothing is forced or recorded a collective pays one atomic load for it.
 *
 * Collectives, algorithms and protocols are NCCL's numbers (ncclFunc_t, NCCL_ALGO_*, NCCL_PROTO_*).
 */
#ifndef NCCLTUNE_TUNER_CONTROL_H_
#define NCCLTUNE_TUNER_CONTROL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when a function or a field is added; what exists keeps its meaning and its layout. */
#define NCCLTUNE_TUNER_CONTROL_VERSION 1

#define NCCLTUNE_TUNER_EXPORT __attribute__((visibility("default")))

enum {
  NCCLTUNE_TUNER_ALL = -1,     /* as a collective: all five */
  NCCLTUNE_TUNER_DEFAULT = -1, /* as algorithm and protocol, or as channels: NCCL's own */
  NCCLTUNE_TUNER_ALGORITHMS = 7,
  NCCLTUNE_TUNER_PROTOCOLS = 3
};

enum nccltune_tuner_status {
  NCCLTUNE_TUNER_OK = 0,
  NCCLTUNE_TUNER_INVALID = 1, /* an argument is out of range; nothing was changed */
  NCCLTUNE_TUNER_NOTHING = 2  /* nothing of that kind has been recorded */
};

/* Where the decision about a call came from. */
enum nccltune_tuner_source {
  NCCLTUNE_TUNER_BY_NCCL = 0, /* no rule matched: NCCL's own choice */
  NCCLTUNE_TUNER_BY_RULE = 1,
  NCCLTUNE_TUNER_BY_FORCE = 2
};

/* What became of a forced choice, as a set of bits. */
enum nccltune_tuner_outcome {
  NCCLTUNE_TUNER_APPLIED = 0,
  NCCLTUNE_TUNER_UNUSABLE = 1,         /* NCCL cannot run that pair here: left to NCCL, no rule */
  NCCLTUNE_TUNER_CHANNELS_REFUSED = 2, /* CollNet may run, which takes the number unchecked */
  NCCLTUNE_TUNER_CHUNK_REFUSED = 4     /* the chunk size would not be safe, see force */
};

/* The cost table of one call as NCCL handed it over, before anything was chosen. */
struct nccltune_tuner_table {
  uint64_t sequence; /* counts the calls seen, from 1 */
  uint64_t bytes;
  uint64_t nodes;
  uint64_t ranks;
  int32_t collective;
  int32_t pipe_ops;
  int32_t registered; /* -1: this interface version does not tell */
  int32_t algorithms; /* rows and columns in use */
  int32_t protocols;
  int32_t interface_version;
  /* Predicted microseconds; negative where NCCL cannot run the pair. Unused entries are -1. */
  float cost_us[NCCLTUNE_TUNER_ALGORITHMS][NCCLTUNE_TUNER_PROTOCOLS];
};

/* What was decided about the last call of a collective. */
struct nccltune_tuner_decision {
  uint64_t sequence; /* that of the call's table */
  uint64_t bytes;
  uint64_t nodes;
  uint64_t ranks;
  uint64_t chunk_bytes_before; /* what NCCL proposed for the last chunk; 0: it did not ask */
  uint64_t chunk_bytes;        /* what it was told */
  int32_t collective;
  int32_t pipe_ops;
  int32_t registered;
  int32_t source;    /* enum nccltune_tuner_source */
  int32_t outcome;   /* enum nccltune_tuner_outcome */
  int32_t algorithm; /* -1: left to NCCL */
  int32_t protocol;  /* -1: left to NCCL */
  int32_t channels;  /* -1: left to NCCL */
  uint32_t line;     /* of the rule in the configuration; 0: no rule */
  int32_t interface_version;
};

/* NCCLTUNE_TUNER_CONTROL_VERSION of the plugin. */
NCCLTUNE_TUNER_EXPORT int nccltune_tuner_control_version(void);

/* The plugin's version, "0.1.0". */
NCCLTUNE_TUNER_EXPORT const char* nccltune_tuner_version(void);

/* From the next call on: this choice for the collective, instead of any rule, until it is released
 * or forced otherwise. Algorithm and protocol go together. `channels` 1 to 64 or DEFAULT.
 * `chunk_bytes` up to 1 GiB, 0 for NCCL's own; it needs interface v6 (NCCL 2.30), must be at least
 * the protocol's grain (16, 1920, 512 bytes), and for NVLS and CollNet may only lower NCCL's own,
 * as NCCL checks it against the wrong buffer there. Everything default forces NCCL's default: no
 * rule is taken. */
NCCLTUNE_TUNER_EXPORT int nccltune_tuner_force(int collective, int algorithm, int protocol,
                                               int channels, size_t chunk_bytes);

/* Rules decide again. */
NCCLTUNE_TUNER_EXPORT int nccltune_tuner_release(int collective);

/* 1: keep the cost table and the decision of every call; 0: stop. What was kept stays readable.
 * Room is for the newest tables of about 1,000 pairs of collective and bytes. The decision about a
 * forced call is kept without it as well. Interface v2 has no table. */
NCCLTUNE_TUNER_EXPORT int nccltune_tuner_record(int on);

/* The newest table of the collective at that size; SIZE_MAX for any size. */
NCCLTUNE_TUNER_EXPORT int nccltune_tuner_last_table(int collective, size_t bytes,
                                                    struct nccltune_tuner_table* table);

/* The newest decision about the collective. */
NCCLTUNE_TUNER_EXPORT int nccltune_tuner_last_decision(int collective,
                                                       struct nccltune_tuner_decision* decision);

#ifdef __cplusplus
}
#endif

#endif /* NCCLTUNE_TUNER_CONTROL_H_ */
