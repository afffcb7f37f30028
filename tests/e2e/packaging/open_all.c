/* SPDX-License-Identifier: Apache-2.0 */
/* Opens each library that it is given, with all of its symbols, as a program in C does. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (dlopen(argv[i], RTLD_NOW | RTLD_LOCAL) == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    puts(argv[i]);
  }
  return 0;
}
