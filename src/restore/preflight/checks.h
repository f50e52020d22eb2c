// Can this machine hold the snapshot? All reasons against it at once.
//
// Owner: none. Threads: one. Errors: one sentence for each obstacle.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "restore/driver/driver.h"
#include "restore/driver/tree.h"
#include "restore/preflight/image.h"

namespace gpuckpt::restore {

std::vector<std::string> check_machine(const Image&);
// Files whose contents come from the snapshot, because the job maps them shared and writable: what
// they hold now does not matter.
using Paths = std::set<std::string>;
Paths restored_files(const Tree&);
// Files that a process of the job has open for writing: what is behind their ends at the snapshot
// is set aside (written_files.h), also when others only read them.
Paths written_files(const Tree&);
// `stored`: files that are put back as a whole (stored_files.h), and need not be there.
std::vector<std::string> check_files(const Image&, const Paths& restored, const Paths& written,
                                     const Paths& stored, const Options&);
// descriptor_checks.cc: can each be made again here? `several`: other processes of the job may have
// the other ends.
std::vector<std::string> check_descriptors(const Image&, bool several, const Paths& stored);
// May a restore have as many descriptors open as it needs? Empty: yes.
std::string check_descriptor_limit(const Tree&, const Options&);
// unread_datagrams.cc: those that come from sockets which are not the program's, and are there
// still.
std::vector<std::string> check_unread_datagrams(const Tree&);
// What root may raise RLIMIT_NOFILE to, which a restore does; 0: the limit is what it is.
uint64_t raised_descriptor_limit();
// Is the file of that name the one that was mapped, as far as its size and time say?
bool is_unchanged(const process::MappedFile&, const std::string& path);

}  // namespace gpuckpt::restore
