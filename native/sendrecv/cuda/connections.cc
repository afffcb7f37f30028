// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/cuda/connections.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string_view>

#include "common/shared_library.h"

namespace nccltune::sendrecv {
namespace {

constexpr const char* kVariable = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr const char* kBlocking = "CUDA_LAUNCH_BLOCKING";
// With 8, CUDA's default, random programs hang on the stand-ins, with 16 none does.
constexpr long kLeastConnections = 16;
// Programs are written for CUDA's default, so the streams of an application have as many.
constexpr size_t kForApplication = 8;

// A variable as it was when this library was loaded. A plain array, because no memory is allocated
// in programs that do not use NCCL.
struct Value {
  bool set = false;
  std::array<char, 16> text = {};

  static Value Of(const char* name) {
    Value value;
    const char* const now = std::getenv(name);
    value.set = now != nullptr;
    for (size_t i = 0; value.set && now[i] != '\0' && i + 1 < value.text.size(); ++i) {
      value.text[i] = now[i];
    }
    return value;
  }
  bool IsOn() const { return std::strtol(text.data(), nullptr, 0) != 0; }
  bool operator==(const Value&) const = default;
};

struct AtLoad {
  Value connections;
  Value blocking;
  bool before_cuda = false;  // CUDA was not loaded yet
};

AtLoad& TheLoad() {
  constinit static AtLoad load;
  return load;
}

// Returns the variable's value when the program was started.
Value ValueAtStart() {
  std::ifstream file("/proc/self/environ", std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(file), {});
  const std::string name = std::string(kVariable) + "=";
  for (size_t at = 0; at < all.size(); at = all.find('\0', at) + 1) {
    const char* const entry = all.c_str() + at;
    if (!std::string_view(entry).starts_with(name)) continue;
    Value value = {.set = true};
    std::string_view(entry + name.size()).copy(value.text.data(), value.text.size() - 1);
    return value;
  }
  return {};
}

__attribute__((constructor)) void NoteEnvironment() {
  TheLoad() = {.connections = Value::Of(kVariable),
               .blocking = Value::Of(kBlocking),
               .before_cuda = !SharedLibrary::Loaded("libcuda.so.1")};
}

// The connections that are reserved, by context.
std::mutex& ReservedMutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}
std::map<cu::Context, size_t>& Reserved() {
  static auto& reserved = *new std::map<cu::Context, size_t>;
  return reserved;
}

}  // namespace

Connections CudaConnections() {
  const AtLoad& load = TheLoad();
  const Value now = Value::Of(kVariable);
  // A launch that blocks until its kernel has ended never returns from a kernel that waits for a
  // later one.
  if (load.blocking.IsOn() || Value::Of(kBlocking).IsOn()) {
    return {.count = 0, .why = "CUDA_LAUNCH_BLOCKING=1 makes each launch wait for its kernel"};
  }
  const Value before = load.before_cuda ? load.connections : ValueAtStart();
  if (now != before || now != load.connections) {
    return {.count = 0,
            .why =
                "it is not known how many connections to the GPU CUDA has, because "
                "CUDA_DEVICE_MAX_CONNECTIONS was changed inside the program; set it before the "
                "program starts"};
  }
  if (!now.set) {
    return {.count = 0,
            .why =
                "CUDA has few connections to the GPU; set CUDA_DEVICE_MAX_CONNECTIONS=32 before "
                "the program starts (1 for programs that require it; 16 or 1 under NVIDIA's "
                "MPS, where all processes share them)"};
  }
  const long count = std::strtol(now.text.data(), nullptr, 10);
  if (count != 1 && count < kLeastConnections) {
    return {.count = 0,
            .why =
                "CUDA_DEVICE_MAX_CONNECTIONS must be 1 or at least 16: with few connections, "
                "streams that wait block streams that they wait for"};
  }
  // CUDA has at most 32.
  return {.count = static_cast<size_t>(std::min(count, 32L)), .why = ""};
}

bool WaitingStreams::Reserve(size_t count, size_t connections) {
  const std::scoped_lock lock(ReservedMutex());
  size_t& all = Reserved()[context_];
  if (all + count + kForApplication > connections) return false;
  all += count;
  reserved_ += count;
  return true;
}

WaitingStreams::~WaitingStreams() {
  const std::scoped_lock lock(ReservedMutex());
  Reserved()[context_] -= reserved_;
}

}  // namespace nccltune::sendrecv
