// SPDX-License-Identifier: Apache-2.0
// The public names. Each traces its call and then calls the function of namespace `acts`. Functions
// that no file implements succeed and do nothing.
#include "sendrecv/stand_in/nccl_comm.h"
#include "standard.h"

namespace nccltune::soft {
namespace {

struct Names {
  std::mutex mutex;
  std::map<const void*, std::string> by_address;
};

Names& AllNames() {
  static auto* const names = new Names;
  return *names;
}

std::atomic<bool> tracing{false};

struct ThreadTrace {
  std::string lines;
  std::string taken;
  std::string caller;
  bool listed = false;  // list queries too, because the caller made them
};

ThreadTrace& TraceOfThread() {
  thread_local ThreadTrace trace;
  return trace;
}

std::string Word(const void* address) {
  if (address == nullptr) return "null";
  Names& names = AllNames();
  const std::scoped_lock lock(names.mutex);
  const auto found = names.by_address.find(address);
  return found == names.by_address.end() ? "pointer" : found->second;
}
std::string Word(const char* text) { return text == nullptr ? "null" : text; }
std::string Word(ncclUniqueId /*id*/) { return "id"; }
std::string Word(ncclTeam_t /*team*/) { return "team"; }
std::string Word(const ncclCollConfig_t* config) {
  return config == nullptr ? "null" : "config " + Word(config->algorithms);
}
std::string Word(ncclWaitSignalDesc_t* descriptor) {
  return descriptor == nullptr ? "null" : "from " + std::to_string(descriptor->peer);
}
template <typename Number>
  requires std::is_arithmetic_v<Number>
std::string Word(Number number) {
  return std::to_string(number);
}
template <typename Other>
std::string Word(Other* pointer) {
  return Word(static_cast<const void*>(pointer));
}

template <typename Type>
Type Nothing() {
  return Type();
}

// Queries that the send/recv library makes by itself.
bool IsQuery(std::string_view function) {
  constexpr std::array<std::string_view, 4> kQueries = {"ncclCommGetAsyncError", "ncclCommCount",
                                                        "ncclCommUserRank", "ncclGetVersion"};
  return std::ranges::find(kQueries, function) != kQueries.end();
}

bool IsListed(std::string_view function) {
  if (!tracing.load(std::memory_order_relaxed)) return false;
  ThreadTrace& trace = TraceOfThread();
  if (!IsQuery(function)) return true;
  return function == trace.caller && !std::exchange(trace.listed, true);
}

template <typename... Arguments>
std::string Line(const char* function, const Arguments&... arguments) {
  std::string line = function;
  ((line += " " + Word(arguments)), ...);
  return line;
}

void List(const std::string& line, const std::string& result) {
  TraceOfThread().lines += line + " -> " + result + "\n";
}

}  // namespace

namespace acts {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define SOFT_NCCL_NOTHING(name, parameters, arguments) \
  __attribute__((weak)) ncclResult_t name parameters { return kNcclSuccess; }
#define SOFT_NCCL_OTHER_NOTHING(type, name, parameters, arguments) \
  __attribute__((weak)) type name parameters { return Nothing<type>(); }
SOFT_NCCL_FUNCTIONS(SOFT_NCCL_NOTHING)
SOFT_NCCL_OTHER_FUNCTIONS(SOFT_NCCL_OTHER_NOTHING)
#pragma GCC diagnostic pop
}  // namespace acts

#define SOFT_NCCL_LINE(...) Line(__VA_ARGS__)
#define SOFT_NCCL_ARGUMENTS(...) __VA_OPT__(, ) __VA_ARGS__
#define SOFT_NCCL_TRACED(name, arguments) SOFT_NCCL_LINE(#name SOFT_NCCL_ARGUMENTS arguments)

// As in NCCL, the name with a p is the function, and the plain name is weak. The trace line is made
// before the call, because the call may free what it names.
#define SOFT_NCCL_ENTRY(name, parameters, arguments)                               \
  extern "C" ncclResult_t name parameters __attribute__((weak, alias("p" #name))); \
  ncclResult_t p##name parameters {                                                \
    const Spared spared;                                                           \
    if (!IsListed(#name)) return acts::name arguments;                             \
    const std::string line = SOFT_NCCL_TRACED(name, arguments);                    \
    const ncclResult_t result = acts::name arguments;                              \
    List(line, std::to_string(result));                                            \
    return result;                                                                 \
  }
#define SOFT_NCCL_OTHER_ENTRY(type, name, parameters, arguments)           \
  extern "C" type name parameters __attribute__((weak, alias("p" #name))); \
  type p##name parameters {                                                \
    if (IsListed(#name)) List(SOFT_NCCL_TRACED(name, arguments), "");      \
    return acts::name arguments;                                           \
  }
SOFT_NCCL_FUNCTIONS(SOFT_NCCL_ENTRY)
SOFT_NCCL_OTHER_FUNCTIONS(SOFT_NCCL_OTHER_ENTRY)

const char* softNcclTrace() {
  tracing = true;
  ThreadTrace& trace = TraceOfThread();
  trace.taken = std::exchange(trace.lines, {});
  return trace.taken.c_str();
}

void softNcclCaller(const char* function) {
  TraceOfThread().caller = function;
  TraceOfThread().listed = false;
}

void softNcclName(const void* address, const char* name) {
  Names& names = AllNames();
  const std::scoped_lock lock(names.mutex);
  if (name == nullptr) {
    names.by_address.erase(address);
  } else {
    names.by_address[address] = name;
  }
}

}  // namespace nccltune::soft
