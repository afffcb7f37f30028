// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/backend.h"
#include "standard.h"
#include "testing.h"

namespace nccltune::bench {

// The exchange of a run with a single process.
class LoneExchange : public ProcessExchange {
 public:
  bool AllGather(std::string_view mine, std::vector<std::string>* all) override {
    if (ending) return false;
    ++gathers;
    all->assign(1, std::string(mine));
    return true;
  }
  bool ending = false;
  int gathers = 0;
};

// Once loaded by path, this library is also found under the name libcuda.so.1.
inline void* Loaded(const char* path) {
  void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) ADD_FAILURE() << dlerror();
  return handle;
}

inline long Ask(void* library, const char* function) {
  return reinterpret_cast<long (*)()>(dlsym(library, function))();
}

inline void* Nccl() {
  static void* const nccl = Loaded(FAKE_NCCL);
  return nccl;
}

// Runs the real backend in one process with several fake GPUs.
class FakeGpus : public ::testing::Test {
 protected:
  FakeGpus() : options_{.nccl_path = FAKE_NCCL, .tuner_path = TUNER_PLUGIN}, live_before_(Live()) {
    // Environment variables set by the backend must not affect the next test.
    environment_.Set("NCCL_TUNER_PLUGIN", "");
    environment_.Set("NCCL_PROFILER_PLUGIN", "");
  }
  ~FakeGpus() override {
    backend_.reset();
    EXPECT_EQ(Live(), live_before_) << "not everything was given back";
  }

  std::optional<OpenError> TryOpen(int gpus, BackendInfo* info) {
    reinterpret_cast<void (*)()>(dlsym(Nccl(), "fake_nccl_read_version"))();
    backend_ = MakeNcclBackend(options_);
    World world;
    world.gpus_per_process = gpus;
    return backend_->Open(world, &exchange_, info);
  }
  // Throws if the backend cannot be opened, which fails the test.
  void Open(int gpus = 3) {
    const std::optional<OpenError> error = TryOpen(gpus, &info_);
    if (error) throw std::runtime_error(error->text);
  }
  // Closes the backend and checks that it has released everything.
  void Close() {
    backend_->Close();
    EXPECT_EQ(Live(), live_before_) << "not everything was given back";
  }
  // Number of objects of the fake libraries that were not released since the test began.
  static long Live() {
    static void* const cuda = Loaded(SOFT_CUDA);
    return Ask(cuda, "softCudaLive") + Ask(Nccl(), "softNcclLive");
  }

  static Step StepOf(Collective collective, size_t bytes) {
    static uint64_t sequence = 0;
    Step step;
    step.sequence = ++sequence;
    step.collective = collective;
    step.bytes = bytes;
    step.warmup = 1;
    step.iterations = 3;
    step.timeout_s = 600;
    return step;
  }

  ScopedVariables environment_;
  LoneExchange exchange_;
  NcclOptions options_;
  BackendInfo info_;
  std::unique_ptr<Backend> backend_;

 private:
  const long live_before_;
};

}  // namespace nccltune::bench
