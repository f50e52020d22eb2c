#include "arguments.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "gpuckpt/exit_codes.h"
#include "store/format/sizes.h"
#include "store/io/remote.h"

namespace gpuckpt::writer {

using store::Status;

namespace {

bool number(const char* text, int least, int most, int* value) {
  const std::string_view digits(text);
  if (digits.empty() || digits.size() > 9 ||
      digits.find_first_not_of("0123456789") != std::string_view::npos)
    return false;
  *value = atoi(text);
  return *value >= least && *value <= most;
}

bool purpose(std::string_view name, store::Purpose* out) {
  if (name == "restore")
    *out = store::Purpose::kRestore;
  else if (name == "size")
    *out = store::Purpose::kSize;
  else if (name != "balanced")
    return false;
  return true;
}

}  // namespace

Status parse(int argc, char** argv, Arguments* out) {
  std::string action;
  std::string fault;
  bool level_given = false;
  static const option options[] = {
      {"store", 1, nullptr, 's'},    {"ring", 1, nullptr, 'r'},
      {"parent", 1, nullptr, 'p'},   {"child", 1, nullptr, 'c'},
      {"job", 1, nullptr, 'j'},      {"level", 1, nullptr, 'l'},
      {"keep", 1, nullptr, 'k'},     {"budget", 1, nullptr, 'b'},
      {"key-file", 1, nullptr, 'K'}, {"budget-action", 1, nullptr, 'B'},
      {"memory", 1, nullptr, 'M'},   {"for", 1, nullptr, 'f'},
      {"user", 1, nullptr, 'u'},     {nullptr, 0, nullptr, 0}};
  for (int c; (c = getopt_long(argc, argv, "", options, nullptr)) != -1;) {
    switch (c) {
      case 's':
        out->store = optarg;
        break;
      case 'r':
        out->ring = atoi(optarg);
        break;
      case 'p':
        out->parent = atoi(optarg);
        break;
      case 'c':
        out->child = atoi(optarg);
        break;
      case 'j':
        out->write.job = optarg;
        break;
      case 'l':
        level_given = true;
        if (!number(optarg, 0, 19, &out->write.level))
          fault = fmt::format("GPUCKPT_LEVEL={} is not a number from 0 to 19", optarg);
        break;
      case 'f':
        if (!purpose(optarg, &out->write.purpose))
          fault = fmt::format("GPUCKPT_FOR={} is none of balanced, restore, size", optarg);
        break;
      case 'k':
        if (!number(optarg, 1, INT_MAX, &out->keep))
          fault = fmt::format("GPUCKPT_KEEP={} is not a number of 1 or more", optarg);
        break;
      case 'u':
        if (sscanf(optarg, "%ld:%ld", &out->user, &out->group) != 2) out->user = out->group = -1;
        break;
      case 'M':
        out->memory = strtoull(optarg, nullptr, 10);
        break;
      case 'b':
        if (!store::parse_size(optarg, &out->write.budget))
          fault = fmt::format("GPUCKPT_BUDGET={} is not a size such as 500M or 20G", optarg);
        break;
      case 'B':
        action = optarg;
        break;
      case 'K':
        out->key_file = optarg;
        break;
      default:
        return Status(kExitUsage, "library and writer are of different builds: reinstall gpuckpt");
    }
  }
  constexpr int kThorough = 6;
  if (out->write.purpose == store::Purpose::kSize && !level_given) out->write.level = kThorough;
  if (const char* text = getenv("GPUCKPT_BUDGET_ACTION"); text && action.empty()) action = text;
  if (!action.empty() && action != "prune" && action != "refuse")
    fault = fmt::format("GPUCKPT_BUDGET_ACTION={} is neither prune nor refuse", action);
  out->write.prune_to_budget = action == "prune";
  if (const char* mirror = getenv("GPUCKPT_MIRROR")) out->mirror = mirror;
  // Made absolute with the other paths, because the store would resolve it from another directory.
  if (const char* key = getenv("GPUCKPT_KEY_FILE"); key && out->key_file.empty())
    out->key_file = key;
  if (out->store.empty() || out->ring < 0 || out->parent < 0)
    return Status(kExitUsage, "library and writer are of different builds: reinstall gpuckpt");
  return fault.empty() ? Status::Ok() : Status(kExitUsage, fault);
}

void stand_alone(const Arguments& arguments) {
  setsid();
  umask(077);
  for (int number : {SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU})
    signal(number, SIG_IGN);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
  std::vector<int> own = {0, 1, 2, arguments.ring, arguments.parent, arguments.child};
  std::sort(own.begin(), own.end());
  unsigned from = 3;
  for (int fd : own) {
    if (fd < static_cast<int>(from)) continue;
    if (fd > static_cast<int>(from)) close_range(from, static_cast<unsigned>(fd) - 1, 0);
    from = static_cast<unsigned>(fd) + 1;
  }
  close_range(from, ~0u, 0);
  for (int fd : {arguments.ring, arguments.parent, arguments.child}) {
    if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
}

void become_user(const Arguments& a) {
  if (a.user < 0) return;
  const auto group = static_cast<gid_t>(a.group);
  const auto user = static_cast<uid_t>(a.user);
  if (setresgid(group, group, group) == 0) (void)!setresuid(user, user, user);
}

void make_absolute(Arguments* arguments) {
  for (std::string* path : {&arguments->store, &arguments->key_file, &arguments->mirror}) {
    if (path->empty() || (*path)[0] == '/' || store::is_remote(*path)) continue;
    char* cwd = getcwd(nullptr, 0);
    if (cwd) *path = std::string(cwd) + "/" + *path;
    free(cwd);
  }
}

}  // namespace gpuckpt::writer
