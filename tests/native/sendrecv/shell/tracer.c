/* SPDX-License-Identifier: Apache-2.0

   Somebody else's library before NCCL: it does its part and calls NCCL's second name, as NVIDIA's
   documentation has it. */
#include <stdio.h>

#include "fake_nccl.h"

int pncclSend(WORDS(WORD_TYPE));

int ncclSend(WORDS(WORD_PARAMETER));
int ncclSend(WORDS(WORD_PARAMETER)) {
  printf("traced\n");
  return pncclSend(WORDS(WORD_NAME));
}
