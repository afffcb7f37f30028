/* SPDX-License-Identifier: Apache-2.0

   Another interposer. It traces a call and then calls NCCL's function by its pnccl name, as
   NVIDIA's documentation describes. */
#include <stdio.h>

#include "fake_nccl.h"

int pncclSend(WORDS(WORD_TYPE));

int ncclSend(WORDS(WORD_PARAMETER));
int ncclSend(WORDS(WORD_PARAMETER)) {
  printf("traced\n");
  return pncclSend(WORDS(WORD_NAME));
}
