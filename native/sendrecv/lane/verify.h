// SPDX-License-Identifier: Apache-2.0
// Compares the contents of messages (NCCLTUNE_SENDRECV=verify). The sender's stream computes a
// checksum before the message is sent, and the receiver's stream after it has arrived. For this the
// bytes are copied to the host, and functions on the CPU compute the checksums.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sendrecv/cuda/cuda_driver.h"
#include "sendrecv/lane/message_lane.h"

namespace nccltune::sendrecv {

class Verifier {
 public:
  // `wrong` is called with a description of each difference, in a thread of CUDA.
  Verifier(CudaDriver& driver, std::function<void(const std::string&)> wrong);
  // No checksum may be in progress.
  ~Verifier();
  Verifier(const Verifier&) = delete;
  Verifier& operator=(const Verifier&) = delete;

  // Enqueues the checksum of a message before it is sent. Returns false if CUDA refuses.
  bool Sum(Stream stream, DeviceAddress address, uint64_t bytes, Sums* sums, uint64_t number);
  // Enqueues the comparison of a received message. Returns false if CUDA refuses. The comparison is
  // skipped if the slot in `sums` does not hold the checksum of this message, for example because a
  // later message has overwritten it.
  bool Check(Stream stream, DeviceAddress address, uint64_t bytes, Sums* sums, uint64_t number,
             const std::string& lane);

 private:
  struct Job;
  Job* Copy(Stream stream, DeviceAddress address, uint64_t bytes);
  Job* FindIdleJob(uint64_t bytes);
  static void SumIt(void* job);
  static void CheckIt(void* job);

  CudaDriver& driver_;
  std::function<void(const std::string&)> wrong_;
  std::vector<std::unique_ptr<Job>> jobs_;
};

}  // namespace nccltune::sendrecv
