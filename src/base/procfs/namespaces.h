// Where a process lives: its root folder and its namespaces. A restore makes only pid and time
// namespaces: the program comes back in the other namespaces of the process that restores it.
//
// Owner: none, they are values. Threads: any. Errors: zeros for parts that cannot be read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

inline constexpr size_t kPlaceParts = 8;
inline constexpr size_t kUserNamespace = 1;
inline constexpr uint32_t kPidNamespace = 1u << (kPlaceParts - 1);  // a restore may make one

struct Place {
  uint64_t part[kPlaceParts][2];  // device and inode; zeros: it cannot be told
};

// `process`: a number, "self" or "thread-self".
Place place_of(const char* process);

// One bit for each part that is known in both and differs.
uint32_t difference(const Place& a, const Place& b);
// "user namespace", "user namespace and mount namespace", ...
void name_parts(uint32_t parts, char* to, size_t room);

// As text without spaces, for an environment variable.
inline constexpr size_t kPlaceText = kPlaceParts * 34 + 1;
void write_place(const Place&, char* to, size_t room);
bool read_place(const char* text, Place*);

}  // namespace gpuckpt
