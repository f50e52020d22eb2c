#include "store/io/remote.h"
#include "store/io/json_text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include <nlohmann/json.hpp>

namespace gpuckpt::store {
namespace {

namespace fs = std::filesystem;

constexpr const char* kScheme = "rclone:";
// rclone's exit codes for something that does not exist.
constexpr int kNoDirectory = 3, kNoFile = 4;

// The path in a form that rclone does not take for an option.
std::string remote(const std::string& path) {
  const std::string name = path.substr(strlen(kScheme));
  return name.starts_with('-') ? "./" + name : name;
}

std::mutex complaint_mutex;
std::string complaint;  // the last message of rclone

// The last line of a file, without the time.
std::string last_line(const std::string& file) {
  std::string line, last;
  std::ifstream in(file);
  while (std::getline(in, line)) {
    if (!line.empty()) last = line;
  }
  constexpr size_t kTime = sizeof("2026/11/21 23:07:06 ") - 1;
  return last.size() > kTime && isdigit(last[0]) && last[4] == '/' ? last.substr(kTime) : last;
}

// The scratch directory; removed when the process ends.
const std::string& scratch() {
  static const std::string& made = *[] {  // never destroyed: the atexit handler needs it
    const char* base = getenv("TMPDIR");
    auto* path = new std::string(std::string(base ? base : "/var/tmp") + "/gpuckpt-remote.XXXXXX");
    if (!mkdtemp(path->data())) {
      path->clear();
      return path;
    }
    atexit([] {
      std::error_code ignored;
      fs::remove_all(scratch(), ignored);
    });
    return path;
  }();
  return made;
}

// Runs rclone; returns 0 or an errno value. Its message is kept, unless it says that something does
// not exist.
int rclone(std::vector<std::string> arguments, std::string* output = nullptr) {
  if (scratch().empty()) return errno ? errno : EIO;
  arguments.insert(arguments.begin(), "rclone");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) return errno;
  const std::string said = scratch() + "/stderr";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = 0;
  int error = posix_spawnp(&pid, "rclone", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  std::string text;
  char buffer[65536];
  for (ssize_t n; !error && (n = read(out[0], buffer, sizeof(buffer))) != 0;) {
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) break;
  }
  close(out[0]);
  if (error) return error == ENOENT ? ENOSYS : error;
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (output) *output = std::move(text);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == 0) return 0;
  if (code == kNoDirectory || code == kNoFile) return ENOENT;
  std::lock_guard guard(complaint_mutex);
  complaint = last_line(said);
  return EIO;
}

// "2026-11-21T09:51:38.623004967Z", or with an offset.
int64_t time_of(const std::string& text) {
  tm parts{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (!rest) return 0;
  int64_t seconds = timegm(&parts);
  if (*rest == '.') rest += strspn(rest + 1, "0123456789") + 1;
  int hours = 0, minutes = 0;
  if (sscanf(rest, "%3d:%2d", &hours, &minutes) == 2)
    seconds -= hours * 3600 + (hours < 0 ? -minutes : minutes) * 60;
  return seconds * 1'000'000'000;
}

FileInfo info_of(const nlohmann::json& j) {
  FileInfo out;
  out.directory = j.value("IsDir", false);
  out.regular = !out.directory;
  out.uid = geteuid();  // rclone's configuration says which users may use the remote
  out.mode = out.directory ? 0700 : 0600;
  out.size = static_cast<uint64_t>(std::max(int64_t{0}, j.value("Size", int64_t{0})));
  out.mtime_ns = time_of(j.value("ModTime", ""));
  return out;
}

class RemoteEnv : public Env {
 public:
  int open_read(const std::string& path, std::unique_ptr<File>* out) override {
    std::lock_guard guard(mutex_);
    fs::path local = copy_of(path);
    const std::string directory = fs::path(path).parent_path(),
                      kind = fs::path(directory).filename();
    std::error_code ignored;
    // Most of these small files are needed: all are downloaded at once.
    if ((kind == "snapshots" || kind == "layers") && fetched_.insert(directory).second)
      (void)rclone({"copy", remote(directory), local.parent_path(), "--exclude", "*.tmp"});
    if (!fs::exists(local, ignored)) {
      if (int e = rclone({"copyto", remote(path), local})) return e;
      if (!fs::exists(local, ignored)) return ENOENT;
    }
    return posix_env()->open_read(local, out);
  }
  int create(const std::string& path, std::unique_ptr<File>* out) override;
  int mkdir(const std::string& path) override { return rclone({"mkdir", remote(path)}); }
  int rename(const std::string& from, const std::string& to) override {
    if (int e = upload(from)) return e;
    std::lock_guard guard(mutex_);
    forget(from);
    forget(to);
    return rclone({"moveto", remote(from), remote(to)});
  }
  int remove(const std::string& path) override {
    {
      std::lock_guard guard(mutex_);
      forget(path);
    }
    FileInfo there;
    if (int e = info(path, &there)) return e;  // deletefile fails for a file that does not exist
    return rclone({"deletefile", remote(path)});
  }
  int list(const std::string& directory, std::vector<std::string>* names) override {
    names->clear();
    std::string text;
    // Many remotes have no directories, only files with slashes in their names.
    int error = rclone({"lsjson", "--no-mimetype", remote(directory)}, &text);
    static const std::set<std::string> kOurs = {"packs", "layers", "snapshots", "locks"};
    if (error == ENOENT && kOurs.count(fs::path(directory).filename())) return 0;
    if (error) return error;
    auto all = parse_json(text);
    if (!all.is_array()) return EIO;
    std::lock_guard guard(mutex_);
    try {
      for (const auto& j : all) {
        names->push_back(j.value("Name", ""));
        infos_[directory + "/" + names->back()] = info_of(j);
      }
    } catch (const nlohmann::json::exception&) {
      return EIO;
    }
    std::sort(names->begin(), names->end());
    return 0;
  }
  // A listing answers one question for each path: a caller that asks again gets a new answer.
  int info(const std::string& path, FileInfo* out) override {
    {
      std::lock_guard guard(mutex_);
      if (auto it = infos_.find(path); it != infos_.end()) {
        *out = it->second;
        infos_.erase(it);
        return 0;
      }
    }
    std::string text;
    if (int e = rclone({"lsjson", "--stat", "--no-mimetype", remote(path)}, &text)) return e;
    auto j = parse_json(text);
    if (!j.is_object()) return ENOENT;
    try {
      *out = info_of(j);
    } catch (const nlohmann::json::exception&) {
      return EIO;
    }
    return 0;
  }
  int info_followed(const std::string& path, FileInfo* out) override { return info(path, out); }
  int sync_directory(const std::string&) override { return 0; }
  int touch(const std::string& path) override {
    return rclone({"touch", "--no-create", remote(path)});
  }
  int free_bytes(const std::string&, uint64_t*) override { return ENOTSUP; }
  int64_t now_ns() override { return posix_env()->now_ns(); }
  void random(void* out, size_t length) override { posix_env()->random(out, length); }

  // Uploads what was written for `path` and is not on its remote yet.
  int upload(const std::string& path) {
    std::string local;
    {
      std::lock_guard guard(mutex_);
      auto it = unsent_.find(path);
      if (it == unsent_.end()) return 0;
      local = it->second;
    }
    if (int e = rclone({"copyto", local, remote(path)})) return e;
    std::lock_guard guard(mutex_);
    unsent_.erase(path);
    posix_env()->remove(local);
    return 0;
  }

 private:
  std::string copy_of(const std::string& path) {
    const std::string directory =
        scratch() + "/" + std::to_string(std::hash<std::string>()(fs::path(path).parent_path()));
    posix_env()->mkdir(directory);
    return directory + "/" + fs::path(path).filename().string();
  }
  void forget(const std::string& path) {
    infos_.erase(path);
    posix_env()->remove(copy_of(path));
    if (auto it = unsent_.find(path); it != unsent_.end()) {
      posix_env()->remove(it->second);
      unsent_.erase(it);
    }
  }

  std::mutex mutex_;
  std::set<std::string> fetched_;
  std::map<std::string, FileInfo> infos_;
  std::map<std::string, std::string> unsent_;  // path -> local file
  uint64_t files_ = 0;
};

// A file that is written locally and uploaded by sync.
class Upload : public File {
 public:
  Upload(RemoteEnv* env, std::string path, std::unique_ptr<File> local)
      : env_(env), path_(std::move(path)), local_(std::move(local)) {}
  int append(std::span<const std::span<const uint8_t>> parts) override {
    return local_->append(parts);
  }
  int pread(uint64_t offset, std::span<uint8_t> out) override { return local_->pread(offset, out); }
  int size(uint64_t* out) override { return local_->size(out); }
  int sync() override { return env_->upload(path_); }
  void start_writeback(uint64_t, uint64_t) override {}

 private:
  RemoteEnv* env_;
  std::string path_;
  std::unique_ptr<File> local_;
};

int RemoteEnv::create(const std::string& path, std::unique_ptr<File>* out) {
  std::lock_guard guard(mutex_);
  if (scratch().empty()) return EIO;
  std::string local = scratch() + "/unsent" + std::to_string(++files_);
  std::unique_ptr<File> file;
  if (int e = posix_env()->create(local, &file)) return e;
  unsent_[path] = local;
  *out = std::make_unique<Upload>(this, path, std::move(file));
  return 0;
}

}  // namespace

std::string remote_complaint() {
  std::lock_guard guard(complaint_mutex);
  return complaint;
}

bool is_remote(const std::string& path) { return path.starts_with(kScheme); }

Env* env_for(const std::string& path) {
  static Env* remote = new RemoteEnv;
  return is_remote(path) ? remote : posix_env();
}

}  // namespace gpuckpt::store
