// SPDX-License-Identifier: Apache-2.0
// A tuner plugin that follows the script in the environment variable SCRIPTED_TUNER, also one that
// violates the interface, and logs the arguments of its calls. Exports interfaces OLDEST to NEWEST
// (both v2 to v7 by default).
//
// Words of the script, separated by blanks:
//   init=N coll=N chunk_result=N finalize=N   what the function returns
//   set=INDEX:COST    write an entry of the table, also outside of it; "all" for every entry
//   named=A,P         the choice of interface v2
//   channels=N chunk=N
//   constant=INDEX:VALUE                      write a model constant, also outside
//   print             write to standard output in init and getCollInfo
//   read              read standard input in init, and log how much there was
//   log=TEXT          a warning in getCollInfo
//   version           log the NCCL version that the process reports, in init
//   crash_init crash exit=N sleep=SECONDS     in getCollInfo, but for the first
#include <dlfcn.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "abi/tuner.h"

#ifndef OLDEST
#define OLDEST 2
#endif
#ifndef NEWEST
#define NEWEST 7
#endif
#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using nccltune::abi::LogFunction;
using nccltune::abi::Result;
using nccltune::abi::TunedCollective;

LogFunction g_log = nullptr;

const char* Script() {
  const char* script = std::getenv("SCRIPTED_TUNER");
  return script == nullptr ? "" : script;
}

// Returns the text after the n-th "word" (or "word=") of the script; null if there is none.
const char* Find(const char* word, int n = 0) {
  const size_t length = std::strlen(word);
  for (const char* at = Script(); *at != '\0'; ++at) {
    const bool starts = at == Script() || at[-1] == ' ';
    if (!starts || std::strncmp(at, word, length) != 0) continue;
    const char next = at[length];
    if (next != '\0' && next != ' ' && next != '=') continue;
    if (n-- == 0) return next == '=' ? at + length + 1 : at + length;
  }
  return nullptr;
}

long Number(const char* word, long otherwise) {
  const char* text = Find(word);
  return text == nullptr ? otherwise : std::strtol(text, nullptr, 10);
}

Result Returned(const char* word) { return static_cast<Result>(Number(word, 0)); }

void Crash() { std::raise(SIGSEGV); }

Result Init(int version, size_t ranks, size_t nodes, LogFunction log, void** context) {
  g_log = log;
  *context = &g_log;
  log(nccltune::abi::kLogInfo, nccltune::abi::kSubsysTuning, __FILE__, __LINE__,
      "init v%d ranks=%zu nodes=%zu", version, ranks, nodes);
  if (Find("print") != nullptr) std::puts("noise from init");
  if (Find("version") != nullptr) {
    int code = 0;
    const auto get_version = reinterpret_cast<int (*)(int*)>(dlsym(RTLD_DEFAULT, "ncclGetVersion"));
    if (get_version != nullptr) get_version(&code);
    log(nccltune::abi::kLogInfo, nccltune::abi::kSubsysTuning, __FILE__, __LINE__, "version %d",
        code);
  }
  if (Find("read") != nullptr) {
    char bytes[64];
    log(nccltune::abi::kLogInfo, nccltune::abi::kSubsysTuning, __FILE__, __LINE__, "read %zd",
        read(STDIN_FILENO, bytes, sizeof bytes));
  }
  if (Find("crash_init") != nullptr) Crash();
  return Returned("init");
}

[[maybe_unused]] Result InitLate(int version, void** context, uint64_t, size_t ranks, size_t nodes,
                                 LogFunction log, nccltune::abi::NvlDomainInfoV5* domains,
                                 double* constants) {
  log(nccltune::abi::kLogInfo, nccltune::abi::kSubsysTuning, __FILE__, __LINE__,
      "domains=%d,%d,%d constants=%g,%g", domains->domains, domains->min_ranks_per_domain,
      domains->max_ranks_per_domain, constants[0], constants[143]);
  for (int n = 0; const char* text = Find("constant", n); ++n) {
    char* value = nullptr;
    const long index = std::strtol(text, &value, 10);
    constants[index] = std::strtod(value + 1, nullptr);
  }
  return Init(version, ranks, nodes, log, context);
}

// The common getCollInfo of all versions; `table` is null for v2.
Result Ask(int version, void* context, TunedCollective collective, size_t bytes, int pipe_ops,
           float** table, int algorithms, int protocols, int registered, int* channels) {
  g_log(nccltune::abi::kLogInfo, nccltune::abi::kSubsysTuning, __FILE__, __LINE__,
        "coll v%d context=%d func=%d bytes=%zu pipe=%d table=%dx%d reg=%d channels=%d", version,
        context == &g_log, collective, bytes, pipe_ops, algorithms, protocols, registered,
        *channels);
  if (Find("print") != nullptr) std::puts("{\"op\":\"noise\"}");
  if (const char* text = Find("log")) {
    g_log(nccltune::abi::kLogWarn, nccltune::abi::kSubsysTuning, nullptr, 0, "%s", text);
  }
  if (Find("crash") != nullptr) Crash();
  if (Find("exit") != nullptr) std::_Exit(static_cast<int>(Number("exit", 0)));
  if (Find("sleep") != nullptr) sleep(static_cast<unsigned>(Number("sleep", 1)));
  float* const entries = reinterpret_cast<float*>(table);
  for (int n = 0; const char* text = entries == nullptr ? nullptr : Find("set", n); ++n) {
    const char* colon = std::strchr(text, ':');
    const float cost = std::strtof(colon + 1, nullptr);
    if (std::strncmp(text, "all", 3) == 0) {
      for (int i = 0; i < algorithms * protocols; ++i) entries[i] = cost;
    } else {
      entries[std::strtol(text, nullptr, 10)] = cost;
    }
  }
  *channels = static_cast<int>(Number("channels", *channels));
  return Returned("coll");
}

template <int kVersion>
Result InitEarlyOf(size_t ranks, size_t nodes, LogFunction log, void** context) {
  return Init(kVersion, ranks, nodes, log, context);
}

template <int kVersion, typename Constants>
Result InitLateOf(void** context, uint64_t id, size_t ranks, size_t nodes, LogFunction log,
                  nccltune::abi::NvlDomainInfoV5* domains, Constants* constants) {
  return InitLate(kVersion, context, id, ranks, nodes, log, domains,
                  reinterpret_cast<double*>(constants));
}

[[maybe_unused]] Result Ask2(void* context, TunedCollective collective, size_t bytes, int collnet,
                             int nvls, int pipe_ops, int* algorithm, int* protocol, int* channels) {
  g_log(nccltune::abi::kLogInfo, nccltune::abi::kSubsysTuning, __FILE__, __LINE__,
        "collnet=%d nvls=%d choice=%d,%d", collnet, nvls, *algorithm, *protocol);
  if (const char* text = Find("named")) {
    char* second = nullptr;
    *algorithm = static_cast<int>(std::strtol(text, &second, 10));
    *protocol = static_cast<int>(std::strtol(second + 1, nullptr, 10));
  }
  return Ask(2, context, collective, bytes, pipe_ops, nullptr, 0, 0, -1, channels);
}

[[maybe_unused]] Result Ask3(void* context, TunedCollective collective, size_t bytes, int pipe_ops,
                             float** table, int algorithms, int protocols, int* channels) {
  return Ask(3, context, collective, bytes, pipe_ops, table, algorithms, protocols, -1, channels);
}

template <int kVersion>
Result AskOf(void* context, TunedCollective collective, size_t bytes, int pipe_ops, float** table,
             int algorithms, int protocols, int registered, int* channels) {
  return Ask(kVersion, context, collective, bytes, pipe_ops, table, algorithms, protocols,
             registered, channels);
}

[[maybe_unused]] Result Chunk(void*, TunedCollective collective, size_t bytes, int algorithm,
                              int protocol, int channels, size_t* chunk_bytes) {
  g_log(nccltune::abi::kLogInfo, nccltune::abi::kSubsysTuning, __FILE__, __LINE__,
        "chunk func=%d bytes=%zu choice=%d,%d channels=%d chunk=%zu", collective, bytes, algorithm,
        protocol, channels, *chunk_bytes);
  *chunk_bytes = static_cast<size_t>(Number("chunk", static_cast<long>(*chunk_bytes)));
  return Returned("chunk_result");
}

Result Finish(void*) { return Returned("finalize"); }

}  // namespace

#define VERSION_EXPORTED(v) (OLDEST <= (v) && (v) <= NEWEST)
#if VERSION_EXPORTED(2)
EXPORTED const nccltune::abi::TunerV2 ncclTunerPlugin_v2 = {"scripted", InitEarlyOf<2>, Ask2,
                                                            Finish};
#endif
#if VERSION_EXPORTED(3)
EXPORTED const nccltune::abi::TunerV3 ncclTunerPlugin_v3 = {"scripted", InitEarlyOf<3>, Ask3,
                                                            Finish};
#endif
#if VERSION_EXPORTED(4)
EXPORTED const nccltune::abi::TunerV4 ncclTunerPlugin_v4 = {"scripted", InitEarlyOf<4>, AskOf<4>,
                                                            Finish};
#endif
#if VERSION_EXPORTED(5)
EXPORTED const nccltune::abi::TunerV5 ncclTunerPlugin_v5 = {
    "scripted", InitLateOf<5, nccltune::abi::TunerConstantsV5>, AskOf<5>, Finish};
#endif
#if VERSION_EXPORTED(6)
EXPORTED const nccltune::abi::TunerV6 ncclTunerPlugin_v6 = {
    "scripted", InitLateOf<6, nccltune::abi::TunerConstantsV6>, AskOf<6>, Finish, Chunk};
#endif
#if VERSION_EXPORTED(7)
EXPORTED const nccltune::abi::TunerV7 ncclTunerPlugin_v7 = {
    "scripted", InitLateOf<7, nccltune::abi::TunerConstantsV7>, AskOf<7>, Finish, Chunk};
#endif
