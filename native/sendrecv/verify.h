// SPDX-License-Identifier: Apache-2.0
//
// Whether the bytes that arrive are those that were sent: the sender's stream sums them before, the
// receiver's after. For NCCLTUNE_SENDRECV=verify alone: bytes are copied to the host, and host
// functions sum them.
#ifndef NCCLTUNE_SENDRECV_VERIFY_H_
#define NCCLTUNE_SENDRECV_VERIFY_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sendrecv/cuda_driver.h"

namespace nccltune::sendrecv {

// Sums of the messages of a lane, in memory that both sides share.
struct Sums {
  static constexpr uint64_t kMessages = 1024;
  struct Sum {
    std::atomic<uint64_t> number = 0;  // of the message, written last
    std::atomic<uint64_t> sum = 0;
  };
  std::array<Sum, kMessages> sums;
};

class Verifier {
 public:
  // `wrong` is called by a thread of CUDA's.
  Verifier(CudaDriver& driver, std::function<void(const std::string&)> wrong);
  // Nothing of it runs any more.
  ~Verifier();
  Verifier(const Verifier&) = delete;
  Verifier& operator=(const Verifier&) = delete;

  // Of the message of a lane that is sent next, before it is.
  bool Sum(Stream stream, DeviceAddress address, uint64_t bytes, Sums* sums, uint64_t number);
  // And of one that was received; counted if its sum is still there.
  bool Check(Stream stream, DeviceAddress address, uint64_t bytes, Sums* sums, uint64_t number,
             const std::string& lane);

 private:
  struct Job;
  Job* Copy(Stream stream, DeviceAddress address, uint64_t bytes);
  Job* Idle(uint64_t bytes);
  static void SumIt(void* job);
  static void CheckIt(void* job);

  CudaDriver& driver_;
  std::function<void(const std::string&)> wrong_;
  std::vector<std::unique_ptr<Job>> jobs_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_VERIFY_H_
