// SPDX-License-Identifier: Apache-2.0
// libcuda.so.1 of a driver that lacks nearly everything.
extern "C" __attribute__((visibility("default"))) int cuInit(unsigned flags);
int cuInit(unsigned /*flags*/) { return 100; }
