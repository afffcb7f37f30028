// SPDX-License-Identifier: Apache-2.0
#include "host/tuner_interface.h"

#include <type_traits>
#include <utility>

#include "abi/tuner.h"

namespace nccltune::host {
namespace {

// Interfaces v2 to v4. They have init(ranks, nodes, log, context) and destroy.
template <typename Tuner, int kVersion>
class InterfaceV2To4 : public TunerInterface {
 public:
  explicit InterfaceV2To4(const Tuner* tuner) : tuner_(tuner) {}

  int version() const override { return kVersion; }
  const char* name() const override { return tuner_->name; }
  size_t constants_size() const override { return 0; }

  std::string MissingMember() const override {
    if (tuner_->init == nullptr) return "init";
    if (tuner_->get_coll_info == nullptr) return "getCollInfo";
    return tuner_->destroy == nullptr ? "destroy" : "";
  }

  int Init(const InitCall& call, void** context) const override {
    return tuner_->init(call.ranks, call.nodes, call.log, context);
  }

  int GetCollInfo(void* context, const CollInfoCall& call) const override {
    if constexpr (kVersion == 2) {
      return tuner_->get_coll_info(context, call.collective, call.bytes, call.collnet_support,
                                   call.nvls_support, call.pipe_ops, call.algorithm, call.protocol,
                                   call.channels);
    } else if constexpr (kVersion == 3) {
      return tuner_->get_coll_info(context, call.collective, call.bytes, call.pipe_ops, call.table,
                                   call.algorithms, abi::kNumProtocols, call.channels);
    } else {
      return tuner_->get_coll_info(context, call.collective, call.bytes, call.pipe_ops, call.table,
                                   call.algorithms, abi::kNumProtocols, call.registered ? 1 : 0,
                                   call.channels);
    }
  }

  int Finalize(void* context) const override { return tuner_->destroy(context); }

 private:
  const Tuner* tuner_;
};

// Interfaces v5 to v7. Their init also takes an id, the NVLink domains and the constants. They have
// finalize instead of destroy.
template <typename Tuner, typename Constants, int kVersion>
class InterfaceV5To7 : public TunerInterface {
 public:
  explicit InterfaceV5To7(const Tuner* tuner) : tuner_(tuner) {}

  int version() const override { return kVersion; }
  const char* name() const override { return tuner_->name; }
  size_t constants_size() const override { return sizeof(Constants); }

  std::string MissingMember() const override {
    if (tuner_->init == nullptr) return "init";
    if (tuner_->get_coll_info == nullptr) return "getCollInfo";
    return tuner_->finalize == nullptr ? "finalize" : "";
  }

  int Init(const InitCall& call, void** context) const override {
    return tuner_->init(context, call.communicator_id, call.ranks, call.nodes, call.log,
                        call.nvl_domains, static_cast<Constants*>(call.constants));
  }

  int GetCollInfo(void* context, const CollInfoCall& call) const override {
    return tuner_->get_coll_info(context, call.collective, call.bytes, call.pipe_ops, call.table,
                                 call.algorithms, abi::kNumProtocols, call.registered ? 1 : 0,
                                 call.channels);
  }

  bool has_chunk_size() const override {
    if constexpr (kVersion >= 6) {
      return tuner_->get_chunk_size != nullptr;
    } else {
      return false;
    }
  }

  int GetChunkSize(void* context, const ChunkCall& call) const override {
    if constexpr (kVersion >= 6) {
      return tuner_->get_chunk_size(context, call.collective, call.bytes,
                                    call.combination.algorithm, call.combination.protocol,
                                    call.channels, call.chunk_bytes);
    } else {
      return abi::kSuccess;
    }
  }

  int Finalize(void* context) const override { return tuner_->finalize(context); }

 private:
  const Tuner* tuner_;
};

}  // namespace

std::string TunerSymbolName(int version) { return "ncclTunerPlugin_v" + std::to_string(version); }

std::unique_ptr<TunerInterface> WrapTuner(int version, const void* symbol) {
  switch (version) {
    case 2:
      return std::make_unique<InterfaceV2To4<abi::TunerV2, 2>>(
          static_cast<const abi::TunerV2*>(symbol));
    case 3:
      return std::make_unique<InterfaceV2To4<abi::TunerV3, 3>>(
          static_cast<const abi::TunerV3*>(symbol));
    case 4:
      return std::make_unique<InterfaceV2To4<abi::TunerV4, 4>>(
          static_cast<const abi::TunerV4*>(symbol));
    case 5:
      return std::make_unique<InterfaceV5To7<abi::TunerV5, abi::TunerConstantsV5, 5>>(
          static_cast<const abi::TunerV5*>(symbol));
    case 6:
      return std::make_unique<InterfaceV5To7<abi::TunerV6, abi::TunerConstantsV6, 6>>(
          static_cast<const abi::TunerV6*>(symbol));
    case 7:
      return std::make_unique<InterfaceV5To7<abi::TunerV7, abi::TunerConstantsV7, 7>>(
          static_cast<const abi::TunerV7*>(symbol));
    default:
      return nullptr;
  }
}

std::unique_ptr<PluginLibrary> PluginLibrary::Open(const std::string& path, std::string* error) {
  SharedLibrary library = SharedLibrary::Open(path, error);
  if (!library) return nullptr;
  return std::unique_ptr<PluginLibrary>(new PluginLibrary(std::move(library)));
}

const void* PluginLibrary::Tuner(int version) const {
  return library_.FindAddress(TunerSymbolName(version).c_str());
}

std::vector<int> PluginLibrary::Interfaces() const {
  std::vector<int> versions;
  for (int version = kNewestInterface; version >= 1; --version) {
    if (Tuner(version) != nullptr) versions.push_back(version);
  }
  return versions;
}

}  // namespace nccltune::host
