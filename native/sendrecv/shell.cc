// SPDX-License-Identifier: Apache-2.0
//
// Fills the trampolines' table at the first call of any of NCCL's functions.
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/settings.h"
#include "sendrecv/entries.h"
#include "sendrecv/interpose.h"
#include "sendrecv/missing.h"
#include "sendrecv/once.h"
#include "sendrecv/real_nccl.h"
#include "sendrecv/symbols.h"

// In trampolines.S. NOLINTBEGIN(readability-identifier-naming)
extern "C" {
// Where each trampoline jumps; read by any thread at any time.
__attribute__((visibility(
    "hidden"))) extern void* nccltune_sendrecv_table[nccltune::sendrecv::kSymbols.size()];
// Where the trampoline of this number is to jump this time.
__attribute__((visibility("hidden"))) void* nccltune_sendrecv_resolve(unsigned number);
}
// NOLINTEND(readability-identifier-naming)

namespace nccltune::sendrecv {
namespace {

using Targets = std::array<void*, kSymbols.size()>;

constinit Once g_once;
// What the real NCCL has, or what says that it has not.
constinit Targets g_native = {};
// Those whose calls an interceptor is told of.
constinit std::array<bool, kSymbols.size()> g_told = {};
// This thread fills the table, and what it needs for that calls NCCL.
thread_local bool t_filling = false;
thread_local bool t_found = false;

// There is no NCCL's logger here, and nobody else who could say it.
void Say(const std::string& text) { dprintf(STDERR_FILENO, "nccltune: %s\n", text.c_str()); }

Mode ModeOf(std::string_view word) {
  if (word == "verify") return Mode::kVerify;
  return word == "dry-run" ? Mode::kDryRun : Mode::kOn;
}

// With NCCL's own functions in it, and with ours instead of some where there is an interceptor.
Targets FindTargets() {
  const RealNccl nccl;
  const bool none = !nccl.error().empty();
  for (size_t i = 0; i < kSymbols.size(); ++i) {
    const Returns returns = kSymbols[i].returns;
    void* const found = none ? NoNccl(returns) : nccl.Find(kSymbols[i].name);
    g_native[i] = found != nullptr ? found : NotInThisNccl(returns);
  }
  t_found = true;

  std::vector<std::string> problems = UnknownSettings();
  const std::string_view mode = ReadWord(SettingId::kSendrecv, &problems);
  if (none) problems.push_back(nccl.error());
  for (const std::string& problem : problems) Say(problem);
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
  // These keep coming through nccltune_sendrecv_resolve, which tells of them.
  for (size_t i = 0; i < kSymbols.size(); ++i) {
    if (EnqueuesWork(kSymbols[i].name)) targets[i] = nullptr;
  }
  // As long as the process.
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
    Say("out of memory; everything goes straight to NCCL");
    targets = g_native;
    for (size_t i = 0; i < targets.size(); ++i) {
      if (!t_found || targets[i] == nullptr) targets[i] = NoNccl(kSymbols[i].returns);
    }
  }
  // Whoever jumps to one of these must see all that was written for it.
  for (size_t i = 0; i < targets.size(); ++i) {
    g_told[i] = targets[i] == nullptr;
    if (g_told[i]) continue;
    std::atomic_ref(nccltune_sendrecv_table[i]).store(targets[i], std::memory_order_release);
  }
  t_filling = false;
}

}  // namespace
}  // namespace nccltune::sendrecv

void* nccltune_sendrecv_resolve(unsigned number) {
  using namespace nccltune::sendrecv;  // NOLINT(google-build-using-namespace): C's function
  if (t_filling) return t_found ? g_native[number] : NoNccl(kSymbols[number].returns);
  g_once.Do(&Fill);
  if (g_told[number]) {
    TellOfWork();
    return g_native[number];
  }
  return std::atomic_ref(nccltune_sendrecv_table[number]).load(std::memory_order_acquire);
}
