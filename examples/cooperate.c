/* A program that helps: it says when a snapshot may be taken, what need not be saved, and reopens
 * what a snapshot cannot bring back. It runs the same without gpuckpt.
 *
 *   cc cooperate.c $(pkg-config --cflags --libs gpuckpt) -o cooperate
 *   gpuckpt run --store ckpt -- ./cooperate
 *   gpuckpt restore ckpt@half-way
 */
#include <gpuckpt/gpuckpt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kSteps = 20, kScratch = 64 << 20 };

static void connect_again(void* what) {
  printf("generation %u: connecting to %s again\n", gpuckpt_generation(), (const char*)what);
  fflush(stdout);
}

int main(void) {
  char* scratch = malloc(kScratch); /* filled anew in every step: not worth a byte in the store */
  long first = 0, second = 0;
  gpuckpt_exclude(scratch, kScratch);
  gpuckpt_on_restore(connect_again, "the tracking server");
  for (int step = 1; step <= kSteps; ++step) {
    memset(scratch, step, kScratch);
    gpuckpt_enter("both sums"); /* no snapshot sees one of them without the other */
    first += scratch[step];
    second += scratch[step];
    gpuckpt_leave();
    if (step == kSteps / 2) {
      gpuckpt_result r = {.size = sizeof(r)};
      if (gpuckpt_checkpoint_now("half-way", &r) == GPUCKPT_OK)
        printf(r.restored ? "restored from %s\n" : "snapshot %s\n", r.id);
      else
        printf("no snapshot: %s\n", r.text);
    }
    printf("step %d: %ld %ld\n", step, first, second);
    fflush(stdout);
    usleep(50000);
  }
  gpuckpt_include(scratch, kScratch); /* before it is freed */
  free(scratch);
  return 0;
}
