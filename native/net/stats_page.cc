// SPDX-License-Identifier: Apache-2.0
#include "net/stats_page.h"

#include <unistd.h>

#include <cstring>
#include <new>

namespace nccltune::net {
namespace {

constexpr size_t kFlowsAt = sizeof(ConnectionBlock);
static_assert(kFlowsAt % alignof(FlowBlock) == 0);

}  // namespace

StatsPage::StatsPage(size_t flows) : memory_(kStatsName, kFlowsAt + flows * sizeof(FlowBlock)) {
  connection_ = new (memory_.data()) ConnectionBlock();
  auto* const first = reinterpret_cast<FlowBlock*>(memory_.data() + kFlowsAt);
  for (size_t i = 0; i < flows; ++i) new (first + i) FlowBlock();
  flows_ = {first, flows};
  connection_->page_bytes = memory_.bytes();
  connection_->connection_bytes = kFlowsAt;
  connection_->flow_bytes = sizeof(FlowBlock);
  connection_->flows = flows;
  connection_->pid = static_cast<uint64_t>(getpid());
}

void StatsPage::Publish() {
  uint64_t magic = 0;
  std::memcpy(&magic, kStatsMagic.data(), sizeof(magic));
  connection_->magic = magic;
}

}  // namespace nccltune::net
