/* SPDX-License-Identifier: Apache-2.0 */
/* Switches callgrind's counting from inside the program it watches. */
#include <valgrind/callgrind.h>

void count_from_here(void) {
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
}

void count_to_here(void) {
  CALLGRIND_DUMP_STATS;
  CALLGRIND_STOP_INSTRUMENTATION;
}
