// SPDX-License-Identifier: Apache-2.0
// Stream capture, and graphs. A graph repeats the captured calls in their order, in as many streams
// as were captured.
#include "sendrecv/cuda/wait_kernels.h"
#include "sendrecv/stand_in/cuda_machine.h"
#include "sendrecv/stand_in/cuda_memory.h"
#include "standard.h"

namespace nccltune::soft {
namespace {

constexpr int kCaptureNone = 0;
constexpr int kCaptureActive = 1;
constexpr int kCaptureInvalidated = 2;

std::shared_ptr<Graph> FindGraph(const void* handle) {
  Machine& all = Machine::Get();
  const auto found = all.graphs.find(reinterpret_cast<uint64_t>(handle));
  return found == all.graphs.end() ? nullptr : found->second;
}

uint64_t AddGraph(std::shared_ptr<Graph> graph) {
  Machine& all = Machine::Get();
  const uint64_t handle = all.NextHandle();
  all.graphs[handle] = std::move(graph);
  return handle;
}

void Release(Graph& graph) {
  for (const auto& lane : graph.lanes) {
    if (const auto stream = lane.lock()) stream->graph.reset();
  }
  graph.lanes.clear();
  Machine& all = Machine::Get();
  std::erase_if(all.captures, [&](const auto& each) { return each.lock().get() == &graph; });
  --all.capturing;
}

CUresult Forget(const void* handle) {
  Machine& all = Machine::Get();
  const std::scoped_lock lock(all.mutex);
  return all.graphs.erase(reinterpret_cast<uint64_t>(handle)) == 0 ? kInvalidValue : kCudaSuccess;
}

using sendrecv::ExchangeKernel;
using sendrecv::Flag;
using sendrecv::GateKernel;
using sendrecv::Reached;

const auto kModule = reinterpret_cast<CUmodule>(0x10);

enum class Kernel : uintptr_t { kNone, kGate, kExchange, kLoad, kCount };

CUfunction FunctionOf(const Context& context, Kernel kernel) {
  constexpr auto kCount = static_cast<uintptr_t>(Kernel::kCount);
  if (kernel == Kernel::kNone) return nullptr;
  return reinterpret_cast<CUfunction>(context.resets * kCount + static_cast<uintptr_t>(kernel));
}

uint64_t Now() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                               std::chrono::nanoseconds(1));
}

// A word that the GPU can write. An address that it cannot reach is an error of the context.
template <typename Word>
class Reachable {
 public:
  Reachable(Context& context, const void* address) {
    std::string why;
    const auto at = reinterpret_cast<CUdeviceptr>(address);
    const std::vector<Piece> pieces = Memory::Get().Reach(context.gpu, at, sizeof(Word), true, why);
    if (pieces.size() != 1) {
      context.Fail(kIllegalAddress, "a wait kernel: " + why);
      return;
    }
    keeps_ = pieces[0].keeps;
    word_ = reinterpret_cast<Word*>(pieces[0].data);
  }
  Word Load() const {
    return word_ == nullptr ? 0 : std::atomic_ref<Word>(*word_).load(std::memory_order_acquire);
  }
  void Store(Word value) const {
    if (word_ != nullptr) std::atomic_ref<Word>(*word_).store(value, std::memory_order_release);
  }
  void Raise(Word value) const {
    Word before = Load();
    while (word_ != nullptr && before < value &&
           !std::atomic_ref<Word>(*word_).compare_exchange_weak(before, value)) {
    }
  }

 private:
  std::shared_ptr<Backing> keeps_;
  Word* word_ = nullptr;
};

uint32_t Load(Context& context, const Flag* flag) {
  return Reachable<uint32_t>(context, flag).Load();
}
void Store(Context& context, Flag* flag, uint32_t value) {
  Reachable<uint32_t>(context, flag).Store(value);
}

void RunGate(Context& context, const GateKernel& gate) {
  const Reachable<uint64_t> started(context, reinterpret_cast<const void*>(gate.started));
  const uint64_t begin = Now();
  Patience patience;
  while (!Reached(Load(context, gate.begun), gate.begun_value) && context.error == 0) {
    if (Now() - begin > gate.limits.longest_ns) {
      Store(context, gate.expired, 1);
      return;
    }
    patience.Sleep();
  }
  const uint64_t reached = Now();
  uint64_t held_up = 0;
  while (!Reached(Load(context, gate.ready), gate.value) && context.error == 0) {
    const uint64_t now = Now();
    if (held_up == 0 && started.Load() > gate.start) held_up = now;
    const bool gives_way = held_up != 0 && now - held_up > gate.limits.held_up_ns;
    if (gives_way || now - reached > gate.limits.alone_ns) {
      if (gives_way) Store(context, gate.held_up, 1);
      Store(context, gate.late, gate.value);
      return;
    }
    patience.Sleep();
  }
}

// Returns whether the message is complete.
bool RunPull(Context& context, const ExchangeKernel::Pull& pull) {
  if (!Reached(Load(context, pull.copied), pull.value)) return false;
  if (Load(context, pull.late) == pull.value) {
    const uint32_t ready = Load(context, pull.ready);
    if (!Reached(ready, pull.value)) return false;
    std::vector<uint8_t> bytes(pull.bytes);
    if (ready - pull.value < sendrecv::kReleased &&
        softCudaRead(context.gpu, pull.from, bytes.data(), bytes.size())) {
      softCudaWrite(context.gpu, pull.to, bytes.data(), bytes.size());
    }
  }
  Store(context, pull.done, pull.value);
  return true;
}

void RunExchange(Context& context, const ExchangeKernel& exchange) {
  if (exchange.start != 0) {
    Reachable<uint64_t>(context, reinterpret_cast<const void*>(exchange.started))
        .Raise(exchange.start);
  }
  for (uint32_t i = 0; i < exchange.raise_count; ++i) {
    Store(context, exchange.raises[i].flag, exchange.raises[i].value);
  }
  std::vector<ExchangeKernel::Pull> pulls(exchange.pulls.begin(),
                                          exchange.pulls.begin() + exchange.pull_count);
  std::vector<ExchangeKernel::Value> waits(exchange.waits.begin(),
                                           exchange.waits.begin() + exchange.wait_count);
  const uint64_t begin = Now();
  Patience patience;
  while (context.error == 0) {
    std::erase_if(pulls, [&](const auto& pull) { return RunPull(context, pull); });
    std::erase_if(waits,
                  [&](const auto& wait) { return Reached(Load(context, wait.flag), wait.value); });
    if (pulls.empty() && waits.empty()) break;
    if (Now() - begin > exchange.longest_ns) {
      Store(context, exchange.expired, 1);
      break;
    }
    patience.Sleep();
  }
  if (exchange.collected_count != 0) {
    Store(context, exchange.collected.flag, exchange.collected.value);
  }
}

}  // namespace

CUresult cuStreamIsCapturing(CUstream handle, int* status) {
  SOFT_ENTER();
  SOFT_STREAM(handle);
  *status = stream->graph == nullptr ? kCaptureNone
            : stream->graph->invalid ? kCaptureInvalidated
                                     : kCaptureActive;
  return kCudaSuccess;
}

CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  SOFT_ENTER();
  if (*mode < kCaptureGlobal || *mode > kCaptureRelaxed) return kInvalidValue;
  std::swap(*mode, CaptureMode());
  return kCudaSuccess;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, int mode) {
  SOFT_ENTER();
  if (mode < kCaptureGlobal || mode > kCaptureRelaxed) return kInvalidValue;
  SOFT_STREAM(handle);
  if (stream->graph != nullptr) return kInvalidValue;
  if (stream == stream->context().legacy) return kStreamCaptureUnsupported;
  stream->graph = std::make_shared<Graph>();
  stream->graph->lanes.emplace_back(stream);
  stream->graph->joined.push_back(false);
  stream->graph->mode = mode;
  stream->graph->thread = std::this_thread::get_id();
  stream->lane = 0;
  all.captures.emplace_back(stream->graph);
  ++all.capturing;
  return kCudaSuccess;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* out) {
  SOFT_ENTER();
  *out = nullptr;
  SOFT_STREAM(handle);
  const std::shared_ptr<Graph> graph = stream->graph;
  if (graph == nullptr) return kInvalidValue;
  if (stream->lane != 0) {
    graph->invalid = true;
    return kStreamCaptureUnmatched;
  }
  Release(*graph);
  if (graph->invalid) return kStreamCaptureInvalidated;
  for (size_t lane = 1; lane < graph->joined.size(); ++lane) {
    if (!graph->joined[lane]) return kStreamCaptureUnjoined;
  }
  *out = reinterpret_cast<CUgraph>(AddGraph(graph));
  return kCudaSuccess;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                     unsigned long long /*flags*/) {
  SOFT_ENTER();
  const std::scoped_lock lock(Machine::Get().mutex);
  const std::shared_ptr<Graph> found = FindGraph(graph);
  if (found == nullptr) return kInvalidValue;
  *exec = reinterpret_cast<CUgraphExec>(AddGraph(found));
  return kCudaSuccess;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
  SOFT_ENTER();
  Machine& all = Machine::Get();
  const std::scoped_lock lock(all.mutex);
  const std::shared_ptr<Graph> graph = FindGraph(exec);
  const std::shared_ptr<SoftStream> stream = all.Find(handle);
  if (graph == nullptr) return kInvalidValue;
  if (stream == nullptr) return kInvalidHandle;
  // Child graphs are not supported.
  if (stream->graph != nullptr) return kNotSupported;
  if (const CUresult error = stream->context().error) return error;
  std::vector<std::shared_ptr<SoftStream>> lanes = {stream};
  while (lanes.size() < graph->joined.size()) {
    lanes.push_back(all.NewStream(stream->context(), kStreamNonBlocking));
  }
  std::map<size_t, Mark> marks;
  for (const Graph::Node& node : graph->nodes) {
    Operation operation = node.operation;
    if (node.waits_for != 0) operation.after.push_back(marks[node.waits_for]);
    const Mark mark = all.Enqueue(*lanes[node.lane], std::move(operation));
    if (node.records != 0) marks[node.records] = mark;
  }
  for (size_t lane = 1; lane < lanes.size(); ++lane) lanes[lane]->Retire();
  return kCudaSuccess;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  SOFT_ENTER();
  return Forget(exec);
}

CUresult cuGraphDestroy(CUgraph graph) {
  SOFT_ENTER();
  return Forget(graph);
}

// The library's wait kernels (native/sendrecv/wait_kernels.cu), in C++, and the load of
// nccltune-bench, which takes a nanosecond a round.
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  SOFT_ENTER_CONTEXT();
  if (Machine::Get().options.Lacks("kernels")) return kNotSupported;
  const std::string_view text(static_cast<const char*>(image));
  if (text.find(".entry nccltune_gate") == std::string_view::npos &&
      text.find(".entry nccltune_load") == std::string_view::npos) {
    return kInvalidValue;
  }
  *module = kModule;
  ++Machine::Get().modules;
  return kCudaSuccess;
}

CUresult cuModuleUnload(CUmodule /*module*/) {
  SOFT_ENTER_CONTEXT();
  --Machine::Get().modules;
  return kCudaSuccess;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  SOFT_ENTER_CONTEXT();
  if (module != kModule) return kInvalidHandle;
  const Kernel kernel = std::string_view(name) == sendrecv::kGateKernelName ? Kernel::kGate
                        : std::string_view(name) == sendrecv::kExchangeKernelName
                            ? Kernel::kExchange
                        : std::string_view(name) == "nccltune_load" ? Kernel::kLoad
                                                                    : Kernel::kNone;
  *function = FunctionOf(*Current(), kernel);
  return *function == nullptr ? kNotFound : kCudaSuccess;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z,
                        unsigned /*shared_bytes*/, CUstream handle, void** parameters,
                        void** /*extra*/) {
  SOFT_ENTER();
  SOFT_STREAM(handle);
  Context& context = stream->context();
  if (const CUresult error = context.error) return error;
  const bool one_warp = grid_x == 1 && grid_y == 1 && grid_z == 1 && block_y == 1 && block_z == 1 &&
                        block_x == sendrecv::kWaitKernelThreads;
  Operation operation;
  if (function == FunctionOf(context, Kernel::kLoad)) {
    const auto rounds = *static_cast<const unsigned*>(parameters[1]);
    operation.run = [rounds] { std::this_thread::sleep_for(std::chrono::nanoseconds(rounds)); };
  } else if (!one_warp) {
    return kInvalidValue;
  } else if (function == FunctionOf(context, Kernel::kGate)) {
    GateKernel gate;
    std::memcpy(static_cast<void*>(&gate), parameters[0], sizeof(gate));
    operation.run = [&context, gate] { RunGate(context, gate); };
  } else if (function == FunctionOf(context, Kernel::kExchange)) {
    ExchangeKernel exchange;
    std::memcpy(static_cast<void*>(&exchange), parameters[0], sizeof(exchange));
    operation.run = [&context, exchange] { RunExchange(context, exchange); };
  } else {
    return kInvalidHandle;
  }
  const Mark mark = all.Enqueue(*stream, std::move(operation));
  lock.unlock();
  if (all.options.blocking) mark.Wait();
  return kCudaSuccess;
}

}  // namespace nccltune::soft
