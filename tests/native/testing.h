// SPDX-License-Identifier: Apache-2.0
// What every test includes; it is precompiled once for all test programs.
#ifndef NCCLTUNE_TESTS_TESTING_H_
#define NCCLTUNE_TESTS_TESTING_H_

#include <gtest/gtest.h>

#include "standard.h"

#endif  // NCCLTUNE_TESTS_TESTING_H_
