// SPDX-License-Identifier: Apache-2.0
// The functions of NVML with which the send/recv library asks for the link between two GPUs.
#include "standard.h"

#define SOFT_NVML extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kNotFound = 6;
int g_device = 0;

std::string_view LinkOf() {
  const char* const text = std::getenv("SOFT_NVML_LINK");
  return text == nullptr ? "nvlink" : text;
}

}  // namespace

SOFT_NVML int nvmlInit_v2() { return 0; }

SOFT_NVML int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (LinkOf() == "none" || std::strlen(uuid) != 40) return kNotFound;
  *device = &g_device;
  return 0;
}

// Capability 2 is NVLink; 0 and 1 are reads and writes.
SOFT_NVML int nvmlDeviceGetP2PStatus(void* /*one*/, void* /*other*/, int capability, int* status) {
  const char* const on = std::getenv("SOFT_NVML_P2P");
  const bool off = on != nullptr && std::strcmp(on, "0") == 0;
  *status = (capability == 2 ? LinkOf() != "nvlink" : off) ? 5 : 0;
  return 0;
}

SOFT_NVML int nvmlDeviceGetTopologyCommonAncestor(void* /*one*/, void* /*other*/, int* level) {
  const std::string_view link = LinkOf();
  *level = link == "pix" ? 10 : link == "pxb" ? 20 : link == "phb" ? 30 : 50;
  return 0;
}
