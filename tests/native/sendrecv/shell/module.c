/* SPDX-License-Identifier: Apache-2.0

   A module that needs NCCL. Like a Python module it is loaded in a scope of its own, with its NCCL.
 */
#include "fake_nccl.h"

int ncclSend(WORDS(WORD_TYPE));

uint64_t ModuleSends(WORDS(WORD_PARAMETER));
uint64_t ModuleSends(WORDS(WORD_PARAMETER)) { return (uint64_t)ncclSend(WORDS(WORD_NAME)); }
