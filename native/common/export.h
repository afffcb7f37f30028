// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_COMMON_EXPORT_H_
#define NCCLTUNE_COMMON_EXPORT_H_

// Everything else is built hidden; exports.map lists the same names again for the linker.
#define NCCLTUNE_EXPORT __attribute__((visibility("default")))

#endif  // NCCLTUNE_COMMON_EXPORT_H_
