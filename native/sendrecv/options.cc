// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/options.h"

#include <vector>

#include "common/settings.h"
#include "sendrecv/cuda/connections.h"
#include "sendrecv/log.h"

namespace nccltune::sendrecv {

SendRecvOptions ReadOptions(InterposeMode mode) {
  std::vector<std::string> problems;
  SendRecvOptions options;
  options.dry_run = mode == InterposeMode::kDryRun;
  options.verify = mode == InterposeMode::kVerify;
  if (const auto from = ReadNumber(SettingId::kSendrecvFrom, &problems)) {
    options.from = options.from_with_kernel_waits = *from;
  }
  options.policy.eager_limit =
      ReadNumber(SettingId::kSendrecvEager, &problems).value_or(options.policy.eager_limit);
  options.policy.sends_may_wait = options.policy.eager_limit == 0;
  options.policy.graphs = ReadWord(SettingId::kSendrecvGraphs, &problems) == "1";
  options.kernels_with_one_connection = ReadWord(SettingId::kSendrecvWaits, &problems) != "memory";
  const auto limit = ReadNumber(SettingId::kSendrecvWaitLimit, &problems);
  if (limit) options.policy.wait_limits.longest_ns = *limit * 1'000'000'000;
  options.any_hardware = ReadWord(SettingId::kSendrecvHardware, &problems) == "any";
  options.policy.vccl = ReadWord(SettingId::kSendrecvPolicy, &problems) == "vccl";
  options.vccl = vccl::ReadSettings(&problems);
  // NCCLTUNE_SENDRECV_CHUNK is the size of the vccl policy's chunks and of the pieces of a direct
  // copy.
  options.policy.piece = options.vccl.chunk_bytes;
  for (const std::string& problem : problems) Warn(problem);
  return options;
}

std::string AdaptToConnections(SendRecvOptions* options) {
  const Connections connections = CudaConnections();
  options->connections = connections.count;
  // With more connections kernels do not start in the order of their launch.
  const bool one = connections.count == 1;
  options->policy.kernel_waits = one && options->kernels_with_one_connection;
  if (options->policy.kernel_waits) options->from = options->from_with_kernel_waits;
  // NCCL carries captured messages if waits are kernels.
  options->policy.graphs = options->policy.graphs && !options->policy.kernel_waits;
  if (!one || options->policy.kernel_waits) return connections.why;
  return "with CUDA_DEVICE_MAX_CONNECTIONS=1 a stream that waits keeps all others waiting; without "
         "NCCLTUNE_SENDRECV_WAITS=memory streams wait by kernels instead";
}

}  // namespace nccltune::sendrecv
