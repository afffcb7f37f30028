// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/split_children.h"

#include <iterator>

namespace nccltune::sendrecv {

nccl::Comm* SplitChildren::AddChild(std::shared_ptr<Communicator> made, nccl::Comm parent,
                                    nccl::Comm* wanted) {
  // Without the library, NCCL sets the program's handle to null until the child is complete. So set
  // it to null here.
  *wanted = nullptr;
  const std::scoped_lock lock(mutex_);
  children_.push_back(
      {.made = std::move(made), .parent = parent, .wanted = wanted, .handle = nullptr});
  ++count_;
  return &children_.back().handle;
}

void SplitChildren::BeginMade(nccl::Comm failed) {
  const std::scoped_lock lock(mutex_);
  for (auto each = children_.begin(); each != children_.end();) {
    // Destroy a child that NCCL could not create: peers wait for its rank as long as it exists.
    if (each->parent == failed) each->made = nullptr;
    nccl::Comm handle = each->Handle();
    if (handle == nullptr) {
      ++each;
      continue;
    }
    if (each->made != nullptr) begin_(each->made, handle);
    each->Publish();
    each = children_.erase(each);
    --count_;
  }
}

SplitChildren::KeptChildren SplitChildren::End(nccl::Comm parent) {
  const std::scoped_lock lock(mutex_);
  std::list<Child> ending;
  for (auto each = children_.begin(); each != children_.end();) {
    const auto next = std::next(each);
    if (each->parent == parent) {
      each->made = nullptr;
      ending.splice(ending.end(), children_, each);
      --count_;
    }
    each = next;
  }
  return KeptChildren(std::move(ending));
}

SplitChildren::KeptChildren::~KeptChildren() {
  for (const Child& each : children_) {
    if (each.Handle() != nullptr) each.Publish();
  }
}

}  // namespace nccltune::sendrecv
