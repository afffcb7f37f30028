// SPDX-License-Identifier: Apache-2.0
// Stream capture, and graphs. A graph repeats the captured calls in their order, in as many streams
// as were captured.
#include "sendrecv/soft_kernels.h"
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

// A GPU as wait kernels see it. An address that it cannot reach is an error of the context.
struct KernelView {
  Context* context;

  template <typename Word, typename Use>
  Word With(const void* address, const Use& use) const {
    std::string why;
    const auto at = reinterpret_cast<CUdeviceptr>(address);
    const std::vector<Piece> pieces =
        Memory::Get().Reach(context->gpu, at, sizeof(Word), true, why);
    if (pieces.size() == 1) return use(std::atomic_ref(*reinterpret_cast<Word*>(pieces[0].data)));
    context->Fail(kIllegalAddress, "a wait kernel: " + why);
    return 0;
  }
  uint32_t Load(const Flag* flag) const {
    return With<uint32_t>(flag, [](auto word) { return word.load(std::memory_order_acquire); });
  }
  void Store(const Flag* flag, uint32_t value) const {
    With<uint32_t>(flag, [value](auto word) {
      word.store(value, std::memory_order_release);
      return value;
    });
  }
  uint64_t Started(uint64_t address) const {
    return With<uint64_t>(reinterpret_cast<const void*>(address),
                          [](auto word) { return word.load(std::memory_order_acquire); });
  }
  void RaiseStarted(uint64_t address, uint64_t start) const {
    With<uint64_t>(reinterpret_cast<const void*>(address), [start](auto word) {
      uint64_t before = word.load();
      while (before < start && !word.compare_exchange_weak(before, start)) {
      }
      return start;
    });
  }
  void CopyByKernel(CUdeviceptr to, CUdeviceptr from, size_t bytes) const {
    std::vector<uint8_t> copied(bytes);
    if (softCudaRead(context->gpu, from, copied.data(), bytes)) {
      softCudaWrite(context->gpu, to, copied.data(), bytes);
    }
  }
};

// Returns what looks at a kernel's flags until it ends or the context has an error. A graph may run
// it several times.
template <typename Soft>
std::function<void()> Running(const Context& context, const Soft& kernel) {
  return [&context, kernel] {
    Soft own = kernel;
    if constexpr (requires { own.Begin(); }) own.Begin();
    for (Patience patience; context.error == 0 && !own.Ends(Now());) patience.Sleep();
  };
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
    const auto& gate = *static_cast<const GateKernel*>(parameters[0]);
    operation.run = Running(context, sendrecv::SoftGate(KernelView{&context}, gate));
  } else if (function == FunctionOf(context, Kernel::kExchange)) {
    const auto& exchange = *static_cast<const ExchangeKernel*>(parameters[0]);
    operation.run = Running(context, sendrecv::SoftExchange(KernelView{&context}, exchange));
  } else {
    return kInvalidHandle;
  }
  const Mark mark = all.Enqueue(*stream, std::move(operation));
  lock.unlock();
  if (all.options.blocking) mark.Wait();
  return kCudaSuccess;
}

}  // namespace nccltune::soft
