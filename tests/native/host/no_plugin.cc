// SPDX-License-Identifier: Apache-2.0
// A shared object that is not a tuner plugin.
extern "C" __attribute__((visibility("default"))) int not_a_tuner() { return 0; }
