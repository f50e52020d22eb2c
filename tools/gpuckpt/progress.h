// Shows the progress of a verb on one line of stderr, when it is a terminal.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>

#include <fmt/format.h>

#include "store/format/sizes.h"
#include "store/io/printable.h"

namespace gpuckpt::cli {

class Progress {
 public:
  ~Progress() { clear(); }
  void show(const std::string& text) {
    if (!terminal_) return;
    auto now = std::chrono::steady_clock::now();
    if (shown_ && now - last_ < std::chrono::milliseconds(50)) return;
    last_ = now;
    shown_ = true;
    fmt::print(stderr, "\r\033[K{}", store::printable(text));
    fflush(stderr);
  }
  void bar(const std::string& what, uint64_t done, uint64_t total) {
    if (!terminal_) return;
    double share =
        total ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 0;
    std::string bar(static_cast<size_t>(share * 30), '#');
    bar.resize(30, '.');
    show(fmt::format("{} [{}] {:3.0f} %  {} of {}", what, bar, share * 100, store::show_size(done),
                     store::show_size(total)));
  }
  void clear() {
    if (shown_) fmt::print(stderr, "\r\033[K");
    shown_ = false;
  }

 private:
  bool terminal_ = isatty(2);
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace gpuckpt::cli
