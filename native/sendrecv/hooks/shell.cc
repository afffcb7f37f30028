// SPDX-License-Identifier: Apache-2.0
// Fills the table of the trampolines at the first call of any NCCL function.
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/settings.h"
#include "sendrecv/hooks/entries.h"
#include "sendrecv/hooks/interpose.h"
#include "sendrecv/hooks/real_nccl.h"
#include "sendrecv/hooks/symbols.h"
#include "sendrecv/locks.h"

// Defined in trampolines.S. NOLINTBEGIN(readability-identifier-naming)
extern "C" {
// The target of each trampoline. Any thread may read it at any time.
__attribute__((visibility(
    "hidden"))) extern void* nccltune_sendrecv_table[nccltune::sendrecv::kSymbols.size()];
// Fills the table if that is not done yet. Returns the target of the trampoline with this number.
__attribute__((visibility("hidden"))) void* nccltune_sendrecv_resolve(unsigned number);
}
// NOLINTEND(readability-identifier-naming)

namespace nccltune::sendrecv {
namespace {

using Targets = std::array<void*, kSymbols.size()>;

constinit Once g_once;
// The real NCCL's functions, or substitutes for functions that NCCL lacks.
constinit Targets g_native = {};
// Whether this thread is filling the table. While it does so, the thread may itself call NCCL's
// functions.
thread_local bool t_filling = false;
// Whether this thread has filled `g_native`.
thread_local bool t_found = false;

// Writes to standard error, because NCCL's logger is not available here.
void Log(const std::string& text) { dprintf(STDERR_FILENO, "nccltune: %s\n", text.c_str()); }

InterposeMode ModeOf(std::string_view word) {
  if (word == "verify") return InterposeMode::kVerify;
  return word == "dry-run" ? InterposeMode::kDryRun : InterposeMode::kOn;
}

// Returns the targets of all trampolines: the interceptor's entry for each function that it
// handles, and NCCL's own function for all others.
Targets FindTargets() {
  const RealNccl nccl;
  const bool none = !nccl.error().empty();
  for (size_t i = 0; i < kSymbols.size(); ++i) {
    const Returns returns = kSymbols[i].returns;
    void* const found = none ? SubstituteWithoutNccl(returns) : nccl.Find(kSymbols[i].name);
    g_native[i] = found != nullptr ? found : SubstituteForMissing(returns);
  }
  t_found = true;

  std::vector<std::string> problems = UnknownSettings();
  const std::string_view mode = ReadWord(SettingId::kSendrecv, &problems);
  if (none) problems.push_back(nccl.error());
  for (const std::string& problem : problems) Log(problem);
  Targets targets = g_native;
  if (none || mode == "0") return targets;

  auto native = std::make_unique<Native>();
  native->path = nccl.path();
  Bind(nccl, native.get());
  if (native->GetVersion(&native->version) != abi::kSuccess) native->version = 0;
  std::unique_ptr<Interceptor> interceptor = NewInterceptor(ModeOf(mode), *native);
  if (interceptor == nullptr) return targets;
  for (const Intercepted& intercepted : AllIntercepted()) {
    const std::optional<size_t> number = NumberOfSymbol(intercepted.symbol);
    if (!number || nccl.Find(intercepted.symbol) == nullptr) continue;
    *intercepted.original = g_native[*number];
    targets[*number] = intercepted.entry;
  }
  // `native` must exist as long as the process.
  native.release();  // NOLINT(bugprone-unused-return-value)
  Install(interceptor.release(), nccl.code());
  return targets;
}

void Fill() {
  t_filling = true;
  t_found = false;
  Targets targets;
  try {
    targets = FindTargets();
  } catch (...) {
    Log("out of memory; everything goes straight to NCCL");
    targets = g_native;
    for (size_t i = 0; i < targets.size(); ++i) {
      if (!t_found || targets[i] == nullptr) {
        targets[i] = SubstituteWithoutNccl(kSymbols[i].returns);
      }
    }
  }
  // A thread that jumps to a target must see everything that was written before the target.
  for (size_t i = 0; i < targets.size(); ++i) {
    std::atomic_ref(nccltune_sendrecv_table[i]).store(targets[i], std::memory_order_release);
  }
  t_filling = false;
}

// Returns NCCL's own function while another thread fills the table.
void* FindAlone(const Symbol& symbol) {
  const RealNccl nccl;
  void* const found = nccl.Find(symbol.name);
  if (found != nullptr) return found;
  return nccl.error().empty() ? SubstituteForMissing(symbol.returns)
                              : SubstituteWithoutNccl(symbol.returns);
}

}  // namespace
}  // namespace nccltune::sendrecv

void* nccltune_sendrecv_resolve(unsigned number) {
  using namespace nccltune::sendrecv;  // NOLINT(google-build-using-namespace): C's function
  if (t_filling) {
    return t_found ? g_native[number] : SubstituteWithoutNccl(kSymbols[number].returns);
  }
  // A library's constructor that calls NCCL holds the loader's lock, which the thread that fills
  // the table needs. Opening NCCL may take seconds as well, if a network has its file.
  constexpr auto kPatience = std::chrono::seconds(5);
  if (!g_once.Do(&Fill, kPatience)) return FindAlone(kSymbols[number]);
  return std::atomic_ref(nccltune_sendrecv_table[number]).load(std::memory_order_acquire);
}
