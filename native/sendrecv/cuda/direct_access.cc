// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/cuda/direct_access.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "common/shared_library.h"
#include "sendrecv/log.h"

namespace nccltune::sendrecv {
namespace {

// The kinds of links between two GPUs, the nearest first, with the numbers of NCCL's
// NCCL_P2P_LEVEL (graph/topo.h, since 2.28). NVML does not report the other kinds.
enum class Link : uint8_t {
  kSameGpu = 0,
  kNvlink = 1,
  kPix = 4,  // one PCIe switch
  kPxb = 5,  // several PCIe switches
  kPhb = 8,  // a host bridge
  kSys = 9,  // two NUMA nodes
  kUnknown = 255,
};

// NCCL's names of Link, and what its old numbers mean.
constexpr std::array<std::string_view, 10> kLevels = {"LOC", "NVL", "NVB", "C2C", "PIX",
                                                      "PXB", "P2C", "PXN", "PHB", "SYS"};
constexpr std::array kOldLevels = {Link::kSameGpu, Link::kPix, Link::kPxb,
                                   Link::kPhb,     Link::kSys, Link::kSys};

// Returns nothing for a value that NCCL ignores.
std::optional<Link> LevelOf(const std::string& text) {
  const auto* const found = std::ranges::find(kLevels, text);
  if (found != kLevels.end()) return static_cast<Link>(found - kLevels.begin());
  if (text.empty() || text[0] < '0' || text[0] > '9') return {};
  const long number = std::strtol(text.c_str(), nullptr, 0);
  return kOldLevels[std::min<size_t>(static_cast<size_t>(number), kOldLevels.size() - 1)];
}

// NCCL's settings of direct access.
struct Switches {
  Link farthest = Link::kPxb;  // NCCL uses no direct access between GPUs that are farther apart
  std::string why;             // the setting that determines `farthest`
  bool checks_driver = true;   // NCCL uses it only where the driver reports that it works
  bool uses_host_memory = true;
  bool within_process = true;
};

Switches ReadSwitches() {
  Switches access;
  access.why = "NCCL_P2P_LEVEL is PXB unless it is set";
  const std::string level = NcclSetting("NCCL_P2P_LEVEL").value_or("");
  if (NcclNumber("NCCL_P2P_DISABLE") == 1) {
    access.farthest = Link::kSameGpu;
    access.why = "NCCL_P2P_DISABLE=" + NcclSetting("NCCL_P2P_DISABLE").value_or("1");
  } else if (const std::optional<Link> known = LevelOf(level)) {
    access.farthest = *known;
    access.why = "NCCL_P2P_LEVEL=" + level;
  }
  access.checks_driver = NcclNumber("NCCL_IGNORE_DISABLED_P2P") != 2;
  access.uses_host_memory = NcclNumber("NCCL_SHM_DISABLE") != 1;
  access.within_process = NcclNumber("NCCL_P2P_DIRECT_DISABLE") == 0;
  return access;
}

const Switches& NcclSwitches() {
  static const auto& switches = *new Switches(ReadSwitches());
  return switches;
}

// Our declarations of the part of NVML that is used, compared with nvml.h of CUDA 12.9.
constexpr int kSuccess = 0;
// Values of nvmlGpuP2PCapsIndex_t; the status 0 means that the capability works.
constexpr int kReads = 0;
constexpr int kWrites = 1;
constexpr int kNvlink = 2;

struct Nvml {
  int (*init)() = nullptr;
  int (*device)(const char* uuid, void** device) = nullptr;
  int (*p2p_status)(void* one, void* other, int capability, int* status) = nullptr;
  int (*common_ancestor)(void* one, void* other, int* level) = nullptr;
  bool usable = false;

  Nvml() {
    std::string why;
    SharedLibrary library = SharedLibrary::Open("libnvidia-ml.so.1", &why);
    if (!library) return;
    init = library.Find<int()>("nvmlInit_v2");
    device = library.Find<int(const char*, void**)>("nvmlDeviceGetHandleByUUID");
    p2p_status = library.Find<int(void*, void*, int, int*)>("nvmlDeviceGetP2PStatus");
    common_ancestor = library.Find<int(void*, void*, int*)>("nvmlDeviceGetTopologyCommonAncestor");
    library.Keep();
    usable = init != nullptr && device != nullptr && p2p_status != nullptr &&
             common_ancestor != nullptr && init() == kSuccess;
  }

  bool Has(void* one, void* other, int capability) const {
    int status = -1;
    return p2p_status(one, other, capability, &status) == kSuccess && status == 0;
  }
};

// Returns a text such as "GPU-0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f".
std::string TextOf(const cu::Uuid& uuid) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

// Returns the kind of link for a value of nvmlGpuTopologyLevel_t.
Link LinkOf(int level) {
  switch (level) {
    case 0:
    case 10:
      return Link::kPix;
    case 20:
      return Link::kPxb;
    case 30:
    case 40:
      return Link::kPhb;
    case 50:
      return Link::kSys;
    default:
      return Link::kUnknown;
  }
}

struct GpuLink {
  Link link = Link::kUnknown;
  bool works = false;  // the driver reports that each GPU can access the other's memory
};

// NVML also knows GPUs that CUDA_VISIBLE_DEVICES hides from this process. NCCL needs it as well.
GpuLink LinkBetween(const cu::Uuid& one, const cu::Uuid& other) {
  if (std::memcmp(&one, &other, sizeof(one)) == 0) {
    return {.link = Link::kSameGpu, .works = true};
  }
  static const Nvml& nvml = *new Nvml;
  void* here = nullptr;
  void* there = nullptr;
  if (!nvml.usable || nvml.device(TextOf(one).c_str(), &here) != kSuccess ||
      nvml.device(TextOf(other).c_str(), &there) != kSuccess) {
    return {};
  }
  GpuLink found;
  found.works = nvml.Has(here, there, kReads) && nvml.Has(here, there, kWrites);
  int level = -1;
  if (nvml.Has(here, there, kNvlink)) {
    found.link = Link::kNvlink;
  } else if (nvml.common_ancestor(here, there, &level) == kSuccess) {
    found.link = LinkOf(level);
  }
  return found;
}

// The hardware of the acceptance runs: H100 and H200 with NVLink.
bool IsTested(const cu::Api& api, cu::Device device) {
  int major = 0;
  return api.DeviceGetAttribute(&major, cu::kComputeCapabilityMajor, device) == cu::kSuccess &&
         major == 9;
}

constexpr const char* kUntested =
    "the library was not tested on them; NCCLTUNE_SENDRECV_HARDWARE=any uses it nevertheless";

}  // namespace

std::string WhyNoDirectAccess() {
  const Switches& switches = NcclSwitches();
  // The flags of the lanes are in host memory that two processes and their GPUs share.
  if (!switches.uses_host_memory) return "NCCL_SHM_DISABLE=1";
  return switches.farthest == Link::kSameGpu ? switches.why : "";
}

DirectAccess AccessTo(const cu::Api& api, cu::Device device, const cu::Uuid& mine,
                      const GpuOfRank& peer, bool any_hardware) {
  const Switches& switches = NcclSwitches();
  if (peer.same_process && !switches.within_process) return {"NCCL_P2P_DIRECT_DISABLE is set"};
  const GpuLink found = LinkBetween(mine, peer.uuid);
  if (found.link == Link::kSameGpu) return {.refused = "", .may_push = true};
  if (found.link == Link::kUnknown) return {"NVML does not report the link between the two GPUs"};
  if (!any_hardware && (found.link != Link::kNvlink || !IsTested(api, device))) {
    return {"the GPUs are not H100 or H200 with NVLink between them: " + std::string(kUntested)};
  }
  if (found.link > switches.farthest) return {"the GPUs are too far apart: " + switches.why};
  if (!found.works && switches.checks_driver) {
    return {"the driver reports that peer access is disabled between the two GPUs"};
  }
  return {.refused = "", .may_push = found.link == Link::kNvlink};
}

}  // namespace nccltune::sendrecv
