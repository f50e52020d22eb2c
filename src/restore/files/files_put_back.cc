#include "restore/files/files_put_back.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>

#include <nlohmann/json.hpp>

#include "base/descriptors/fd.h"
#include "store/io/printable.h"

namespace gpuckpt::restore {

using store::Status;

namespace {

namespace fs = std::filesystem;

std::string random_text() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != sizeof(number))
    number = static_cast<uint64_t>(getpid()) << 16;
  char text[20];
  snprintf(text, sizeof(text), "%012lx", number >> 16);
  return text;
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

void give_attributes(int fd, const StoredFile& f) {
  // (An ordinary user's files are his own anyway.)
  if (fchown(fd, f.uid, f.gid) != 0 && geteuid() == 0)
    store::say("gpuckpt: warning: %s: owner %u:%u cannot be given back: %s\n", f.path.c_str(),
               f.uid, f.gid, strerror(errno));
  fchmod(fd, f.mode);
  const timespec times[2] = {{0, UTIME_OMIT},
                             {static_cast<time_t>(f.mtime_ns / 1'000'000'000),
                              static_cast<long>(f.mtime_ns % 1'000'000'000)}};
  futimens(fd, times);
}

// Many files that are written so before the first fsync() take one commit of the file system's
// journal, and not one each.
void begin_to_write(int fd) { sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); }

}  // namespace

// Beside the folder; inside of it where that is not possible (a mount point).
std::string FilesPutBack::place_aside(const std::string& path) {
  std::string root = path;
  for (const std::string& folder : folders_)
    if (is_below(path, folder)) root = folder;
  std::string& aside = aside_[root];
  if (aside.empty()) {
    aside = root + kAside + random_text();
    struct stat inside, outside;
    const bool movable =
        stat(root.c_str(), &inside) == 0 && stat(parent_of(root).c_str(), &outside) == 0 &&
        inside.st_dev == outside.st_dev && access(parent_of(root).c_str(), W_OK) == 0;
    if (!movable && root != path) aside = root + "/" + kAside + random_text();
  }
  return root == path ? aside : aside + path.substr(root.size());
}

Status FilesPutBack::set_aside(const std::string& path) {
  const std::string to = place_aside(path);
  std::error_code error;
  fs::create_directories(parent_of(to), error);
  if (rename(path.c_str(), to.c_str()) != 0)
    return file_error("setting aside what " + path + " is now, as " + to);
  steps_.push_back({to, path});
  return Status::Ok();
}

// What has the path now, if anything, gives way.
Status FilesPutBack::make_room(const std::string& path) {
  struct stat st;
  return lstat(path.c_str(), &st) == 0 ? set_aside(path) : Status::Ok();
}

// Before it is overwritten.
Status FilesPutBack::copy_aside(const std::string& path) {
  const std::string to = place_aside(path);
  std::error_code error;
  fs::create_directories(parent_of(to), error);
  StoredFile now;
  Fd from(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  Fd copy(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!from || !copy || !describe(path, &now))
    return file_error("setting aside what " + path + " holds now, as " + to);
  steps_.push_back({to, ""});
  if (Status s = copy_bytes(from.get(), now.size, copy.get(), 0, path); !s.ok()) return s;
  give_attributes(copy.get(), now);
  steps_.back() = {to, path, true};
  overwritten_[{now.dev, now.ino}] = steps_.size() - 1;
  return Status::Ok();
}

// What was not there at the snapshot.
Status FilesPutBack::set_others_aside(const std::string& folder) {
  std::unique_ptr<DIR, int (*)(DIR*)> all(opendir(folder.c_str()), closedir);
  if (!all) return errno == ENOENT ? Status::Ok() : file_error(folder);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(all.get())) names.push_back(entry->d_name);
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    struct stat st;
    if (name == "." || name == ".." || name.find(kAside) != std::string::npos ||
        std::find(left_out_.begin(), left_out_.end(), path) != left_out_.end() ||
        lstat(path.c_str(), &st) != 0)
      continue;
    // Sockets and pipes have no contents; the process that has them makes them.
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode)) continue;
    auto wanted = wanted_.find(path);
    if (wanted == wanted_.end()) {
      if (Status s = set_aside(path); !s.ok()) return s;
    } else if (S_ISDIR(st.st_mode) && wanted->second.kind == StoredFile::kFolder) {
      if (Status s = set_others_aside(path); !s.ok()) return s;
    }
  }
  return Status::Ok();
}

Status FilesPutBack::put_folder(const StoredFile& f) {
  struct stat st;
  folder_times_.push_back(f);
  if (lstat(f.path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) return Status::Ok();
  if (Status s = make_room(f.path); !s.ok()) return s;
  if (mkdir(f.path.c_str(), 0700) != 0) return file_error(f.path);
  steps_.push_back({f.path, ""});
  return Status::Ok();
}

// The very file that the program had: it stays that one, for programs that know its inode (SQLite).
Status FilesPutBack::overwrite(const store::SnapshotReader& reader, const StoredFile& f) {
  if (Status s = copy_aside(f.path); !s.ok()) return s;
  Fd file(open(f.path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return file_error(f.path);
  std::vector<uint8_t> wanted(kPiece), there(kPiece);
  for (uint64_t at = 0; at < f.size;) {
    const uint64_t length = std::min<uint64_t>(kPiece, f.size - at);
    const std::span<uint8_t> piece(wanted.data(), length);
    if (Status s = reader.read(f.space, at, piece); !s.ok()) return s;
    const bool same = pread(file.get(), there.data(), length, static_cast<off_t>(at)) ==
                          static_cast<ssize_t>(length) &&
                      memcmp(there.data(), wanted.data(), length) == 0;
    if (!same && pwrite(file.get(), wanted.data(), length, static_cast<off_t>(at)) !=
                     static_cast<ssize_t>(length))
      return file_error(f.path);
    at += length;
  }
  if (ftruncate(file.get(), static_cast<off_t>(f.size)) != 0) return file_error(f.path);
  begin_to_write(file.get());
  pending_.push_back({f.path, &f});
  return Status::Ok();
}

Status FilesPutBack::put_link(const StoredFile& f) {
  StoredFile now;
  if (describe(f.path, &now) && now.kind == f.kind && now.target == f.target) return Status::Ok();
  if (Status s = make_room(f.path); !s.ok()) return s;
  if (symlink(f.target.c_str(), f.path.c_str()) != 0) return file_error(f.path);
  steps_.push_back({f.path, ""});
  return Status::Ok();
}

Status FilesPutBack::put(const store::SnapshotReader& reader, const StoredFile& f) {
  StoredFile now;
  if (describe(f.path, &now)) {
    if (now.same_as(f)) return Status::Ok();
    if (now.kind == f.kind && now.dev == f.dev && now.ino == f.ino) return overwrite(reader, f);
  }
  const std::string pending = f.path + ".gpuckpt-" + random_text();
  Fd file(open(pending.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return file_error(pending);
  steps_.push_back({pending, ""});
  std::vector<uint8_t> buffer(kPiece);
  for (uint64_t at = 0; at < f.size;) {
    const uint64_t length = std::min<uint64_t>(kPiece, f.size - at);
    const std::span<uint8_t> piece(buffer.data(), length);
    if (Status s = reader.read(f.space, at, piece); !s.ok()) return s;
    if (pwrite(file.get(), piece.data(), length, static_cast<off_t>(at)) !=
        static_cast<ssize_t>(length))
      return file_error(pending);
    at += length;
  }
  begin_to_write(file.get());
  pending_.push_back({pending, &f});
  return Status::Ok();
}

// Another name of a file that is back.
Status FilesPutBack::put_name(const store::SnapshotReader& reader, const StoredFile& f,
                              const std::string& other_name) {
  struct stat file, now;
  if (lstat(other_name.c_str(), &file) != 0) return file_error(other_name);
  if (lstat(f.path.c_str(), &now) == 0 && now.st_dev == file.st_dev && now.st_ino == file.st_ino)
    return Status::Ok();
  if (Status s = make_room(f.path); !s.ok()) return s;
  if (link(other_name.c_str(), f.path.c_str()) == 0) {
    steps_.push_back({f.path, ""});
    return Status::Ok();
  }
  store::say(
      "gpuckpt: warning: %s was another name of %s, and is a file of its own now: a hard link "
      "cannot be made (%s)\n",
      f.path.c_str(), other_name.c_str(), strerror(errno));
  return put(reader, f);
}

Status FilesPutBack::finish() {
  for (const Pending& p : pending_) {
    Fd file(open(p.written.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!file) return file_error(p.written);
    give_attributes(file.get(), *p.file);
    // A database that is restored relies on what it had made durable.
    if (fsync(file.get()) != 0) return file_error(p.written);
  }
  for (const Pending& p : pending_) {
    const std::string& path = p.file->path;
    if (p.written == path) continue;
    if (Status s = make_room(path); !s.ok()) return s;
    if (rename(p.written.c_str(), path.c_str()) != 0) return file_error(path);
    steps_.push_back({path, ""});
  }
  written_ += pending_.size();
  pending_.clear();
  return Status::Ok();
}

// What was set aside may be a name of a file that is overwritten: it becomes a name of the copy of
// what that file held.
Status FilesPutBack::part_names() {
  for (Step& step : steps_) {
    struct stat st;
    if (step.copied || step.before.empty() || lstat(step.now.c_str(), &st) != 0) continue;
    auto found = overwritten_.find({st.st_dev, st.st_ino});
    if (!S_ISREG(st.st_mode) || found == overwritten_.end()) continue;
    const Step& overwritten = steps_[found->second];
    const std::string pending = step.now + "." + random_text();
    if (link(overwritten.now.c_str(), pending.c_str()) != 0) return file_error(pending);
    if (rename(pending.c_str(), step.now.c_str()) != 0) return file_error(step.now);
    step.file = overwritten.before;
  }
  return Status::Ok();
}

Status FilesPutBack::put_files(const store::SnapshotReader& reader,
                               const std::vector<std::string>& except) {
  const auto left_alone = [&](const std::string& path) {
    return std::find(except.begin(), except.end(), path) != except.end();
  };
  // Of a file with several names, the contents are put back by one: the first that still is that
  // file, else the first.
  struct First {
    const StoredFile* name = nullptr;
    bool is_that_file = false;
  };
  std::map<std::string, First> of_several;
  for (const auto& [path, f] : wanted_) {
    if (f.links < 2 || left_alone(path)) continue;
    First& first = of_several[f.key()];
    if (first.is_that_file) continue;
    struct stat st;
    const bool is_that_file = lstat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) &&
                              st.st_dev == f.dev && st.st_ino == f.ino;
    if (!first.name || is_that_file) first = {&f, is_that_file};
  }
  std::vector<const StoredFile*> names;
  // Sorted by path: folders come before what is in them.
  for (const auto& [path, f] : wanted_) {
    if (left_alone(path)) continue;
    Status s;
    if (f.kind == StoredFile::kFolder)
      s = put_folder(f);
    else if (f.kind == StoredFile::kLink)
      s = put_link(f);
    else if (f.links > 1 && of_several[f.key()].name != &f)
      names.push_back(&f);
    else
      s = put(reader, f);
    if (!s.ok()) return s;
  }
  if (Status s = finish(); !s.ok()) return s;
  for (const StoredFile* f : names)
    if (Status s = put_name(reader, *f, of_several[f->key()].name->path); !s.ok()) return s;
  if (Status s = finish(); !s.ok()) return s;
  return part_names();
}

Status FilesPutBack::run(const store::SnapshotReader& reader, const nlohmann::json& blob,
                         const std::vector<std::string>& except) {
  folders_ = paths_in(blob, "folders");
  left_out_ = paths_in(blob, "left_out");
  const mode_t before = umask(077);  // of what is set aside
  struct Back {
    mode_t mask;
    ~Back() { umask(mask); }
  } back{before};
  std::vector<StoredFile> files = stored_files(blob);
  for (const StoredFile& f : files) wanted_[f.path] = f;
  for (const std::string& folder : folders_)
    if (Status s = set_others_aside(folder); !s.ok()) return s;
  if (Status s = put_files(reader, except); !s.ok()) return s;
  // From the inside out: each file that came back has changed its folder's time.
  for (auto f = folder_times_.rbegin(); f != folder_times_.rend(); ++f) {
    Fd folder(open(f->path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return file_error(f->path);
    fsync(folder.get());
    give_attributes(folder.get(), *f);
  }
  return Status::Ok();
}

void FilesPutBack::keep() {
  kept_ = true;
  if (written_) store::say("gpuckpt: %lu files are as they were at the snapshot\n", written_);
  for (const auto& [root, aside] : aside_) {
    struct stat st;
    if (lstat(aside.c_str(), &st) == 0)
      store::say("gpuckpt: what changed in %s since then is in %s\n", root.c_str(), aside.c_str());
  }
}

namespace {

// (The attributes first: the folder of the copy may go with it.)
void copy_back(const std::string& copy, const std::string& path) {
  StoredFile held;
  Fd from(open(copy.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  Fd to(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!from || !to || !describe(copy, &held) ||
      !copy_bytes(from.get(), held.size, to.get(), 0, path).ok() ||
      ftruncate(to.get(), static_cast<off_t>(held.size)) != 0) {
    store::say("gpuckpt: warning: what %s held before this restore is in %s\n", path.c_str(),
               copy.c_str());
    return;
  }
  give_attributes(to.get(), held);
  unlink(copy.c_str());
}

}  // namespace

void FilesPutBack::link_back(const Step& step) {
  if (link(step.file.c_str(), step.before.c_str()) == 0)
    unlink(step.now.c_str());
  else
    rename(step.now.c_str(), step.before.c_str());
}

FilesPutBack::~FilesPutBack() {
  if (kept_) return;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (step->copied)
      copy_back(step->now, step->before);
    else if (!step->file.empty())
      link_back(*step);
    else if (!step->before.empty())
      rename(step->now.c_str(), step->before.c_str());
    else if (unlink(step->now.c_str()) != 0 && errno == EISDIR)
      rmdir(step->now.c_str());
  }
  std::error_code ignored;
  for (const auto& [root, aside] : aside_)
    if (fs::is_directory(aside, ignored) && !fs::is_symlink(aside, ignored)) {
      // Only folders are left in it.
      std::vector<fs::path> left;
      for (const auto& entry : fs::recursive_directory_iterator(aside, ignored))
        left.push_back(entry.path());
      for (auto path = left.rbegin(); path != left.rend(); ++path) rmdir(path->c_str());
      rmdir(aside.c_str());
    }
}

}  // namespace gpuckpt::restore
