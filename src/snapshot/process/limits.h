// Resource limits of the application, which hold for what a snapshot needs as well.
//
// Owner: an object's lifetime. Threads: the coordinator. Errors: none; a limit that cannot be
// raised stays.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

// "WHAT: why", with the limit that made a call fail (-errno), where a limit did.
void explain_failure(char* to, size_t room, const char* what, long error);

// As long as it lives, some descriptors more than the program may open: for /proc, which is looked
// at while all threads are parked.
class MoreDescriptors {
 public:
  MoreDescriptors();
  ~MoreDescriptors();
  MoreDescriptors(const MoreDescriptors&) = delete;
  MoreDescriptors& operator=(const MoreDescriptors&) = delete;

 private:
  unsigned long before_[2];
  bool raised_;
};

// The size of a memfd, for which the application's limit on files holds as well. On the I/O thread:
// where that is in the way, a process of our own with a higher limit does it. -errno.
long set_memory_size(int memfd, uint64_t bytes);

// In a process of the library's own, which has inherited the limits: raises them as far as it may.
void raise_own_limits();

}  // namespace gpuckpt
