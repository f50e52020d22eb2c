// Files, folders and devices that had lost their names: they are made again at their old paths,
// opened, and removed again.
//
// Owner: NamesForNow has the names, and removes them. Threads: one in each process; processes of a
// job lock the folder. Errors: a Status, or an empty name with errno.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "restore/image/image.h"
#include "restore/memory/memory_loader.h"

namespace gpuckpt::restore {

// Names that exist for a moment. The destructor removes them, and the folders that were made above
// them.
class NamesForNow {
 public:
  NamesForNow() = default;
  ~NamesForNow();
  NamesForNow(const NamesForNow&) = delete;
  NamesForNow& operator=(const NamesForNow&) = delete;
  // Makes a folder, a named pipe or a device (`mode`) at `path` or, when that name is taken, beside
  // it. Returns its name; empty: it cannot be made, and errno says why.
  std::string make(const std::string& path, mode_t mode, dev_t device = 0);
  // The same for a symbolic link.
  std::string make_link(const std::string& path, const std::string& target);

 private:
  bool make_folders_above(const std::string& path);
  void lock(const std::string& folder);
  template <typename MakeNode>
  std::string make_at_or_beside(const std::string& path, bool folder, MakeNode make_node);
  std::vector<std::pair<std::string, bool>> made_;  // name, and whether it is a folder
  std::map<std::string, Fd> locked_;  // against other processes of the job that make the same
};

// The removed folders that a process has open or works in.
store::Status make_removed_folders(const Image&, Folders*);

// Why that is not possible here, one sentence for each; nothing is made.
std::vector<std::string> check_removed(const Image&);

// Gives an open object to an owner, if another one has it. False: errno says why.
bool give_owner(int fd, uid_t, gid_t);

// Owner and times of a symbolic link, as far as they can be set.
void give_link_attributes(const process::FileAttributes&, const std::string& path);

// Owner, mode, times and extended attributes, once no process has to open it any more. What cannot
// be set is reported on stderr.
void give_attributes(const Attributes&, int fd, const std::string& path);

}  // namespace gpuckpt::restore
