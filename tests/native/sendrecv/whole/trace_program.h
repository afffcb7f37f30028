// SPDX-License-Identifier: Apache-2.0
//
// Programs of two ranks that trace every NCCL call: its result, and the calls that NCCL itself got
// meanwhile.
#ifndef NCCLTUNE_TESTS_SENDRECV_WHOLE_TRACE_PROGRAM_H_
#define NCCLTUNE_TESTS_SENDRECV_WHOLE_TRACE_PROGRAM_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sendrecv/whole/case.h"

namespace nccltune::sendrecv {

// One of the two ranks. Both run the same programs.
class TracedRank {
 public:
  TracedRank(soft::Ranks* two, int rank);
  ~TracedRank();
  TracedRank(const TracedRank&) = delete;
  TracedRank& operator=(const TracedRank&) = delete;

  // Runs a program. "(" and ")" start and end a group; "s" and "L" are a small and a large exchange
  // between the ranks; all other words are calls by the names below.
  void Run(const std::string& title, const std::vector<std::string>& words);

  // Returns the calls that a program can make: each NCCL function by its name, and calls that NCCL
  // must refuse, such as "ncclSend!peer".
  static std::vector<std::string> Calls();

  // Returns the trace so far.
  const std::string& text() const { return text_; }

 private:
  using Call = std::function<void(TracedRank&)>;
  struct Table;
  static const std::map<std::string, Call>& AllCalls();

  // Makes a call and traces it with its result.
  template <typename Result, typename... Parameters, typename... Arguments>
  Result Make(const char* name, Result (*function)(Parameters...), Arguments... arguments);
  void Exchange(bool large);
  void Finish();
  soft::ncclComm_t Scratch();
  void EndScratch(const char* name);
  soft::ncclUniqueId NewId();

  soft::Ranks& two_;
  const int rank_;
  soft::ncclComm_t comm_ = nullptr;
  soft::CUstream stream_ = nullptr;
  soft::CUdeviceptr memory_ = 0;
  std::string text_;
  int program_ = 0;
  int depth_ = 0;
  size_t used_ = 0;  // memory that the present program has used
  std::vector<soft::ncclComm_t> scratch_;
  size_t scratch_used_ = 0;
  std::vector<soft::ncclComm_t*> made_;  // created by the present program
  soft::ncclRedOp_t op_ = 0;
  soft::ncclCollConfig_t config_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_WHOLE_TRACE_PROGRAM_H_
