// SPDX-License-Identifier: Apache-2.0
//
// A profiler plugin of one version that logs each call of NCCL to the file LOGGING_PROFILER_LOG.
// Its mask is LOGGING_PROFILER_MASK, and after its fifth event LOGGING_PROFILER_LATER.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "abi/profiler.h"

namespace nccltune {
namespace {

int* nccls_mask = nullptr;
uintptr_t handles = 0;
int events = 0;

int Number(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

template <typename... Arguments>
void Write(const char* format, Arguments... arguments) {
  FILE* const log = std::fopen(std::getenv("LOGGING_PROFILER_LOG"), "ae");
  if (log == nullptr) std::abort();
  std::fprintf(log, format, arguments...);
  std::fclose(log);
}

abi::Result Begin(void** context, int* mask, const char* name, uint64_t id, int nodes, int ranks,
                  int rank) {
  nccls_mask = mask;
  *mask = Number("LOGGING_PROFILER_MASK");
  *context = reinterpret_cast<void*>(id);
  Write("init %s %d %d %d\n", name, nodes, ranks, rank);
  return std::getenv("LOGGING_PROFILER_FAILS") == nullptr ? abi::kSuccess : abi::kInternalError;
}

using Profiler = abi::Profiler<VERSION>;
using Event = Profiler::Event;

[[maybe_unused]] abi::Result Init(void** context, int* mask, const char* name, uint64_t id,
                                  int nodes, int ranks, int rank, abi::LogFunction /*log*/) {
  return Begin(context, mask, name, id, nodes, ranks, rank);
}
[[maybe_unused]] abi::Result Init(void** context, uint64_t id, int* mask, const char* name,
                                  int nodes, int ranks, int rank, abi::LogFunction /*log*/) {
  return Begin(context, mask, name, id, nodes, ranks, rank);
}

abi::Result Start(void* context, void** handle, Event* event) {
  const uint64_t type = event->type;
  size_t count = 0;
  if (type == abi::kProfileCollective) count = event->collective.count;
  if (type == abi::kProfilePointToPoint) count = event->point_to_point.count;
  *handle = type == abi::kProfileGroup && std::getenv("LOGGING_PROFILER_NO_GROUPS") != nullptr
                ? nullptr
                : reinterpret_cast<void*>(++handles * 16);
  Write("%p start %lu parent %p rank %d count %zu: %p\n", context, static_cast<unsigned long>(type),
        event->parent, event->rank, count, *handle);
  if (++events == 5 && std::getenv("LOGGING_PROFILER_LATER") != nullptr) {
    *nccls_mask = Number("LOGGING_PROFILER_LATER");
  }
  return abi::kSuccess;
}

abi::Result Stop(void* handle) {
  Write("stop %p\n", handle);
  return abi::kSuccess;
}

abi::Result Record(void* handle, int state, void* /*arguments*/) {
  Write("record %p %d\n", handle, state);
  return abi::kSuccess;
}

abi::Result Finalize(void* context) {
  Write("finalize %p\n", context);
  return abi::kSuccess;
}

constexpr Profiler kTable = {"logging", Init, Start, Stop, Record, Finalize};

}  // namespace
}  // namespace nccltune

#define EXPORTED_2(version) ncclProfiler_v##version
#define EXPORTED(version) EXPORTED_2(version)
extern "C" {
extern __attribute__((visibility("default"))) const nccltune::Profiler EXPORTED(VERSION);
const nccltune::Profiler EXPORTED(VERSION) = nccltune::kTable;
}
