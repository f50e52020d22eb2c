// A ring of MPI ranks: each step passes a token around and sums what all know of it. Rank 0 prints one line a step. Plain MPI-1, for
// every MPI: ring STEPS MILLISECONDS
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { kWords = 20000 };  // 160 kB: beyond what goes eagerly

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int steps = argc > 1 ? atoi(argv[1]) : 50, pace = argc > 2 ? atoi(argv[2]) : 20;
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  static uint64_t mine[kWords], theirs[kWords];
  for (int i = 0; i < kWords; ++i) mine[i] = (uint64_t)(rank + 1) * 1000003u + (uint64_t)i;
  for (int step = 0; step < steps; ++step) {
    MPI_Request both[2];
    MPI_Irecv(theirs, kWords, MPI_UINT64_T, before, step, MPI_COMM_WORLD, &both[0]);
    MPI_Isend(mine, kWords, MPI_UINT64_T, next, step, MPI_COMM_WORLD, &both[1]);
    if (rank % 2) usleep((useconds_t)pace * 500);  // some have what they wait for, others do not
    MPI_Status ended[2];
    MPI_Waitall(2, both, ended);
    uint64_t sum = 0, all = 0;
    for (int i = 0; i < kWords; ++i) {
      mine[i] = theirs[i] * 6364136223846793005u + (uint64_t)step;
      sum = sum * 31 + mine[i];
    }
    MPI_Allreduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    int small = rank + step, seen = -1;
    MPI_Sendrecv(&small, 1, MPI_INT, before, 7, &seen, 1, MPI_INT, next, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (seen != next + step) {
      fprintf(stderr, "rank %d, step %d: %d instead of %d\n", rank, step, seen, next + step);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (rank == 0) printf("step %d: %016llx\n", step, (unsigned long long)all), fflush(stdout);
    usleep((useconds_t)pace * 500);
  }
  MPI_Finalize();
  return 0;
}
