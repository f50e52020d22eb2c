// The namespaces of a process; its root folder counts as one of them, because it decides as well
// which files a path names. A restore makes only pid and time namespaces: the program comes back in
// the other namespaces of the process that restores it.
//
// Owner: none, they are values. Threads: any. Errors: zeros for parts that cannot be read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

inline constexpr size_t kNamespaceParts = 8;
inline constexpr size_t kUserNamespace = 1;
inline constexpr uint32_t kPidNamespace = 1u << (kNamespaceParts - 1);  // a restore may make one

struct Namespaces {
  uint64_t part[kNamespaceParts][2];  // device and inode; zeros: it cannot be told
};

// `process`: a number, "self" or "thread-self".
Namespaces namespaces_of(const char* process);

// Whether the process is where it was, for less than namespaces_of() takes. False where it cannot
// be told.
bool still_in(const Namespaces&, const char* process);

// One bit for each part that is known in both and differs.
uint32_t difference(const Namespaces& a, const Namespaces& b);
// "user namespace", "user namespace and mount namespace", ...
void name_namespaces(uint32_t parts, char* to, size_t room);

// How far the clocks that count from the machine's start are ahead of the machine's own in this
// process's time namespace, in nanoseconds. Zeros where the kernel has no time namespaces.
struct ClockOffsets {
  int64_t monotonic, boottime;
};
ClockOffsets clock_offsets();
// To be called before this process makes a time namespace for its children: from then on the kernel
// tells of theirs.
void keep_clock_offsets();

// As text without spaces, for an environment variable.
inline constexpr size_t kNamespacesText = kNamespaceParts * 34 + 1;
void write_namespaces(const Namespaces&, char* to, size_t room);
bool read_namespaces(const char* text, Namespaces*);

}  // namespace gpuckpt
