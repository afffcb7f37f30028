// SPDX-License-Identifier: Apache-2.0
// Opens the NCCL backend: libraries, communicator, and a proof that NCCL uses our tuner plugin.

#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "bench/nccl/nccl_backend.h"
#include "bench/nccl/observation.h"
#include "host/nccl_stand_in.h"

namespace nccltune::bench {
namespace {

using Failure = std::optional<StepError>;

constexpr size_t kLongestPluginName = 254;  // NCCL truncates longer names

OpenError FromStep(const StepError& error, std::string hint) {
  return {OpenError::Kind::kFailed, error.text, std::move(hint), error.rank};
}

// Finds the first device of this process. The driver may show all devices of the host. Then the
// local rank decides which device is the first. If the driver shows only the devices of this
// process, because a launcher has hidden the others, the first device is 0. Returns an error if
// there are too few devices.
std::optional<OpenError> FirstDevice(const World& world, int devices, int* first) {
  const int wanted = world.gpus_per_process;
  *first = world.local_process / world.ranks_per_gpu * wanted;
  if (*first + wanted <= devices) return std::nullopt;
  if (devices == wanted) {
    *first = 0;
    return std::nullopt;
  }
  return OpenError{OpenError::Kind::kCannotRun,
                   "process " + std::to_string(world.process) + " (number " +
                       std::to_string(world.local_process) + " on its host) needs GPUs " +
                       std::to_string(*first) + " to " + std::to_string(*first + wanted - 1) +
                       ", and the driver shows " + std::to_string(devices),
                   "start fewer processes on each host, or check CUDA_VISIBLE_DEVICES",
                   world.first_rank()};
}

std::string HexOf(const cu::Uuid& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char byte : uuid.bytes) {
    const auto bits = static_cast<unsigned char>(byte);
    hex += kDigits[bits >> 4U];
    hex += kDigits[bits & 15U];
  }
  return hex;
}

std::vector<Dtype> DtypesOf(const NcclVersion& version, int compute_capability) {
  std::vector<Dtype> dtypes;
  const bool has_f8 = version >= NcclVersion{2, 24, 0} && compute_capability >= 90;
  for (const Dtype dtype : AllOf<Dtype>(DtypeNames())) {
    if (has_f8 || (dtype != Dtype::kF8e4m3 && dtype != Dtype::kF8e5m2)) dtypes.push_back(dtype);
  }
  return dtypes;
}

}  // namespace

std::optional<OpenError> NcclBackend::Open(const World& world, ProcessExchange* exchange,
                                           BackendInfo* info) {
  exchange_ = exchange;
  ranks_ = world.ranks();
  const Introduction mine = IntroductionOf(OpenLibraries(world));
  std::vector<Introduction> all;
  if (!Introduce(exchange, mine, &all)) return FromStep(RunEndedError(), "");
  if (auto obstacle = FindOpenError(all, world)) return obstacle;
  compute_capability_ = all.front().compute_capability;
  for (const Introduction& one : all) {
    compute_capability_ = std::min(compute_capability_, one.compute_capability);
  }
  {
    const std::lock_guard<std::mutex> lock(abort_mutex_);
    team_ = std::make_unique<Team>(body_->gpus.size());
  }
  if (auto error = Connect(world)) return error;
  if (auto error = ProveTuner()) return error;
  Describe(world, all, info);
  return std::nullopt;
}

std::optional<OpenError> NcclBackend::OpenLibraries(const World& world) {
  if (world.ranks() < 2) {
    return OpenError{OpenError::Kind::kBadInput, "a run with one rank has nothing to measure",
                     "start several processes, or give one process several GPUs; on one GPU: "
                     "--ranks-per-gpu",
                     0};
  }
  if (options_.tuner_path.size() > kLongestPluginName) {
    return OpenError{OpenError::Kind::kBadInput,
                     "the path of the tuner plugin has " +
                         std::to_string(options_.tuner_path.size()) + " characters; NCCL reads " +
                         std::to_string(kLongestPluginName),
                     "use a symbolic link with a shorter path: --tuner PATH", world.first_rank()};
  }
  std::string reason;
  if (TunerControl::Open(options_.tuner_path, &reason) == nullptr) {
    return OpenError{OpenError::Kind::kBadInput, options_.tuner_path + " " + reason,
                     "pass this version's libnccl-tuner-nccltune.so with --tuner",
                     world.first_rank()};
  }
  setenv("NCCL_TUNER_PLUGIN", options_.tuner_path.c_str(), 1);
  CallProbe::Announce();
  OpenError error;
  error.rank = world.first_rank();
  body_->cuda = CudaLibrary::Open(&error);
  if (body_->cuda == nullptr) return error;
  int first = 0;
  if (auto missing = FirstDevice(world, body_->cuda->devices(), &first)) return missing;
  body_->nccl = NcclLibrary::Open(options_.nccl_path, &error);
  error.rank = world.first_rank();
  if (body_->nccl == nullptr) return error;
  // If the plugin asks this process for NCCL's version, the answer must be the version of the
  // opened library.
  host::StandInForNccl(body_->nccl->version());
  const std::lock_guard<std::mutex> lock(abort_mutex_);
  for (int i = 0; i < world.gpus_per_process; ++i) {
    body_->gpus.emplace_back(*body_->cuda, *body_->nccl, first + i, world.first_rank() + i, ranks_,
                             world.ranks_per_gpu, body_->stop);
  }
  return std::nullopt;
}

Introduction NcclBackend::IntroductionOf(std::optional<OpenError> error) const {
  Introduction mine;
  mine.error = std::move(error);
  if (mine.error) return mine;
  mine.nccl_version = ToString(body_->nccl->version());
  mine.host_hash = HostHash();
  mine.compute_capability = 1000;
  const CudaLibrary& cuda = *body_->cuda;
  for (const Gpu& gpu : body_->gpus) {
    cu::Device device = 0;
    cu::Uuid uuid{};
    int major = 0;
    int minor = 0;
    cuda->DeviceGet(&device, gpu.ordinal());
    cuda->DeviceGetUuid(&uuid, device);
    cuda->DeviceGetAttribute(&major, cu::kComputeCapabilityMajor, device);
    cuda->DeviceGetAttribute(&minor, cu::kComputeCapabilityMinor, device);
    mine.gpu_ids.push_back(HexOf(uuid));
    mine.compute_capability = std::min(mine.compute_capability, 10 * major + minor);
  }
  return mine;
}

std::optional<OpenError> NcclBackend::Connect(const World& world) {
  constexpr const char* kHint =
      "set NCCL_DEBUG=INFO for details; on hosts with several networks select one with "
      "NCCL_SOCKET_IFNAME";
  nccl::UniqueId id{};
  Failure failure;
  if (world.process == 0) {
    failure = body_->nccl->Check((*body_->nccl)->ncclGetUniqueId(&id), "make an id", 0, nullptr);
  }
  if (auto error = ShareFirstError(exchange_, failure)) return FromStep(*error, kHint);
  std::string bytes(id.internal, sizeof id.internal);
  if (!exchange_->Broadcast(&bytes, world.process == 0)) return FromStep(RunEndedError(), "");
  if (bytes.size() != sizeof id.internal) return FromStep(RunEndedError(), "");
  std::memcpy(id.internal, bytes.data(), sizeof id.internal);
  const auto task = [id](Gpu& gpu, size_t) -> Failure {
    if (auto error = gpu.Open()) return error;
    return gpu.Connect(id);
  };
  // After an error, return without ShareFirstError, because the other processes may never leave the
  // call that failed here. The error ends the run.
  failure = OnAll(task, Limit(options_.start_limit), "making the communicator");
  if (failure) return FromStep(*failure, kHint);
  if (auto error = ShareFirstError(exchange_, failure)) return FromStep(*error, kHint);
  return std::nullopt;
}

// Checks that NCCL has loaded our tuner plugin and asks it for decisions.
std::optional<OpenError> NcclBackend::ProveTuner() {
  const int rank = body_->gpus.front().rank();
  const std::string& path = options_.tuner_path;
  Failure failure;
  std::string reason;
  const bool loaded{SharedLibrary::Loaded(path.c_str())};
  body_->control = TunerControl::Open(path, &reason);
  if (!loaded || body_->control == nullptr) {
    failure = StepError{ErrorKind::kNccl, "NCCL did not load the tuner plugin " + path, rank, true};
  }
  if (auto error = ShareFirstError(exchange_, failure)) {
    return FromStep(*error,
                    "set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING to see the reason");
  }
  body_->observer.emplace(*body_->control);
  const auto task = [body = body_](Gpu& gpu, size_t) -> Failure {
    const Observer::ObservationScope scope(*body->observer, gpu.rank());
    if (auto error = gpu.EnqueueBarrierAllReduce()) return error;
    return gpu.Wait();
  };
  failure = OnAll(task, Limit(options_.start_limit), "the first all-reduce");
  const auto decision =
      body_->control->LastDecision(Collective::kAllReduce, body_->gpus.front().device());
  if (!failure && !decision) {
    failure = StepError{
        ErrorKind::kNccl,
        "NCCL loaded the tuner plugin " + path + " but does not ask it about an all-reduce", rank,
        true};
  }
  if (auto error = ShareFirstError(exchange_, failure)) {
    return FromStep(*error, "another tuner may be loaded instead, see NCCL_DEBUG=INFO");
  }
  CallProbe::Take(rank);
  const nccltune_tuner_decision seen = decision.value_or(nccltune_tuner_decision{});
  interface_version_ = seen.interface_version;
  nodes_ = static_cast<int>(seen.nodes);
  return std::nullopt;
}

void NcclBackend::Describe(const World& world, const std::vector<Introduction>& all,
                           BackendInfo* info) const {
  const NcclLibrary& nccl = *body_->nccl;
  info->backend = "nccl";
  info->nccl_version = ToString(nccl.version());
  info->nccl_path = nccl.path();
  info->nccl_from = nccl.from();
  info->driver = body_->cuda->version();
  info->tuner_path = options_.tuner_path;
  info->tuner_control = body_->control->version();
  info->tuner_interface = interface_version_;
  info->nodes = nodes_;
  info->ranks = ranks_;
  for (const Gpu& gpu : body_->gpus) {
    std::array<char, 256> name{};
    cu::Device device = 0;
    (*body_->cuda)->DeviceGet(&device, gpu.ordinal());
    (*body_->cuda)->DeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device);
    info->gpus.push_back(
        {gpu.rank(), name.data(), all[static_cast<size_t>(world.process)].host_hash});
  }
  info->collectives = AllOf<Collective>(AllCollectiveNames());
  info->dtypes = DtypesOf(nccl.version(), compute_capability_);
  info->redops = AllOf<Redop>(RedopNames());
  info->registered = true;
  info->group_calls = true;
  info->graph = true;
  info->load = true;
  info->chunk = interface_version_ >= 6;
}

}  // namespace nccltune::bench
