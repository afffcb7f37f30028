// SPDX-License-Identifier: Apache-2.0
// Acts as a profiler for NVTX. It prints the ranges and marks of the domain "nccltune".
#include <nvtx3/nvToolsExt.h>

#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace {

// Only its address is used, as a domain handle that is not null.
int g_domain;
thread_local int g_depth;

void Print(const char* what, const nvtxEventAttributes_t* attributes) {
  std::fprintf(stderr, "nvtx %d: depth %d, %s: %s\n", static_cast<int>(getpid()), g_depth, what,
               attributes->message.ascii);
}

nvtxDomainHandle_t NVTX_API Create(const char* name) {
  if (std::strcmp(name, "nccltune") != 0) return nullptr;
  return reinterpret_cast<nvtxDomainHandle_t>(&g_domain);
}

int NVTX_API Push(nvtxDomainHandle_t /*domain*/, const nvtxEventAttributes_t* attributes) {
  Print("range", attributes);
  return g_depth++;
}

int NVTX_API Pop(nvtxDomainHandle_t /*domain*/) { return --g_depth; }

void NVTX_API Mark(nvtxDomainHandle_t /*domain*/, const nvtxEventAttributes_t* attributes) {
  Print("mark", attributes);
}

template <typename Function>
void Take(NvtxFunctionTable table, unsigned number, Function function) {
  *table[number] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int NVTX_API
InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE2_DomainCreateA) {
    return 0;
  }
  Take(table, NVTX_CBID_CORE2_DomainCreateA, &Create);
  Take(table, NVTX_CBID_CORE2_DomainRangePushEx, &Push);
  Take(table, NVTX_CBID_CORE2_DomainRangePop, &Pop);
  Take(table, NVTX_CBID_CORE2_DomainMarkEx, &Mark);
  return 1;
}
