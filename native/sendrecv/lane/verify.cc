// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/lane/verify.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sendrecv/route.h"

namespace nccltune::sendrecv {
namespace {

// Most bytes of a message that are summed. Of a larger message 64 windows are summed, including its
// first and last bytes.
constexpr uint64_t kMaxSummedBytes = uint64_t{64} << 20;
constexpr uint64_t kWindows = 64;
constexpr uint64_t kWindow = kMaxSummedBytes / kWindows;

struct Window {
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

std::vector<Window> WindowsOf(uint64_t bytes) {
  if (bytes <= kMaxSummedBytes) return {{.begin = 0, .bytes = bytes}};
  std::vector<Window> windows;
  windows.reserve(kWindows);
  for (uint64_t i = 0; i < kWindows; ++i) {
    windows.push_back({.begin = (bytes - kWindow) / (kWindows - 1) * i, .bytes = kWindow});
  }
  windows.back().begin = bytes - kWindow;
  return windows;
}

// The checksum depends on every byte and on their order.
uint64_t SumOf(const std::byte* data, uint64_t bytes) {
  uint64_t sum = bytes;
  uint64_t i = 0;
  for (; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, data + i, sizeof(word));
    sum = (sum ^ word) * 0x9e3779b97f4a7c15U;
    sum ^= sum >> 29U;
  }
  for (; i < bytes; ++i) sum = (sum ^ static_cast<uint64_t>(data[i])) * 0x9e3779b97f4a7c15U;
  return sum;
}

}  // namespace

struct Verifier::Job {
  Verifier* verifier = nullptr;
  std::byte* buffer = nullptr;
  uint64_t capacity = 0;
  uint64_t copied = 0;
  uint64_t bytes = 0;
  Sums::Sum* sum = nullptr;
  uint64_t number = 0;
  std::string lane;
  std::atomic<bool> busy = false;
};

Verifier::Verifier(CudaDriver& driver, std::function<void(const std::string&)> wrong)
    : driver_(driver), wrong_(std::move(wrong)) {}

Verifier::~Verifier() {
  for (const auto& job : jobs_) driver_.FreeHost(job->buffer);
}

Verifier::Job* Verifier::FindIdleJob(uint64_t bytes) {
  const auto found = std::ranges::find_if(jobs_, [&](const std::unique_ptr<Job>& job) {
    return job->capacity >= bytes && !job->busy.load();
  });
  if (found != jobs_.end()) return found->get();
  void* const buffer = driver_.AllocateHost(bytes);
  if (buffer == nullptr) return nullptr;
  jobs_.push_back(std::make_unique<Job>());
  Job* const job = jobs_.back().get();
  job->verifier = this;
  job->buffer = static_cast<std::byte*>(buffer);
  job->capacity = bytes;
  return job;
}

Verifier::Job* Verifier::Copy(Stream stream, DeviceAddress address, uint64_t bytes) {
  Job* const job = FindIdleJob(std::min(bytes, kMaxSummedBytes));
  if (job == nullptr) return nullptr;
  job->copied = 0;
  job->bytes = bytes;
  for (const Window& window : WindowsOf(bytes)) {
    if (!driver_.CopyToHost(stream, job->buffer + job->copied, address + window.begin,
                            window.bytes)) {
      return nullptr;
    }
    job->copied += window.bytes;
  }
  job->busy.store(true);
  return job;
}

bool Verifier::Sum(Stream stream, DeviceAddress address, uint64_t bytes, Sums* sums,
                   uint64_t number) {
  Job* const job = Copy(stream, address, bytes);
  if (job == nullptr) return false;
  job->sum = &sums->sums[number % Sums::kMessages];
  job->number = number;
  return driver_.LaunchHostFunction(stream, &SumIt, job);
}

bool Verifier::Check(Stream stream, DeviceAddress address, uint64_t bytes, Sums* sums,
                     uint64_t number, const std::string& lane) {
  Job* const job = Copy(stream, address, bytes);
  if (job == nullptr) return false;
  job->sum = &sums->sums[number % Sums::kMessages];
  job->number = number;
  job->lane = lane;
  return driver_.LaunchHostFunction(stream, &CheckIt, job);
}

void Verifier::SumIt(void* argument) {
  Job& job = *static_cast<Job*>(argument);
  job.sum->number.store(0);
  job.sum->sum.store(SumOf(job.buffer, job.copied));
  job.sum->number.store(job.number);
  job.busy.store(false);
}

void Verifier::CheckIt(void* argument) {
  Job& job = *static_cast<Job*>(argument);
  const uint64_t number = job.sum->number.load();
  const uint64_t sent = job.sum->sum.load();
  if (number == job.number && job.sum->number.load() == number) {
    ProcessCounts().Add(Route::kChecked, job.bytes);
    if (sent != SumOf(job.buffer, job.copied)) {
      job.verifier->wrong_(job.lane + ": message " + std::to_string(job.number) + " of " +
                           std::to_string(job.bytes) + " bytes arrived with other bytes than " +
                           "were sent");
    }
  }
  job.busy.store(false);
}

}  // namespace nccltune::sendrecv
