// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/support.h"
#include "standard.h"

namespace nccltune::bench {
namespace {

// Once loaded by path, this library is also found under the name libcuda.so.1.
void* Loaded(const char* path) {
  void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) ADD_FAILURE() << dlerror();
  return handle;
}

long Ask(void* library, const char* function) {
  return reinterpret_cast<long (*)()>(dlsym(library, function))();
}

void* Nccl() {
  static void* const nccl = Loaded(FAKE_NCCL);
  return nccl;
}

}  // namespace

long FakeGpus::Live() {
  static void* const cuda = Loaded(SOFT_CUDA);
  return Ask(cuda, "softCudaLive") + Ask(Nccl(), "softNcclLive");
}

FakeGpus::FakeGpus()
    : options_{.nccl_path = FAKE_NCCL, .tuner_path = TUNER_PLUGIN}, live_before_(Live()) {
  // Environment variables set by the backend must not affect the next test.
  environment_.Set("NCCL_TUNER_PLUGIN", "");
  environment_.Set("NCCL_PROFILER_PLUGIN", "");
}

FakeGpus::~FakeGpus() {
  backend_.reset();
  EXPECT_EQ(Live(), live_before_) << "not everything was given back";
}

std::optional<OpenError> FakeGpus::TryOpen(int gpus, BackendInfo* info) {
  reinterpret_cast<void (*)()>(dlsym(Nccl(), "fake_nccl_read_version"))();
  backend_ = MakeNcclBackend(options_);
  World world;
  world.gpus_per_process = gpus;
  return backend_->Open(world, &exchange_, info);
}

void FakeGpus::Open(int gpus) {
  const std::optional<OpenError> error = TryOpen(gpus, &info_);
  if (error) throw std::runtime_error(error->text);
}

void FakeGpus::Close() {
  backend_->Close();
  EXPECT_EQ(Live(), live_before_) << "not everything was given back";
}

Step FakeGpus::StepOf(Collective collective, size_t bytes) {
  static uint64_t sequence = 0;
  Step step;
  step.sequence = ++sequence;
  step.collective = collective;
  step.bytes = bytes;
  step.warmup = 1;
  step.iterations = 3;
  step.timeout_s = 30;
  return step;
}

}  // namespace nccltune::bench
