#include "process/store_owner.h"

#include <errno.h>
#include <grp.h>
#include <linux/close_range.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include <fmt/format.h>

#include "store/io/remote.h"
#include "store/store.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

using store::Status;

Status run_again() {
  std::ifstream in("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // Only the standard streams are inherited, because root may have other files open.
  syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
  execv("/proc/self/exe", argv.data());
  return Status::Error(fmt::format("cannot run gpuckpt as the store's owner: {}", strerror(errno)));
}

}  // namespace

Status become_owner_of(const std::string& reference) {
  std::string path, name;
  store::split_reference(reference, &path, &name);
  struct stat st;
  if (geteuid() != 0 || !any_owner() || store::is_remote(path) || stat(path.c_str(), &st) != 0)
    return Status::Ok();
  if (st.st_uid == 0) {
    unsetenv("GPUCKPT_ANY_OWNER");  // with it a store that is exchanged now would be accepted
    return Status::Ok();
  }
  const passwd* owner = getpwuid(st.st_uid);
  if (!owner) {
    return Status::Refused(
        fmt::format("store {} belongs to user {}, whom this machine does not know: root does not "
                    "run a stranger's snapshot as root; become that user (setpriv --reuid={} "
                    "--regid=GROUP --clear-groups gpuckpt ...)",
                    path, st.st_uid, st.st_uid));
  }
  complain(fmt::format("store {} belongs to {}: continuing as that user", path, owner->pw_name));
  if (initgroups(owner->pw_name, owner->pw_gid) != 0 ||
      setresgid(owner->pw_gid, owner->pw_gid, owner->pw_gid) != 0 ||
      prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 ||
      prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) != 0 ||
      setresuid(owner->pw_uid, owner->pw_uid, owner->pw_uid) != 0 || geteuid() != owner->pw_uid ||
      setuid(0) == 0) {
    return Status::Refused(fmt::format("cannot become {}, the owner of store {}: {}",
                                       owner->pw_name, path, strerror(errno)));
  }
  return run_again();
}

}  // namespace gpuckpt::cli
