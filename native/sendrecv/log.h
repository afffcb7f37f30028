// SPDX-License-Identifier: Apache-2.0
// Log lines on standard error, because this library has no access to NCCL's logger. NCCL's own
// settings, which decide the log's level and more, from the places where NCCL reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace nccltune::sendrecv {

// Logs a warning. Logs each text only once in a process.
void Warn(const std::string& text);
// Logs a message at level INFO, only with NCCL_DEBUG=INFO or TRACE.
void Info(const std::string& text);

// Returns the value of one of NCCL's variables, or nothing if it is not set. The first of these
// places counts: the environment; the file that NCCL_CONF_FILE names, or else ~/.nccl.conf;
// /etc/nccl.conf (misc/param.cc, NCCL 2.23 to 2.32). NCCL copies its files to the environment when
// it is first used, so this library may ask earlier. The files are read once.
std::optional<std::string> NcclSetting(const char* name);

// Returns the value as NCCL reads a number: 0 if there is none, or if it does not begin with one.
int64_t NcclNumber(const char* name);

}  // namespace nccltune::sendrecv
