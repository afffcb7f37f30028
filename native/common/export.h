// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exports a symbol from a shared object. All other symbols are hidden. The file exports.map of each
// shared object lists the exported names again, for the linker.
#define NCCLTUNE_EXPORT __attribute__((visibility("default")))
