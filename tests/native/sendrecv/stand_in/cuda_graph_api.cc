// SPDX-License-Identifier: Apache-2.0
//
// Stream capture, and graphs. A graph repeats the captured calls in their order, in as many streams
// as were captured.
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "sendrecv/stand_in/cuda_machine.h"

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

}  // namespace

CUresult cuStreamIsCapturing(CUstream handle, int* status) {
  SOFT_ENTER();
  Machine& all = Machine::Get();
  const std::scoped_lock lock(all.mutex);
  const std::shared_ptr<SoftStream> stream = all.Find(handle);
  if (stream == nullptr) return kInvalidHandle;
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
  Machine& all = Machine::Get();
  const std::scoped_lock lock(all.mutex);
  const std::shared_ptr<SoftStream> stream = all.Find(handle);
  if (stream == nullptr) return kInvalidHandle;
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
  Machine& all = Machine::Get();
  const std::scoped_lock lock(all.mutex);
  const std::shared_ptr<SoftStream> stream = all.Find(handle);
  if (stream == nullptr) return kInvalidHandle;
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

}  // namespace nccltune::soft
