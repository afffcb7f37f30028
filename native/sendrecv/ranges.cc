// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/ranges.h"

#ifdef NCCLTUNE_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace nccltune::sendrecv {

#ifdef NCCLTUNE_NVTX
namespace {

nvtxDomainHandle_t Domain() {
  static auto* const domain = nvtxDomainCreateA("nccltune");
  return domain;
}

// The result points into `text`.
nvtxEventAttributes_t Attributes(const std::string& text) {
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text.c_str();
  return attributes;
}

}  // namespace

bool ProfilerRange::IsActive() { return Domain() != nullptr; }

ProfilerRange::ProfilerRange(const std::string& text) {
  const nvtxEventAttributes_t attributes = Attributes(text);
  nvtxDomainRangePushEx(Domain(), &attributes);
}

ProfilerRange::~ProfilerRange() { nvtxDomainRangePop(Domain()); }

void ProfilerRange::Mark(const std::string& lane, uint64_t bytes, std::string_view route) {
  if (!IsActive()) return;
  std::string text = lane + ": " + std::to_string(bytes) + " bytes, ";
  text += route;
  const nvtxEventAttributes_t attributes = Attributes(text);
  nvtxDomainMarkEx(Domain(), &attributes);
}
#else
bool ProfilerRange::IsActive() { return false; }
ProfilerRange::ProfilerRange(const std::string& /*words*/) {}
ProfilerRange::~ProfilerRange() = default;
void ProfilerRange::Mark(const std::string& /*lane*/, uint64_t /*bytes*/,
                         std::string_view /*route*/) {}
#endif

}  // namespace nccltune::sendrecv
