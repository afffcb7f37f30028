// SPDX-License-Identifier: Apache-2.0
//
// Streams share CUDA's connections to a GPU, 8 by default. A stream that waits blocks other streams
// of its connection, also streams that it waits for, by way of a peer. So programs that work with
// NCCL would hang with few connections.
#ifndef NCCLTUNE_SENDRECV_CONNECTIONS_H_
#define NCCLTUNE_SENDRECV_CONNECTIONS_H_

namespace nccltune::sendrecv {

// Returns why NCCL must carry everything, or null. Under NVIDIA's MPS a process has few connections
// unless it asks for more (CUDA_DEVICE_MAX_CONNECTIONS). These are taken from a pool that all
// processes on the GPU share, so the library does not ask for them by itself: on an H100 the pool
// was enough for 48 processes by default and for 3 with 32 connections each.
const char* WhyTooFewConnections();

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_CONNECTIONS_H_
