// SPDX-License-Identifier: Apache-2.0
// An NCCL call that enqueues work and returns nothing through its arguments: a collective or a
// one-sided operation. The library can hold such a call and make it at the end of its group.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "sendrecv/hooks/nccl_api.h"

namespace nccltune::sendrecv {

class EnqueueCall {
 public:
  EnqueueCall() = default;
  virtual ~EnqueueCall() = default;
  EnqueueCall(const EnqueueCall&) = delete;
  EnqueueCall& operator=(const EnqueueCall&) = delete;

  virtual nccl::Result operator()() const = 0;
  // Returns a copy of the call with its own copy of the host memory that its pointers refer to.
  // Returns null if that memory cannot be copied.
  virtual std::unique_ptr<EnqueueCall> Copy() const = 0;

  // The arguments that NCCL checks at the call. `rank` is the root or the peer. An argument that
  // the function does not have is empty.
  nccl::Comm comm = nullptr;
  nccl::Stream stream = nullptr;
  std::optional<nccl::DataType> type;
  std::optional<nccl::RedOp> op;
  std::optional<int> rank;
};

template <typename... Arguments>
class TypedEnqueueCall final : public EnqueueCall {
 public:
  using Function = nccl::Result (*)(Arguments...);

  explicit TypedEnqueueCall(Function function, Arguments... arguments)
      : function_(function), arguments_(arguments...) {
    (ReadArgument(arguments), ...);
  }

  nccl::Result operator()() const override { return std::apply(function_, arguments_); }

  std::unique_ptr<EnqueueCall> Copy() const override {
    auto copy = std::apply(
        [&](Arguments... arguments) {
          return std::make_unique<TypedEnqueueCall>(function_, arguments...);
        },
        arguments_);
    const bool owns = std::apply([&](auto&... each) { return (copy->CopyPointee(&each) && ...); },
                                 copy->arguments_);
    return owns ? std::move(copy) : nullptr;
  }

 private:
  static constexpr size_t kMaxConfigBytes = 4096;
  static constexpr int kMaxDescriptors = 1 << 20;

  void ReadArgument(nccl::Comm value) { comm = value; }
  void ReadArgument(nccl::DataType value) { type = value; }
  void ReadArgument(nccl::RedOp value) { op = value; }
  void ReadArgument(nccl::RankArgument value) { rank = value; }
  // In every signature the stream follows the communicator. Pointers before the communicator are
  // buffers.
  void ReadArgument(void* value) {
    if (comm != nullptr) stream = value;
  }
  template <typename Other>
  void ReadArgument(Other /*value*/) {}

  template <typename Other>
  bool CopyPointee(Other* /*argument*/) {
    return true;
  }

  void* Store(const void* data, size_t bytes) {
    stored_.push_back(std::make_unique<std::byte[]>(bytes));
    std::memcpy(stored_.back().get(), data, bytes);
    return stored_.back().get();
  }

  // Copies the struct. NCCL reads the struct only during the call, so the application may free it
  // afterwards. Returns false for a struct of unknown layout.
  bool CopyPointee(const nccl::CollConfig** config) {
    const nccl::CollConfig* const given = *config;
    if (given == nullptr) return true;
    if (given->magic != nccl::kMagic || given->size < sizeof(nccl::CollConfig) ||
        given->size > kMaxConfigBytes || given->extensions != nullptr) {
      return false;
    }
    auto* const kept = static_cast<nccl::CollConfig*>(Store(given, given->size));
    if (given->algorithms != nullptr) {
      const void* const text = Store(given->algorithms, std::strlen(given->algorithms) + 1);
      kept->algorithms = static_cast<const char*>(text);
    }
    *config = kept;
    return true;
  }

  // The first argument of the NCCL call is the number of descriptors.
  bool CopyPointee(nccl::WaitSignalDesc** descriptors) {
    const int count = std::get<0>(std::tuple<Arguments...>(arguments_));
    if (*descriptors == nullptr || count <= 0) return true;
    if (count > kMaxDescriptors) return false;
    const size_t bytes = static_cast<size_t>(count) * sizeof(nccl::WaitSignalDesc);
    *descriptors = static_cast<nccl::WaitSignalDesc*>(Store(*descriptors, bytes));
    return true;
  }

  const Function function_;
  std::tuple<Arguments...> arguments_;
  std::vector<std::unique_ptr<std::byte[]>> stored_;
};

}  // namespace nccltune::sendrecv
