// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/parts.h"

#include <iterator>

namespace nccltune::sendrecv {

nccl::Comm* Parts::Expect(std::shared_ptr<Communicator> made, nccl::Comm parent,
                          nccl::Comm* wanted) {
  // As NCCL does until the part is complete.
  *wanted = nullptr;
  const std::scoped_lock lock(mutex_);
  parts_.push_back(
      {.made = std::move(made), .parent = parent, .wanted = wanted, .handle = nullptr});
  ++count_;
  return &parts_.back().handle;
}

void Parts::Look(nccl::Comm failed) {
  const std::scoped_lock lock(mutex_);
  for (auto each = parts_.begin(); each != parts_.end();) {
    // Peers wait for its rank as long as it is there.
    if (each->parent == failed) each->made = nullptr;
    nccl::Comm handle = each->Handle();
    if (handle == nullptr) {
      ++each;
      continue;
    }
    if (each->made != nullptr) begin_(each->made, handle);
    each->Tell();
    each = parts_.erase(each);
    --count_;
  }
}

Parts::Ending Parts::End(nccl::Comm parent) {
  const std::scoped_lock lock(mutex_);
  std::list<Part> ending;
  for (auto each = parts_.begin(); each != parts_.end();) {
    const auto next = std::next(each);
    if (each->parent == parent) {
      each->made = nullptr;
      ending.splice(ending.end(), parts_, each);
      --count_;
    }
    each = next;
  }
  return Ending(std::move(ending));
}

Parts::Ending::~Ending() {
  for (const Part& each : parts_) {
    if (each.Handle() != nullptr) each.Tell();
  }
}

}  // namespace nccltune::sendrecv
