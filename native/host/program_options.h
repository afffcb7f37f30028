// SPDX-License-Identifier: Apache-2.0
// The command line of nccltune-host.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "host/tuner_host.h"

namespace nccltune::host {

struct ProgramOptions {
  HostOptions host;
  bool list_symbols = false;
  bool verbose = false;
  bool help = false;
};

// Parses the command line. Returns false with *error if an argument is not valid; *options is then
// undefined.
bool ParseProgramOptions(const std::vector<std::string_view>& arguments, ProgramOptions* options,
                         std::string* error);

std::string_view HelpText();

}  // namespace nccltune::host
