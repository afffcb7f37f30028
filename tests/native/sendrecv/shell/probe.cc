// SPDX-License-Identifier: Apache-2.0
// An interceptor that prints the calls it receives on standard output.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "sendrecv/hooks/interpose.h"

namespace nccltune::sendrecv {
namespace {

bool Wants(std::string_view what) {
  const char* const wanted = std::getenv("PROBE");
  return wanted != nullptr && what == wanted;
}

// The arguments that are printed, of two functions.
std::string Words(const auto&... /*arguments*/) { return ""; }
std::string Words(const void* /*buffer*/, size_t count, nccl::DataType type, int peer,
                  nccl::Comm /*comm*/, nccl::Stream /*stream*/) {
  return " " + std::to_string(count) + " " + std::to_string(type) + " " + std::to_string(peer);
}
std::string Words(nccl::Comm* /*comm*/, int ranks, const nccl::UniqueId& id, int rank,
                  nccl::CommConfig* /*config*/) {
  return " " + std::to_string(ranks) + " " + std::to_string(id.internal[0]) + " " +
         std::to_string(static_cast<unsigned char>(id.internal[127])) + " " + std::to_string(rank);
}

void Seen(std::string_view call, const std::string& words = "") {
  std::printf("intercepted %s%s\n", call.data(), words.c_str());
  if (call == "Send" && Wants("throws")) throw std::runtime_error("as it was asked");
}

class Probe : public Interceptor {
 public:
  using Interceptor::Interceptor;

#define IN_GROUPS(name, arguments, ...)                                            \
  nccl::Result name(ThreadState& /*thread*/ __VA_OPT__(, ) __VA_ARGS__) override { \
    Seen(#name, Words arguments);                                                  \
    return native().name arguments;                                                \
  }
#define HANDLED(name, arguments, ...)       \
  nccl::Result name(__VA_ARGS__) override { \
    Seen(#name, Words arguments);           \
    return native().name arguments;         \
  }
#define ENQUEUED(...)
#define OBSERVED(...)
#include "sendrecv/hooks/hooked_functions.inc"

  nccl::Result Enqueue(ThreadState& thread, const EnqueueCall& call) override {
    Seen("a call that enqueues");
    return Interceptor::Enqueue(thread, call);
  }
};

}  // namespace

std::unique_ptr<Interceptor> NewInterceptor(InterposeMode mode, const Native& native) {
  const char* const word = mode == InterposeMode::kOn       ? "on"
                           : mode == InterposeMode::kVerify ? "verify"
                                                            : "dry-run";
  std::printf("made: %s, NCCL %d, %s\n", word, native.version, native.path.c_str());
  if (Wants("fails")) throw std::runtime_error("as it was asked");
  if (Wants("nothing")) return nullptr;
  // NCCL's CommInitAll calls other functions by their public names, whose trampolines have no
  // target yet.
  native.CommInitAll(nullptr, 0, nullptr);
  return std::make_unique<Probe>(native);
}

}  // namespace nccltune::sendrecv
