// Whether this machine can hold the snapshot; lists all obstacles at once.
//
// Owner: none. Threads: one. Errors: one sentence for each obstacle.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "restore/image/image.h"
#include "restore/image/tree.h"
#include "restore/options.h"

namespace gpuckpt::restore {

std::vector<std::string> check_machine(const Image&);
// Whether the process ran under more system call filters than this one does. Empty: no.
std::string check_filters(const Image&);
// Files whose contents come from the snapshot, because the job maps them shared and writable: their
// present contents do not matter.
using Paths = std::set<std::string>;
Paths restored_files(const Tree&);
// Files that a process of the job has open for writing. What was written behind their ends since
// the snapshot is set aside (written_files.h), also when other processes only read them.
Paths written_files(const Tree&);
// `stored`: files that are restored as a whole (stored_file.h), and need not exist.
std::vector<std::string> check_files(const Image&, const Paths& restored, const Paths& written,
                                     const Paths& stored, const Options&);
// descriptor_checks.cc: whether each descriptor can be made again here. `several`: other processes
// of the job may have the other ends.
std::vector<std::string> check_descriptors(const Image&, bool several, const Paths& stored);
// Whether a restore may open as many descriptors as it needs. Empty: yes.
std::string check_descriptor_limit(const Tree&, const Options&);
// unread_datagrams.cc: datagrams from sockets outside of the program which still exist.
std::vector<std::string> check_unread_datagrams(const Tree&);
// The value to which root may raise RLIMIT_NOFILE, as a restore does; 0: it cannot be raised.
uint64_t raised_descriptor_limit();
// Whether the file of that name is the one that was mapped, as far as its size and time show.
bool is_unchanged(const process::MappedFile&, const std::string& path);

}  // namespace gpuckpt::restore
