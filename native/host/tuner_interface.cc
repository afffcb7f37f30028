// SPDX-License-Identifier: Apache-2.0
#include "host/tuner_interface.h"

namespace nccltune::host {
namespace {

// Up to v4 init takes (ranks, nodes, log, context), and destroy ends. Since v5 init also takes an
// id, the NVLink domains and the constants, and finalize ends.
template <int kVersion, typename Tuner, typename Constants = char>
class Interface : public TunerInterface {
 public:
  explicit Interface(const void* symbol) : tuner_(static_cast<const Tuner*>(symbol)) {}

  int version() const override { return kVersion; }
  const char* name() const override { return tuner_->name; }
  size_t constants_size() const override { return kVersion < 5 ? 0 : sizeof(Constants); }

  std::string MissingMember() const override {
    if (tuner_->init == nullptr) return "init";
    if (tuner_->get_coll_info == nullptr) return "getCollInfo";
    if constexpr (kVersion < 5) {
      return tuner_->destroy == nullptr ? "destroy" : "";
    } else {
      return tuner_->finalize == nullptr ? "finalize" : "";
    }
  }

  int Init(const InitCall& call, void** context) const override {
    if constexpr (kVersion < 5) {
      return tuner_->init(call.ranks, call.nodes, call.log, context);
    } else {
      return tuner_->init(context, call.communicator_id, call.ranks, call.nodes, call.log,
                          call.nvl_domains, static_cast<Constants*>(call.constants));
    }
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

  bool has_chunk_size() const override {
    if constexpr (kVersion >= 6) return tuner_->get_chunk_size != nullptr;
    return false;
  }

  int GetChunkSize([[maybe_unused]] void* context,
                   [[maybe_unused]] const ChunkCall& call) const override {
    if constexpr (kVersion >= 6) {
      return tuner_->get_chunk_size(context, call.collective, call.bytes,
                                    call.combination.algorithm, call.combination.protocol,
                                    call.channels, call.chunk_bytes);
    }
    return abi::kSuccess;
  }

  int Finalize(void* context) const override {
    if constexpr (kVersion < 5) {
      return tuner_->destroy(context);
    } else {
      return tuner_->finalize(context);
    }
  }

 private:
  const Tuner* tuner_;
};

}  // namespace

std::string TunerSymbolName(int version) { return "ncclTunerPlugin_v" + std::to_string(version); }

std::unique_ptr<TunerInterface> WrapTuner(int version, const void* symbol) {
  switch (version) {
    case 2:
      return std::make_unique<Interface<2, abi::TunerV2>>(symbol);
    case 3:
      return std::make_unique<Interface<3, abi::TunerV3>>(symbol);
    case 4:
      return std::make_unique<Interface<4, abi::TunerV4>>(symbol);
    case 5:
      return std::make_unique<Interface<5, abi::TunerV5, abi::TunerConstantsV5>>(symbol);
    case 6:
      return std::make_unique<Interface<6, abi::TunerV6, abi::TunerConstantsV6>>(symbol);
    case 7:
      return std::make_unique<Interface<7, abi::TunerV7, abi::TunerConstantsV7>>(symbol);
    default:
      return nullptr;
  }
}

const void* FindTuner(const SharedLibrary& plugin, int version) {
  return plugin.FindAddress(TunerSymbolName(version).c_str());
}

std::vector<int> InterfacesOf(const SharedLibrary& plugin) {
  std::vector<int> versions;
  for (int version = kNewestInterface; version >= 1; --version) {
    if (FindTuner(plugin, version) != nullptr) versions.push_back(version);
  }
  return versions;
}

}  // namespace nccltune::host
