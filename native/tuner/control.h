/* SPDX-License-Identifier: Apache-2.0
 *
 * Control interface of the tuner plugin, for a program that measures. The program can force a
 * choice on the running communicators of its process, release the choice, and read NCCL's cost
 * tables and the decisions. The functions are plain C. Find them with dlsym in
 * libnccl-tuner-nccltune.so.
 *
 * The interface acts on the whole process. NCCL needs the same choice on every rank, so every
 * process of a communicator must make the same call between the same two collectives. All functions
 * may be called from any thread. While nothing is forced or recorded, the interface costs a
 * collective one atomic load.
 *
 * Collectives, algorithms and protocols are NCCL's numbers (ncclFunc_t, NCCL_ALGO_*, NCCL_PROTO_*).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Increased when a function or a field is added. Existing functions and fields keep
 * their meaning and layout. */
#define NCCLTUNE_TUNER_CONTROL_VERSION 2

#define NCCLTUNE_TUNER_EXPORT __attribute__((visibility("default")))

enum {
  NCCLTUNE_TUNER_ALL = -1,     /* for a collective: all five */
  NCCLTUNE_TUNER_DEFAULT = -1, /* for algorithm and protocol, or for channels: NCCL's choice */
  NCCLTUNE_TUNER_ALGORITHMS = 7,
  NCCLTUNE_TUNER_PROTOCOLS = 3
};

enum nccltune_tuner_status {
  NCCLTUNE_TUNER_OK = 0,
  NCCLTUNE_TUNER_INVALID = 1, /* an argument is out of range; nothing was changed */
  NCCLTUNE_TUNER_NOTHING = 2  /* nothing of that kind has been recorded */
};

/* The source of a decision. */
enum nccltune_tuner_source {
  NCCLTUNE_TUNER_BY_NCCL = 0, /* no rule matched: NCCL's own choice */
  NCCLTUNE_TUNER_BY_RULE = 1,
  NCCLTUNE_TUNER_BY_FORCE = 2
};

/* The result of a forced choice, as a set of bits. */
enum nccltune_tuner_outcome {
  NCCLTUNE_TUNER_APPLIED = 0,
  NCCLTUNE_TUNER_UNUSABLE = 1, /* NCCL cannot run that pair; NCCL decides, no rule applies */
  NCCLTUNE_TUNER_CHANNELS_REFUSED = 2, /* CollNet may run, where NCCL does not check channels */
  NCCLTUNE_TUNER_CHUNK_REFUSED = 4     /* the chunk size is not safe, see nccltune_tuner_force */
};

/* The cost table of one call as NCCL passed it, before any change. */
struct nccltune_tuner_table {
  uint64_t sequence; /* number of the recorded call, from 1 */
  uint64_t bytes;
  uint64_t nodes;
  uint64_t ranks;
  int32_t collective;
  int32_t pipe_ops;
  int32_t registered; /* -1: this interface version does not pass it */
  int32_t algorithms; /* rows of cost_us in use */
  int32_t protocols;  /* columns of cost_us in use */
  int32_t interface_version;
  /* Predicted microseconds; negative if NCCL cannot run the pair. Unused entries are -1. */
  float cost_us[NCCLTUNE_TUNER_ALGORITHMS][NCCLTUNE_TUNER_PROTOCOLS];
};

/* The decision about the last call of a collective. */
struct nccltune_tuner_decision {
  uint64_t sequence; /* same as in the call's table */
  uint64_t bytes;
  uint64_t nodes;
  uint64_t ranks;
  uint64_t chunk_bytes_before; /* NCCL's proposal for the last chunk; 0: NCCL did not ask */
  uint64_t chunk_bytes;        /* the size returned to NCCL */
  int32_t collective;
  int32_t pipe_ops;
  int32_t registered;
  int32_t source;    /* enum nccltune_tuner_source */
  int32_t outcome;   /* enum nccltune_tuner_outcome */
  int32_t algorithm; /* -1: left to NCCL */
  int32_t protocol;  /* -1: left to NCCL */
  int32_t channels;  /* -1: left to NCCL */
  uint32_t line;     /* line of the rule in the configuration; 0: no rule */
  int32_t interface_version;
};

/* Returns the plugin's NCCLTUNE_TUNER_CONTROL_VERSION. */
NCCLTUNE_TUNER_EXPORT int nccltune_tuner_control_version(void);

/* Returns the plugin's version, such as "0.1.0". */
NCCLTUNE_TUNER_EXPORT const char* nccltune_tuner_version(void);

/* Forces this choice for the collective from the next call on, instead of any rule, until the
 * choice is released or replaced. Algorithm and protocol must be given together. `channels` is 1 to
 * 64 or DEFAULT. If everything is DEFAULT, NCCL's own choice is forced and no rule is used.
 *
 * `chunk_bytes` is at most 1 GiB, or 0 for NCCL's choice. A chunk size needs interface v6
 * (NCCL 2.30) and must be at least the protocol's grain (16 bytes for LL, 1920 for LL128, 512 for
 * Simple). For NVLS and CollNet a chunk size must not exceed NCCL's own, because NCCL checks it
 * against a buffer that these algorithms do not use. */
NCCLTUNE_TUNER_EXPORT int nccltune_tuner_force(int collective, int algorithm, int protocol,
                                               int channels, size_t chunk_bytes);

/* Removes the forced choice of the collective. Rules decide again. */
NCCLTUNE_TUNER_EXPORT int nccltune_tuner_release(int collective);

/* Starts (1) or stops (0) recording the cost table and the decision of every call. Records stay
 * readable. There is room for the newest tables of about 1,000 pairs of collective and bytes.
 * Decisions about forced calls are always recorded. Interface v2 has no table. */
NCCLTUNE_TUNER_EXPORT int nccltune_tuner_record(int on);

/* Copies the newest table of the collective at that size, or at any size if `bytes` is SIZE_MAX.
 * Returns NCCLTUNE_TUNER_NOTHING if there is none. */
NCCLTUNE_TUNER_EXPORT int nccltune_tuner_last_table(int collective, size_t bytes,
                                                    struct nccltune_tuner_table* table);

/* Copies the newest decision about the collective on any communicator of the process. Returns
 * NCCLTUNE_TUNER_NOTHING if there is none. */
NCCLTUNE_TUNER_EXPORT int nccltune_tuner_last_decision(int collective,
                                                       struct nccltune_tuner_decision* decision);

/* Since version 2. Copies the newest decision about the collective on the communicators of that
 * CUDA device, thus of one rank if each rank of the process has its own GPU. A communicator whose
 * device is unknown counts for every device. */
NCCLTUNE_TUNER_EXPORT int nccltune_tuner_device_decision(int device, int collective,
                                                         struct nccltune_tuner_decision* decision);

#ifdef __cplusplus
}
#endif
