// What a system call filter (a seccomp program in classic BPF) answers to the calls that snapshots
// make: the library's own, those of the writer, which inherits the filter, and those of a restored
// process from the moment on in which it has its filters again. All ways through the program are
// followed; what is not known of a call's arguments may be anything.
//
// Owner: none. Threads: any; nothing is allocated. Errors: a program that cannot be followed counts
// as one that ends us.
#pragma once

#include <cstddef>

struct sock_filter;

namespace gpuckpt {

enum class FilterAnswer {
  kLets,   // all calls that we make
  kFails,  // answers one of them with an error
  kEnds,   // one of them could end the program, or be answered by a tracer or another process
};

struct FilterVerdict {
  FilterAnswer worst;
  int call;  // the number of a system call that is answered so
};

FilterVerdict judge_filter(const sock_filter* program, size_t length);

}  // namespace gpuckpt
