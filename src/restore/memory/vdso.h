// A program of which the snapshot was taken under another kernel. It knows where the functions of
// that kernel's vdso were (glibc keeps pointers to them, and the auxiliary vector has the address),
// so the old vdso comes back as ordinary memory, in which each function is a jump to this kernel's
// of the same name. This kernel's own vdso lies elsewhere then.
//
// Owner: none. Threads: pure functions over this process's vdso. Errors: a sentence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "restore/image/image.h"

namespace gpuckpt::restore {

// Whether this kernel's vdso is the snapshot's, byte for byte.
bool same_vdso(const Image&);
// Whether the program still has its vdso mapped.
bool has_vdso(const Image&);
// Whether the program ran under this very boot of the kernel. Then a vdso that differs was changed
// by the program.
bool is_of_this_boot(const Image&);

// The reason why the program cannot run with this kernel's vdso; empty: it can.
std::string vdso_mismatch(const Image&);

// The bytes that replace the old vdso, when this kernel's begins at `vdso_at`. Only without a
// mismatch.
std::vector<uint8_t> vdso_of_jumps(const Image&, uint64_t vdso_at);

}  // namespace gpuckpt::restore
