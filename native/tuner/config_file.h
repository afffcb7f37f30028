// SPDX-License-Identifier: Apache-2.0
//
// The configuration file as this process uses it.
#ifndef NCCLTUNE_TUNER_CONFIG_FILE_H_
#define NCCLTUNE_TUNER_CONFIG_FILE_H_

#include <memory>
#include <string>

#include "tuner/config.h"

namespace nccltune::tuner {

struct LoadedConfig {
  std::string path;
  std::string error;  // why the file cannot be read; empty if it was read
  bool empty = false;
  TunerConfig config;
  // The expected content hash (NCCLTUNE_CONFIG_HASH) is set, and the file has another content.
  bool has_other_content = false;
};

// Returns the file of this path. It is read once in a process: communicators that read it at
// different times must come to the same decisions. A file that looks as if it was being written is
// read again for some time. `expected_hash` is NCCLTUNE_CONFIG_HASH; empty if it is not set. Throws
// only std::bad_alloc.
std::shared_ptr<const LoadedConfig> LoadConfig(const std::string& path,
                                               const std::string& expected_hash);

// Makes the next call read the file again. For tests.
void ForgetConfig();

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_CONFIG_FILE_H_
