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

// As long as the words are there.
nvtxEventAttributes_t Attributes(const std::string& words) {
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = words.c_str();
  return attributes;
}

}  // namespace

bool Range::Seen() { return Domain() != nullptr; }

Range::Range(const std::string& words) {
  const nvtxEventAttributes_t attributes = Attributes(words);
  nvtxDomainRangePushEx(Domain(), &attributes);
}

Range::~Range() { nvtxDomainRangePop(Domain()); }

void Range::Mark(const std::string& words) {
  const nvtxEventAttributes_t attributes = Attributes(words);
  nvtxDomainMarkEx(Domain(), &attributes);
}
#else
bool Range::Seen() { return false; }
Range::Range(const std::string& /*words*/) {}
Range::~Range() = default;
void Range::Mark(const std::string& /*words*/) {}
#endif

}  // namespace nccltune::sendrecv
