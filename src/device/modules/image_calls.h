// Which kernels of an image may reach a function that the driver provides to device code (malloc,
// vprintf): by calls, and by whatever mentions a function that calls it, as tables of virtual
// functions do. Rather one too many than one too few.
//
// Threads: pure functions.
// Owner: the caller's bytes. Errors: what cannot be read may reach the function.
#pragma once

#include "device/modules/image.h"

namespace gpuckpt::device {

class NameSet {
 public:
  NameSet() = default;
  ~NameSet();
  NameSet(const NameSet&) = delete;
  NameSet& operator=(const NameSet&) = delete;
  bool has(const char* name, size_t length) const;
  bool has(const char* name) const { return has(name, __builtin_strlen(name)); }
  bool add(const char* name, size_t length);  // true: it is new
  size_t size() const { return names_.size(); }

 private:
  Vector<char*> names_;
};

// Adds to `names`, which holds what is looked for, everything in the image that leads there. False:
// some part could not be read.
bool callers_in(const ImageView& image, NameSet* names);

}  // namespace gpuckpt::device
