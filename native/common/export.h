// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_COMMON_EXPORT_H_
#define NCCLTUNE_COMMON_EXPORT_H_

// Exports a symbol from a shared object. All other symbols are hidden. The file exports.map of each
// shared object lists the exported names again, for the linker.
#define NCCLTUNE_EXPORT __attribute__((visibility("default")))

#endif  // NCCLTUNE_COMMON_EXPORT_H_
